/* Actions, and the messages in which launcherd says what is on this node. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "launcherd/launcher_state.h"

void launcher_copy(char *to, size_t to_bytes, const char *from)
{
    (void)snprintf(to, to_bytes, "%s", from);
}

struct launcher_action *launcher_add(struct launcher_actions *actions,
                                     struct launcher_action action)
{
    assert(actions->count < LAUNCHER_ACTIONS_MAX);
    actions->items[actions->count] = action;
    return &actions->items[actions->count++];
}

struct msg *launcher_send_server(struct launcher_actions *actions, enum msg_type type)
{
    return &launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SEND_SERVER,
                                                           .msg = {.type = type}})
                ->msg;
}

struct msg *launcher_send_shim(struct launcher_actions *actions, const struct launcher_shim *shim,
                               enum msg_type type)
{
    return &launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SEND_SHIM,
                                                           .job_id = shim->job_id,
                                                           .generation = shim->generation,
                                                           .msg = {.type = type}})
                ->msg;
}

void launcher_note(struct launcher_actions *actions, const char *format, ...)
{
    if (actions->text_count == LAUNCHER_TEXTS_MAX)
        return;
    char *text = actions->texts[actions->text_count++];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof actions->texts[0], format, args);
    va_end(args);
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_LOG, .text = text});
}

struct launcher_shim *launcher_find(struct launcher *launcher, uint64_t job_id, uint32_t generation)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (launcher->shims[i].job_id == job_id && launcher->shims[i].generation == generation)
            return &launcher->shims[i];
    return NULL;
}

bool launcher_serves(const struct launcher *launcher, const struct launcher_shim *shim)
{
    return launcher->cluster[0] == '\0' || strcmp(launcher->cluster, shim->cluster) == 0;
}

void launcher_remove(struct launcher *launcher, struct launcher_shim *shim,
                     struct launcher_actions *actions)
{
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_REMOVE,
                                                   .job_id = shim->job_id,
                                                   .generation = shim->generation});
    struct launcher_shim *last = &launcher->shims[--launcher->shim_count];
    if (shim != last)
        *shim = *last;
}

uint32_t launcher_list(const struct launcher *launcher, struct part_beat_shim *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (!launcher_serves(launcher, shim))
            continue;
        out[count++] = (struct part_beat_shim){
            .job_id = shim->job_id,
            .generation = shim->generation,
            .phase = shim->phase,
            .slot_mask = shim->dead ? 0 : shim->slot_mask,
        };
    }
    return count;
}

static void rank_list(const struct launcher_shim *shim, struct part_report_rank *ranks)
{
    if (shim->end.is_known) {
        memcpy(ranks, shim->end.ranks, shim->end.rank_count * sizeof ranks[0]);
        return;
    }
    for (uint32_t i = 0; i < shim->local_count; i++)
        ranks[i] = (struct part_report_rank){.rank = shim->rank_base + i, .state = RANK_LOST};
}

void launcher_report_dead(struct launcher_actions *actions, const struct launcher_shim *shim,
                          uint64_t now_us)
{
    assert(actions->rank_rows < SHIMS_PER_NODE_MAX);
    struct part_report_rank *ranks = actions->ranks[actions->rank_rows++];
    uint64_t at_us = shim->end.is_known ? shim->end.failed_at_us : shim->gone_at_us;
    uint64_t age_us = now_us > at_us ? now_us - at_us : 0;

    rank_list(shim, ranks);
    struct msg_shim_report *report =
        &launcher_send_server(actions, MSG_TYPE_SHIM_REPORT)->shim_report;
    *report = (struct msg_shim_report){
        .job_id = shim->job_id,
        .generation = shim->generation,
        .revision = shim->revision,
        .phase = SHIM_ENDED,
        .failed_rank = shim->end.is_known ? shim->end.failed_rank : -1,
        .failed_age_us = age_us < DURATION_US_MAX ? age_us : DURATION_US_MAX,
        .failed_errno_exit = shim->end.is_known ? shim->end.failed_errno_exit : 0,
        .cause = shim->cause,
        .tail = shim->end.is_known ? shim->end.tail : "",
    };
    report->ranks.items = ranks;
    report->ranks.count = shim->end.is_known ? shim->end.rank_count : shim->local_count;
}

static void report_all_dead(struct launcher *launcher, uint64_t now_us,
                            struct launcher_actions *actions)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (shim->dead && shim->acked < shim->revision && launcher_serves(launcher, shim))
            launcher_report_dead(actions, shim, now_us);
    }
}

/* Shims that have not spoken since the welcome are asked, again at each beat: a request may get
 * lost. */
static void request_reports(const struct launcher *launcher, struct launcher_actions *actions)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (shim->connected && !shim->reported && launcher_serves(launcher, shim))
            launcher_send_shim(actions, shim, MSG_TYPE_REPORT_REQUEST)->report_request.all = true;
    }
}

void launcher_beat(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions)
{
    struct msg_beat *msg = &launcher_send_server(actions, MSG_TYPE_BEAT)->beat;
    msg->sent_us = now_us;
    msg->shims.count = launcher_list(launcher, actions->beat_shims);
    msg->shims.items = actions->beat_shims;
    msg->closed.count = launcher_list_closed(launcher, actions->closed);
    msg->closed.items = actions->closed;
    launcher->slots_changed = false;
    request_reports(launcher, actions);
    report_all_dead(launcher, now_us, actions);
    launcher->beat_at_us = now_us + launcher->beat_interval_us;
}
