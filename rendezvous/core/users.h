/* How many jobs each user has in the queue, and how many slots in use. */
#ifndef RENDEZVOUS_CORE_USERS_H
#define RENDEZVOUS_CORE_USERS_H

#include "rendezvous/core/job.h"

#define USERS_MAX 16384u
#define USER_NONE UINT32_MAX

/* A user with jobs in the table. */
struct user {
    char name[USER_NAME_BYTES_MAX];
    uint32_t jobs;   /* in the table; 0: the entry is free */
    uint32_t queued; /* jobs that have not started yet */
    uint32_t slots;  /* slots of jobs that are starting, running or restarting */
    bool was_used;   /* an entry that was used before: a search must continue past it */
};

/* The index of the user of that name; USER_NONE: no job in the table is theirs. */
uint32_t users_find(const struct rdzv *rdzv, const char *name);
/* Counts the job for its user from now on. If USERS_MAX other users have jobs, it counts for
 * nobody. */
void users_add(struct rdzv *rdzv, struct job *job);
void users_remove(struct rdzv *rdzv, struct job *job);
/* Updates the user's counts after the job's state has changed. */
void users_count(struct rdzv *rdzv, struct job *job);

#endif
