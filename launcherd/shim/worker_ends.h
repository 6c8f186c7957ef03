/* The pipes, terminal and socket between a worker and the shim: its output, its stdin and terminal
 * if the job asks for them, and its connection to the shim. */
#ifndef LAUNCHERD_SHIM_WORKER_ENDS_H
#define LAUNCHERD_SHIM_WORKER_ENDS_H

#include <stdbool.h>

#include "common/io/conn.h"
#include "common/status.h"
#include "launcherd/shim/shim_workers.h"

/* The worker's ends. The caller closes them with worker_ends_close. */
struct worker_ends {
    int stdin_fd; /* -1: no stdin */
    int stdout_fd, stderr_fd, conn_fd;
    bool has_terminal; /* stdout_fd is a terminal; stdin_fd and stderr_fd are copies */
};

/* Call before the start. Finds out whether the job wants a stdin for this rank. */
void worker_ends_init(struct shim_worker *worker);
/* Makes both ends. `handlers`: of the connection. Call worker_ends_close after a failure too. */
enum status worker_ends_open(struct shim_worker *worker, const struct conn_handlers *handlers,
                             struct worker_ends *ends, struct err *err);
void worker_ends_close(struct worker_ends *ends);
/* Gives a rank of this node bytes for its stdin. on_input gets the answer. */
void worker_ends_input(struct shim_workers *workers, const struct msg_input *request);

#endif
