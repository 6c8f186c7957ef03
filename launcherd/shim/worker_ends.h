/* The other ends of what a worker reads and writes: its output, its stdin and its terminal on request, and its
 * connection to the shim. */
#ifndef LAUNCHERD_SHIM_WORKER_ENDS_H
#define LAUNCHERD_SHIM_WORKER_ENDS_H

#include <stdbool.h>

#include "common/io/conn.h"
#include "common/status.h"
#include "launcherd/shim/shim_workers.h"

/* For the worker; the caller closes its copies. */
struct worker_ends {
    int stdin_fd; /* -1: nothing */
    int stdout_fd, stderr_fd, conn_fd;
    bool has_terminal; /* stdout_fd is one, and all but conn_fd are the same */
};

/* Before the start: what the job wants for this rank. */
void worker_ends_init(struct shim_worker *worker);
/* `handlers`: of the connection. Also after a failure worker_ends_close is due. */
enum status worker_ends_open(struct shim_worker *worker, const struct conn_handlers *handlers,
                             struct worker_ends *ends, struct err *err);
void worker_ends_close(struct worker_ends *ends);
/* What a rank of this node reads next; answered by on_input. */
void worker_ends_input(struct shim_workers *workers, const struct msg_input *request);

#endif
