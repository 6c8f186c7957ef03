/* Daemons that belong to one run, as --standalone and --slurm start them: their programs, folders and
 * environment. */
#ifndef DDPCTL_PRIVATE_DAEMONS_H
#define DDPCTL_PRIVATE_DAEMONS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "ddpctl/daemon.h"

/* The path of a daemon: in `bindir`, else beside our own program, as built or as installed.
 * STATUS_NOT_FOUND. */
enum status private_program(const char *bindir, const char *name, char path[PATH_MAX],
                            struct err *err);
/* mkdir -p; `whole` gets the absolute path. `option` is for the message. */
enum status private_folder(const char *wanted, const char *option, char *whole, size_t whole_bytes,
                           struct err *err);
/* Our environment without the variables that would change how the daemons are set up, and with `more`
 * (NULL: nothing); its texts are borrowed, the array is the caller's to free. NULL: no memory. */
char **private_environ(char *more);
/* The last line of a log, as a hint; "": there is none. */
void private_last_line(const char *path, char *text, size_t text_bytes);
/* The arguments of a launcherd with so many slots. `gpus`: of --gpus, "": not given; `log_dir`: "":
 * with its state. */
void private_node_args(struct daemon *daemon, uint32_t slots, const char *gpus,
                       const char *log_dir);

#endif
