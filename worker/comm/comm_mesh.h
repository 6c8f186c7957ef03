/* One authenticated connection between every two ranks: each connects to those below it and lets in
 * those above. */
#ifndef WORKER_COMM_COMM_MESH_H
#define WORKER_COMM_COMM_MESH_H

#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm_greet.h"
#include "worker/comm/comm_wire.h"

/* hello: our own, of kind COMM_HELLO_MESH; roster: [world]; fds: [world], -1 before, filled as far
 * as it came, its own entry stays -1. Stops early when `stop_fd` (an eventfd) is readable:
 * STATUS_CLOSED, the caller knows why. Else STATUS_TIMEOUT, STATUS_PEER_LOST with the rank,
 * STATUS_MEMORY. */
enum status comm_mesh_build(struct comm_greeter *greeter, const struct comm_hello *hello,
                            const struct comm_place *roster, int stop_fd, int *fds,
                            uint64_t timeout_us, struct err *err);

#endif
