/* Whether the first word of a command is for Python to run, as torchrun runs it, or a program. */
#ifndef DDPCTL_PROGRAM_KIND_H
#define DDPCTL_PROGRAM_KIND_H

#include <stdbool.h>

#include "common/status.h"

/* True for
 *   *.py, whatever is in it, and even if it is only on the nodes
 *   a folder with __main__.py, a zip archive, a compiled .pyc
 *   a text file without #! whose extension names no other language
 *   a file whose #! names a Python. It is a program if that Python is beside it: then pip has made
 *   it, for the libraries of that Python.
 * A word without a slash that is in `search`, the PATH, is a program. STATUS_BAD_INPUT: a path of a
 * folder that Python cannot run. */
enum status program_is_python(const char *word, const char *cwd, const char *search,
                              bool *is_python, struct err *err);
/* Whether a folder of `search` has this program. */
bool program_is_on_path(const char *program, const char *search);
/* The python of `search`: that of its first folder which has one, "python3" before "python". */
const char *program_python(const char *search);

#endif
