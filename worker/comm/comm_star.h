/* Bring-up of the star: every rank says hello to rank 0 and gets the roster, the places of all
 * ranks. The connections stay open and become the liveness channel (comm_watch). Blocks; not on a
 * thread that must not wait. */
#ifndef WORKER_COMM_COMM_STAR_H
#define WORKER_COMM_COMM_STAR_H

#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm_greet.h"
#include "worker/comm/comm_wire.h"

/* Other ranks wait this much longer than rank 0, which knows who did not come. */
#define COMM_STAR_GRACE_US UINT64_C(3000000)

/* Rank 0: waits until all ranks have come, sends the roster. links: [world], descriptors by rank,
 * -1 before; roster: [world]; both are filled as far as it came. Errors: STATUS_TIMEOUT naming who
 * did not come, STATUS_PEER_LOST, STATUS_MEMORY. */
enum status comm_star_gather(struct comm_greeter *greeter, int *links, struct comm_place *roster,
                             uint64_t timeout_us, struct err *err);
/* Other ranks: `hello` says who we are, `meeting` is rank 0's place. Errors: STATUS_REFUSED,
 * STATUS_TIMEOUT, STATUS_PEER_LOST, STATUS_BAD_INPUT. */
enum status comm_star_join(const struct comm_hello *hello, const struct comm_place *meeting,
                           int *link, struct comm_place *roster, uint64_t timeout_us,
                           struct err *err);

#endif
