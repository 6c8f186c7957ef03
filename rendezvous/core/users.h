/* What each user has in the queue, and in use. */
#ifndef RENDEZVOUS_CORE_USERS_H
#define RENDEZVOUS_CORE_USERS_H

#include "rendezvous/core/job.h"

#define USERS_MAX 16384u
#define USER_NONE UINT32_MAX

/* A user with jobs in the table. */
struct user {
    char name[USER_NAME_BYTES_MAX];
    uint32_t jobs;   /* in the table; 0: the entry is free */
    uint32_t queued; /* that have not started yet */
    uint32_t slots;  /* of those that run, start or restart */
    bool was_used;   /* a search goes on behind it */
};

/* The user of that name; USER_NONE: none of the jobs is theirs. */
uint32_t users_find(const struct rdzv *rdzv, const char *name);
/* From now on the job counts for its user. Where USERS_MAX others have jobs, it counts for nobody. */
void users_add(struct rdzv *rdzv, struct job *job);
void users_remove(struct rdzv *rdzv, struct job *job);
/* The job's state has changed: what it counts for. */
void users_count(struct rdzv *rdzv, struct job *job);

#endif
