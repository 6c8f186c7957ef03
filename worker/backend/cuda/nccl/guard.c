#include "worker/backend/cuda/nccl/guard.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/io/mono.h"
#include "worker/backend/cuda/nccl/watch.h"

struct nccl_guard {
    struct nccl_guard_options options;
    pthread_t thread;
    pthread_mutex_t lock; /* protects all fields below */
    pthread_cond_t changed;
    struct nccl_watch watch;
    struct err why;
    bool stopping, is_taken; /* is_taken: the verdict was read */
};

/* Waits for a change; false if the time has passed. Call with the lock held. */
static bool wait_until(struct nccl_guard *guard, uint64_t until_us)
{
    const struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                                   .tv_nsec = (long)(until_us % 1000000) * 1000};

    return pthread_cond_timedwait(&guard->changed, &guard->lock, &until) == 0;
}

static void explain(struct nccl_guard *guard, const struct err *cause)
{
    const uint64_t now_us = mono_us(), silent_us = nccl_watch_silent_us(&guard->watch, now_us);
    const uint64_t loaded_us = now_us - guard->watch.since_us - silent_us;
    char loaded[64] = "";

    guard->why = *cause;
    if (guard->watch.verdict != NCCL_WATCH_STALLED)
        return;
    if (loaded_us >= 1000000)
        (void)snprintf(loaded, sizeof loaded, ", beside %llu s in which this rank loaded data",
                       (unsigned long long)(loaded_us / 1000000));
    (void)err_set(&guard->why, STATUS_TIMEOUT, 0,
                  "no step ended for %llu s%s, and no peer is known to be lost: a collective on "
                  "the GPU waits for another rank; NCCL_DEBUG=INFO prints more",
                  (unsigned long long)(silent_us / 1000000), loaded);
}

static void *abort_link(void *user)
{
    struct nccl_guard *guard = user;

    guard->options.nccl->abort(guard->options.link);
    return NULL;
}

/* Call once, with the lock held: aborts the communicator, then waits for the training thread.
 * ncclCommAbort ends the collectives on the device at once, but returns only when every captured
 * graph that contains one of them is destroyed. The training thread destroys those, so the abort
 * runs on a separate thread. */
static void end(struct nccl_guard *guard, const struct err *cause)
{
    const uint64_t until_us = mono_us() + guard->options.grace_us;
    pthread_t aborter;
    bool is_apart;

    explain(guard, cause);
    (void)pthread_mutex_unlock(&guard->lock);
    is_apart = pthread_create(&aborter, NULL, abort_link, guard) == 0;
    if (!is_apart)
        (void)abort_link(guard);
    (void)pthread_mutex_lock(&guard->lock);
    while (!guard->is_taken && !guard->stopping)
        if (!wait_until(guard, until_us) && !guard->is_taken && !guard->stopping)
            guard->options.give_up(guard->options.user, &guard->why);
    (void)pthread_mutex_unlock(&guard->lock);
    if (is_apart)
        (void)pthread_join(aborter, NULL);
    (void)pthread_mutex_lock(&guard->lock);
}

/* One check, without the lock and without the time: events come in between. */
static struct nccl_watch_event look(const struct nccl_guard *guard, struct err *cause)
{
    struct nccl_watch_event tick = {.type = NCCL_WATCH_TICK};

    tick.peer_lost = guard->options.gone(guard->options.user, cause);
    if (!tick.peer_lost)
        tick.has_error = guard->options.nccl->check(guard->options.link, cause) != STATUS_OK;
    return tick;
}

static void *run(void *user)
{
    struct nccl_guard *guard = user;
    uint64_t next_us = mono_us();

    (void)pthread_mutex_lock(&guard->lock);
    while (!guard->stopping && guard->watch.verdict == NCCL_WATCH_FINE) {
        struct err cause = {.text = ""};
        struct nccl_watch_event tick;

        next_us += NCCL_WATCH_TICK_US;
        while (!guard->stopping && wait_until(guard, next_us))
            ;
        if (guard->stopping)
            break;
        (void)pthread_mutex_unlock(&guard->lock);
        tick = look(guard, &cause);
        (void)pthread_mutex_lock(&guard->lock);
        tick.now_us = mono_us();
        if (nccl_watch_step(&guard->watch, &tick))
            end(guard, &cause);
    }
    (void)pthread_mutex_unlock(&guard->lock);
    return NULL;
}

enum status nccl_guard_new(struct nccl_guard **out, const struct nccl_guard_options *options,
                           struct err *err)
{
    struct nccl_guard *guard = calloc(1, sizeof *guard);
    pthread_condattr_t attributes;
    int rc;

    assert(options->nccl != NULL && options->gone != NULL && options->give_up != NULL);
    *out = NULL;
    if (guard == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to watch NCCL");
    guard->options = *options;
    nccl_watch_init(&guard->watch, mono_us());
    guard->watch.patience = options->has_launcher ? 2 : 1;
    (void)pthread_mutex_init(&guard->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&guard->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    rc = pthread_create(&guard->thread, NULL, run, guard);
    if (rc != 0) {
        (void)pthread_cond_destroy(&guard->changed);
        (void)pthread_mutex_destroy(&guard->lock);
        free(guard);
        return err_set(err, STATUS_SYSTEM, rc, "thread that watches NCCL: %s", strerror(rc));
    }
    *out = guard;
    return STATUS_OK;
}

void nccl_guard_free(struct nccl_guard **out)
{
    struct nccl_guard *guard = *out;

    if (guard == NULL)
        return;
    (void)pthread_mutex_lock(&guard->lock);
    guard->stopping = true;
    (void)pthread_cond_broadcast(&guard->changed);
    (void)pthread_mutex_unlock(&guard->lock);
    (void)pthread_join(guard->thread, NULL);
    (void)pthread_cond_destroy(&guard->changed);
    (void)pthread_mutex_destroy(&guard->lock);
    free(guard);
    *out = NULL;
}

static void step_watch(struct nccl_guard *guard, enum nccl_watch_event_type type)
{
    struct nccl_watch_event event = {.type = type};

    (void)pthread_mutex_lock(&guard->lock);
    event.now_us = mono_us();
    (void)nccl_watch_step(&guard->watch, &event);
    (void)pthread_mutex_unlock(&guard->lock);
}

void nccl_guard_progress(struct nccl_guard *guard)
{
    step_watch(guard, NCCL_WATCH_STEP);
}

void nccl_guard_pause(struct nccl_guard *guard)
{
    step_watch(guard, NCCL_WATCH_PAUSE);
}

void nccl_guard_loading(struct nccl_guard *guard, bool is_loading)
{
    step_watch(guard, is_loading ? NCCL_WATCH_LOADING : NCCL_WATCH_LOADED);
}

enum status nccl_guard_verdict(struct nccl_guard *guard, struct err *err)
{
    enum status status = STATUS_OK;

    (void)pthread_mutex_lock(&guard->lock);
    if (guard->watch.verdict != NCCL_WATCH_FINE) {
        status = err_set(err, guard->why.status, guard->why.code, "%s", guard->why.text);
        guard->is_taken = true;
        (void)pthread_cond_broadcast(&guard->changed);
    }
    (void)pthread_mutex_unlock(&guard->lock);
    return status;
}
