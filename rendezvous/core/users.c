#include "rendezvous/core/users.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/state.h"

/* FNV-1a. */
static uint32_t hash(const char *text)
{
    uint32_t value = 2166136261u;

    for (; *text != '\0'; text++)
        value = (value ^ (uint8_t)*text) * 16777619u;
    return value;
}

uint32_t users_find(const struct rdzv *rdzv, const char *name)
{
    uint32_t first = hash(name) % USERS_MAX;

    for (uint32_t i = 0; i < USERS_MAX; i++) {
        uint32_t index = (first + i) % USERS_MAX;
        const struct user *user = &rdzv->users[index];

        if (!user->was_used)
            return USER_NONE;
        if (user->jobs > 0 && strcmp(user->name, name) == 0)
            return index;
    }
    return USER_NONE;
}

/* USER_NONE: no entry is free. */
static uint32_t find_free(const struct rdzv *rdzv, const char *name)
{
    uint32_t first = hash(name) % USERS_MAX;

    for (uint32_t i = 0; i < USERS_MAX; i++)
        if (rdzv->users[(first + i) % USERS_MAX].jobs == 0)
            return (first + i) % USERS_MAX;
    return USER_NONE;
}

void users_count(struct rdzv *rdzv, struct job *job)
{
    const struct rdzv_record *record = &job->record;
    bool has_slots = !job->ended && (record->part_count > 0 || record->state == JOB_RESTARTING);
    uint32_t queued = !job->ended && record->state == JOB_QUEUED;
    uint32_t slots = has_slots ? job_world(job) + job->spare_count * record->nproc_per_node : 0;
    struct user *user;

    if (job->user == USER_NONE)
        return;
    user = &rdzv->users[job->user];
    assert(user->queued >= job->counted_queued && user->slots >= job->counted_slots);
    user->queued += queued - job->counted_queued;
    user->slots += slots - job->counted_slots;
    job->counted_queued = queued;
    job->counted_slots = slots;
}

void users_add(struct rdzv *rdzv, struct job *job)
{
    uint32_t index = users_find(rdzv, job->record.user);

    assert(job->user == USER_NONE);
    if (index == USER_NONE) {
        index = find_free(rdzv, job->record.user);
        if (index == USER_NONE)
            return;
        rdzv->users[index] = (struct user){.was_used = true};
        (void)snprintf(rdzv->users[index].name, sizeof rdzv->users[index].name, "%s",
                       job->record.user);
    }
    rdzv->users[index].jobs++;
    job->user = index;
    users_count(rdzv, job);
}

void users_remove(struct rdzv *rdzv, struct job *job)
{
    struct user *user;

    if (job->user == USER_NONE)
        return;
    user = &rdzv->users[job->user];
    assert(user->jobs > 0 && job->counted_queued == 0 && job->counted_slots == 0);
    user->jobs--;
    job->user = USER_NONE;
}
