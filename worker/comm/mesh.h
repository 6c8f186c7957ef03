/* One authenticated connection between every two ranks: each rank connects to the lower ranks and
 * accepts the higher ones. */
#ifndef WORKER_COMM_MESH_H
#define WORKER_COMM_MESH_H

#include <stdint.h>

#include "common/status.h"
#include "worker/comm/greet.h"
#include "worker/comm/wire.h"

/*   hello: our own, of kind COMM_HELLO_MESH
 *   roster: [world], where each rank listens
 *   stop_fd: an eventfd; once it is readable, stops with STATUS_CLOSED (the caller knows why)
 *   fds: [world], all -1 before; connections by rank, our own entry stays -1. On failure those that
 *        were made are there, owned by the caller.
 * Errors: STATUS_CLOSED, STATUS_TIMEOUT, STATUS_PEER_LOST (names the rank), STATUS_MEMORY. */
enum status comm_mesh_build(struct comm_greeter *greeter, const struct comm_hello *hello,
                            const struct comm_place *roster, int stop_fd, int *fds,
                            uint64_t timeout_us, struct err *err);

#endif
