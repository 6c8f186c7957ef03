/* Requests of the task on the first node of `run --slurm` to the server that it has started, over
 * the server's unix socket DIR/rendezvous.sock. Each call blocks until the answer has come. */
#ifndef DDPCTL_SLURM_SERVER_H
#define DDPCTL_SLURM_SERVER_H

#include <stdbool.h>

#include "common/key.h"
#include "common/msg.h"
#include "common/status.h"

/* Adds a principal; `url`: its key, [KEY_URL_BYTES_MAX]. STATUS_REFUSED: the reason is on stderr. */
enum status slurm_server_add_key(const char *dir, const char *name, enum role role, char *url,
                                 struct err *err);
/* Cancels the job with SIGTERM and its grace, if there is one. */
void slurm_server_cancel(const char *dir);
/* True: the server has no waiting or running job, or does not answer. */
bool slurm_server_is_idle(const char *dir);

#endif
