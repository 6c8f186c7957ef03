/* The slots that are kept for the first job of the queue that has to wait, so that those behind it
 * cannot delay it.
 *
 * Where all jobs on some set of nodes that is large enough have a time limit, the reservation has a
 * time: that of the set that is free first. A job behind it may use reserved slots if its own time
 * limit is over before that. Otherwise nobody knows when slots become free; then slots are chosen
 * once (where the fewest are taken by jobs without a known end), kept, and given to nobody else. All
 * that is on them ends some day, and then the job starts, if it has not started elsewhere before. */
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
    uint32_t serial;   /* another one for each other `text` */
    uint32_t part_count;
    struct reserved_part parts[NODES_PER_JOB_MAX];
    char text[REASON_BYTES_MAX / 2]; /* "gpu[1-2]" */
};

/* A node as one that slots may be reserved on. */
struct reserve_option {
    uint64_t end_us;  /* when the slots are free; 0: soon; UINT64_MAX: nobody knows */
    uint32_t unknown; /* slots of those whose end is not known */
    uint32_t place;   /* in the order of names */
    uint32_t node;
    uint64_t mask;
};

/* Chooses for the job, or keeps what it has. False: too few nodes could ever have room for it as
 * they are now, and then there is no reservation. */
bool reserve(struct rdzv *rdzv, const struct job *job);
void reserve_nothing(struct rdzv *rdzv);

#endif
