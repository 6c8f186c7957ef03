/* Daemons for a single run, as --standalone and --slurm start them: their programs, folders and
 * environment. */
#ifndef DDPCTL_PRIVATE_DAEMONS_H
#define DDPCTL_PRIVATE_DAEMONS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "ddpctl/daemon.h"

/* The path of a daemon: in `bindir`, otherwise beside our own program, in a build tree or as
 * installed. STATUS_NOT_FOUND. */
enum status private_program(const char *bindir, const char *name, char path[PATH_MAX],
                            struct err *err);
/* Like mkdir -p, but follows no link of another user (common/io/own_path.h). `whole` gets the absolute path.
 * `option`: named in the message. */
enum status private_folder(const char *wanted, const char *option, char *whole, size_t whole_bytes,
                           struct err *err);
/* Our environment without variables that would change the daemons' set-up, with `more` (NULL:
 * nothing), and with our pid, by which the daemons notice our end even if it comes early. The texts
 * are borrowed; the caller frees the array. NULL: no memory. */
char **private_environ(char *more);
/* The last line of a log, as a hint, and that its disk is full, if it is; "": there is none. */
void private_last_line(const char *path, char *text, size_t text_bytes);
/* Adds the arguments for a launcherd with that many slots. `gpus`: the value of --gpus, "": not
 * given; `log_dir`: "": in its state directory. */
void private_node_args(struct daemon *daemon, uint32_t slots, const char *gpus,
                       const char *log_dir);

#endif
