/* `run` where there is no server: on this machine, as with --standalone. */
#ifndef DDPCTL_RUN_HERE_H
#define DDPCTL_RUN_HERE_H

#include "ddpctl/ctl.h"

/* If no server was named, none was logged in to, and no socket of one is here, sets --standalone and
 * says so. A job that needs several nodes is refused. Returns an exit code, after an error was
 * shown. ctl->server was chosen. */
int run_here_choose(struct ctl *ctl);
/* The command line for a person to type: "ddpctl run --nodes 2 train.py --lr 1", without options that
 * have no effect. */
void run_here_command(const struct ctl *ctl, char *text, size_t byte_count);

#endif
