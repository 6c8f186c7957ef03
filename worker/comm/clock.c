#include "worker/comm/clock.h"

#include <assert.h>

enum { TRIES = 8 }; /* the fastest round trip counts: it is the most precise */

enum status comm_clock_measure(struct comm *comm, uint32_t rank, uint32_t peer,
                               uint64_t (*now)(void *user), void *user, struct comm_clock *clock,
                               struct err *err)
{
    const uint32_t there[] = {peer, 0}, back[] = {0, peer};
    enum status status = STATUS_OK;

    assert(peer != 0);
    *clock = (struct comm_clock){0};
    for (uint32_t i = 0; status == STATUS_OK && i < TRIES; i++) {
        uint64_t asked = now(user), told = 0, trip;

        status = comm_multicast(comm, &told, sizeof told, there, 2, err);
        if (rank == 0)
            told = now(user);
        if (status == STATUS_OK)
            status = comm_multicast(comm, &told, sizeof told, back, 2, err);
        if (status != STATUS_OK || rank != peer)
            continue;
        /* The peer read `told` between asked and asked + trip. */
        trip = now(user) - asked;
        if (i > 0 && (trip + 1) / 2 >= clock->error_us)
            continue;
        clock->error_us = (trip + 1) / 2;
        clock->offset_us = (int64_t)(told - asked) - (int64_t)(trip / 2);
    }
    return status;
}
