/* The reservation: slots that are kept for the first job of the queue that has to wait, so that jobs behind
 * it cannot delay it.
 *
 * If some large enough set of nodes runs only jobs with a time limit, the reservation has a time: the
 * earliest at which such a set is free. A job behind the first may use reserved slots if its own time limit
 * ends before that. Otherwise nobody knows when slots become free. Then a set of slots is chosen once (the
 * one with the fewest slots taken by jobs without a known end), and is given to nobody else. Everything on
 * them ends some day, and then the first job starts, unless it has started elsewhere before. */
#ifndef RENDEZVOUS_CORE_RESERVE_H
#define RENDEZVOUS_CORE_RESERVE_H

#include "rendezvous/core/place.h"

struct reserved_part {
    uint32_t node; /* index into rdzv->nodes */
    uint64_t mask;
};

struct reservation {
    uint64_t job_id;   /* 0: none */
    uint64_t start_us; /* 0: soon; UINT64_MAX: nobody knows */
    uint32_t serial;   /* changes whenever `text` changes */
    uint32_t part_count;
    struct reserved_part parts[NODES_PER_JOB_MAX];
    char text[REASON_BYTES_MAX / 2]; /* "gpu[1-2]" */
};

/* A node as a candidate for the reservation. */
struct reserve_option {
    uint64_t end_us;  /* when the slots are free; 0: soon; UINT64_MAX: nobody knows */
    uint32_t unknown; /* how many of these slots have no known end */
    uint32_t place;   /* in the order of node names */
    uint32_t node;
    uint64_t mask;
};

/* Chooses slots for the job, or keeps those it has. False: in the present state too few nodes could
 * ever run the job, so there is no reservation. */
bool reserve(struct rdzv *rdzv, const struct job *job);
void reserve_nothing(struct rdzv *rdzv);

#endif
