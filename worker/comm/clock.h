/* How far the clocks of two ranks are apart, as NTP measures it (RFC 5905, section 8), over the
 * connections of the collectives. */
#ifndef WORKER_COMM_CLOCK_H
#define WORKER_COMM_CLOCK_H

#include <stdint.h>

#include "worker/comm/comm.h"

struct comm_clock {
    int64_t offset_us; /* rank 0's clock minus this rank's */
    uint64_t error_us; /* the true offset is no further away, if neither clock drifts meanwhile */
};

/* Collective: all ranks call it with the same peer. On the peer `clock` gets the difference; on the
 * others it is 0. `now` reads this rank's clock, in microseconds. Errors: those of the
 * collectives. */
enum status comm_clock_measure(struct comm *comm, uint32_t rank, uint32_t peer,
                               uint64_t (*now)(void *user), void *user, struct comm_clock *clock,
                               struct err *err);

#endif
