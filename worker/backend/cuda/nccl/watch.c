#include "worker/backend/cuda/nccl/watch.h"

#include <assert.h>

#define STEPS_OF_PATIENCE 5

void nccl_watch_init(struct nccl_watch *watch, uint64_t now_us)
{
    *watch = (struct nccl_watch){.since_us = now_us, .patience = 1};
}

uint64_t nccl_watch_limit_us(const struct nccl_watch *watch)
{
    const uint64_t slow_us = STEPS_OF_PATIENCE * watch->longest_us;

    if (!watch->has_step)
        return watch->patience * NCCL_WATCH_FIRST_US;
    return watch->patience * (slow_us > NCCL_WATCH_STALL_US ? slow_us : NCCL_WATCH_STALL_US);
}

static uint64_t loaded_us(const struct nccl_watch *watch, uint64_t now_us)
{
    return watch->loaded_us + (watch->is_loading ? now_us - watch->loading_us : 0);
}

uint64_t nccl_watch_silent_us(const struct nccl_watch *watch, uint64_t now_us)
{
    const uint64_t all_us = now_us - watch->since_us, own_us = loaded_us(watch, now_us);

    assert(now_us >= watch->since_us && own_us <= all_us);
    return all_us - own_us;
}

static enum nccl_watch_verdict evaluate(const struct nccl_watch *watch,
                                        const struct nccl_watch_event *event)
{
    if (event->peer_lost)
        return NCCL_WATCH_PEER;
    if (event->has_error)
        return NCCL_WATCH_ERROR;
    if (!watch->is_paused &&
        nccl_watch_silent_us(watch, event->now_us) > nccl_watch_limit_us(watch))
        return NCCL_WATCH_STALLED;
    return NCCL_WATCH_FINE;
}

bool nccl_watch_step(struct nccl_watch *watch, const struct nccl_watch_event *event)
{
    const uint64_t took_us = event->now_us - watch->since_us;

    assert(event->now_us >= watch->since_us); /* a monotonic clock */
    switch (event->type) {
    case NCCL_WATCH_TICK:
        if (watch->verdict != NCCL_WATCH_FINE)
            return false;
        watch->verdict = evaluate(watch, event);
        return watch->verdict != NCCL_WATCH_FINE;
    case NCCL_WATCH_STEP:
        if (!watch->is_paused && took_us > watch->longest_us)
            watch->longest_us = took_us;
        if (!watch->is_paused)
            watch->has_step = true;
        watch->is_paused = false;
        break;
    case NCCL_WATCH_PAUSE:
        watch->is_paused = true;
        break;
    case NCCL_WATCH_LOADING:
        watch->loaded_us = loaded_us(watch, event->now_us);
        watch->loading_us = event->now_us;
        watch->is_loading = true;
        return false;
    case NCCL_WATCH_LOADED:
        watch->loaded_us = loaded_us(watch, event->now_us);
        watch->is_loading = false;
        return false;
    }
    watch->since_us = watch->loading_us = event->now_us;
    watch->loaded_us = 0;
    return false;
}
