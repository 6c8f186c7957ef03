/* Ranks as threads of this process, over loopback: quick, and a thread sanitizer sees all of them.
 */
#ifndef TESTS_UNIT_WORKER_COMM_CREW_H
#define TESTS_UNIT_WORKER_COMM_CREW_H

#include <stdint.h>

#include "worker/comm/comm.h"

#define CREW_WORLD_MAX 16

struct crew_seat {
    uint32_t rank, world;
    void *user;
    struct comm *comm; /* connected; the crew closes it, unless the body did */
    char text[512];    /* for the test to read; why it failed */
    int rc;            /* of the body; -1: did not connect */
};

struct crew {
    struct crew_seat seats[CREW_WORLD_MAX];
};

/* Runs `body` as every rank and waits for all. */
void crew_run(struct crew *crew, uint32_t world, int (*body)(struct crew_seat *seat), void *user);
/* The test fails with the text of the first seat whose rc is not 0. */
void crew_check(const struct crew *crew);

#endif
