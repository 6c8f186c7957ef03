#include "launcherd/core/shim_progress.h"

#include <assert.h>
#include <stdio.h>

#define INTERVAL_US 1000000u

void shim_progress_take(struct shim *shim, const struct shim_event *event)
{
    struct shim_progress *progress = &shim->progress[event->local];
    const struct msg_progress *news = &event->msg->progress;

    assert(event->local < shim->options.local_count);
    if (news->step < progress->newest.step ||
        news->checkpoint_step < progress->newest.checkpoint_step)
        return;
    progress->newest = *news;
    (void)snprintf(progress->doing, sizeof progress->doing, "%s",
                   news->doing != NULL ? news->doing : "");
    progress->newest.doing = progress->doing;
    progress->is_waiting = true;
}

void shim_progress_repeat(struct shim *shim)
{
    for (uint32_t i = 0; i < shim->options.local_count; i++)
        if (shim->progress[i].newest.job_id != 0) /* it has told something */
            shim->progress[i].is_waiting = true;
}

static uint64_t due_us(const struct shim *shim, const struct shim_progress *progress)
{
    return progress->is_waiting && shim->launcher_open ? progress->next_us : UINT64_MAX;
}

void shim_progress_send(struct shim *shim, uint64_t now_us, uint32_t local,
                        struct shim_actions *actions)
{
    for (uint32_t i = 0; i < shim->options.local_count; i++) {
        struct shim_progress *progress = &shim->progress[i];
        uint64_t at_us = due_us(shim, progress);

        if (at_us == UINT64_MAX || (now_us < at_us && i != local))
            continue;
        progress->is_waiting = false;
        progress->next_us = now_us + INTERVAL_US;
        assert(actions->count < SHIM_ACTIONS_MAX);
        actions->items[actions->count++] = (struct shim_action){
            .type = SHIM_SEND_PROGRESS, .local = i, .progress = &progress->newest};
    }
}

uint64_t shim_progress_timer_us(const struct shim *shim)
{
    uint64_t at_us = UINT64_MAX;

    for (uint32_t i = 0; i < shim->options.local_count; i++)
        if (due_us(shim, &shim->progress[i]) < at_us)
            at_us = due_us(shim, &shim->progress[i]);
    return at_us;
}
