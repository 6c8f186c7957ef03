/* Bring-up of the star: every rank connects to rank 0, sends its hello and gets the roster, the
 * addresses of all ranks. The connections stay open for the liveness messages of watch.h. Blocks.
 */
#ifndef WORKER_COMM_STAR_H
#define WORKER_COMM_STAR_H

#include <stdint.h>

#include "common/status.h"
#include "worker/comm/greet.h"
#include "worker/comm/wire.h"

/* The other ranks wait this much longer than rank 0, which knows the missing ranks and tells them.
 */
#define COMM_STAR_GRACE_US UINT64_C(3000000)

/* On rank 0: waits until all ranks have connected, then sends the roster.
 *   links: [world], all -1 before; connections by rank. On failure those that were made are there.
 *   roster: [world], written
 * Errors: STATUS_TIMEOUT (names the missing ranks), STATUS_PEER_LOST, STATUS_MEMORY. */
enum status comm_star_gather(struct comm_greeter *greeter, int *links, struct comm_place *roster,
                             uint64_t timeout_us, struct err *err);
/* On other ranks: connects to rank 0 at `meeting`, sends `hello`, receives the roster.
 *   link: the connection, also on failure; -1 if there is none
 * Errors: STATUS_REFUSED, STATUS_TIMEOUT, STATUS_PEER_LOST, STATUS_BAD_INPUT. */
enum status comm_star_join(const struct comm_hello *hello, const struct comm_place *meeting,
                           int *link, struct comm_place *roster, uint64_t timeout_us,
                           struct err *err);

#endif
