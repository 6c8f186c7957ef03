#include "launcherd/core/launcher_orders.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "launcherd/core/launcher_report.h"
#include "launcherd/core/launcher_seen.h"
#include "launcherd/core/launcher_shims.h"
#include "launcherd/core/launcher_silent.h"
#include "launcherd/core/launcher_slots.h"
#include "launcherd/core/launcher_table.h"

/* Describes who uses the slot. The server does not know shims that another server has started. */
static void describe_user(const struct launcher *launcher, const struct launcher_shim *shim,
                          uint64_t slot_mask, char *cause, size_t cause_bytes)
{
    const int slot = __builtin_ctzll(shim->slot_mask & slot_mask);
    const unsigned long long job = shim->job_id;

    if (launcher_is_ours(launcher, shim))
        (void)snprintf(cause, cause_bytes,
                       "slot %d of node %s is still used by job %llu, generation %u", slot,
                       launcher->options.name, job, shim->generation);
    else
        (void)snprintf(cause, cause_bytes,
                       "slot %d of node %s is used by job %llu of another server (cluster %s), "
                       "until its lease ends",
                       slot, launcher->options.name, job, shim->cluster);
}

/* True: `start` cannot be carried out, and `cause` says why. */
static bool start_is_refused(const struct launcher *launcher, const struct msg_start *start,
                             char *cause, size_t cause_bytes)
{
    uint32_t slots = launcher->options.slots;
    if (slots < 64 && start->slot_mask >> slots != 0) {
        (void)snprintf(cause, cause_bytes, "slots 0x%llx were ordered, node %s has %u",
                       (unsigned long long)start->slot_mask, launcher->options.name, slots);
        return true;
    }
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (!launcher_shim_is_active(shim) || (shim->slot_mask & start->slot_mask) == 0)
            continue;
        describe_user(launcher, shim, start->slot_mask, cause, cause_bytes);
        return true;
    }
    int closed = launcher_slots_first_closed(launcher, start->slot_mask);
    if (closed >= 0) {
        const struct launcher_slot *slot = &launcher->slots[closed];
        (void)snprintf(cause, cause_bytes, "slot %d of node %s is %s%s%s", closed,
                       launcher->options.name, slot_state_name(slot->state),
                       slot->reason[0] != '\0' ? ": " : "", slot->reason);
        return true;
    }
    return false;
}

/* Whether the numbers agree with one another. The decoder checks each one alone. */
static bool is_sound(const struct msg_start *start)
{
    return (uint32_t)__builtin_popcountll(start->slot_mask) == start->local_count &&
           start->rank_base + start->local_count <= start->world;
}

static void fill_entry(struct launcher_shim *shim, const struct msg_start *start)
{
    shim->job_id = start->job_id;
    shim->generation = start->generation;
    shim->phase = SHIM_PREPARING;
    shim->slot_mask = start->slot_mask;
    shim->rank_base = start->rank_base;
    shim->local_count = start->local_count;
    shim->grace_us = start->grace_us;
    shim->submitted_ms = start->submitted_ms;
    (void)snprintf(shim->cluster, sizeof shim->cluster, "%s", start->cluster);
}

/* Whether the shim, which has the number of that order, is of the same job. */
static bool is_of_job(const struct launcher *launcher, const struct launcher_shim *shim,
                      const struct msg_start *start)
{
    return launcher_is_ours(launcher, shim) &&
           (shim->submitted_ms == start->submitted_ms || shim->submitted_ms == 0 ||
            start->submitted_ms == 0);
}

void launcher_start(struct launcher *launcher, const struct launcher_event *event,
                    struct launcher_actions *actions)
{
    const struct msg_start *start = &event->msg->start;
    struct launcher_shim *shim = launcher_table_find(launcher, start->job_id, start->generation);
    const bool was_here =
        launcher_seen_has(launcher, start->cluster, start->job_id, start->generation);

    if (strcmp(start->cluster, launcher->cluster) != 0)
        return; /* not the cluster of this server's welcome */
    launcher_seen_note(launcher, start->cluster, start->job_id, start->generation, actions);
    if (shim != NULL && is_of_job(launcher, shim, start))
        return; /* a repeated order */
    if (shim != NULL && !shim->dead) {
        launcher_report_absent(actions, start->job_id, start->generation,
                               "another job with this number, of another server or of an earlier "
                               "state of this one, runs here");
        return;
    }
    if (shim == NULL && was_here) { /* its ranks may have run: each runs once in a generation */
        launcher_report_absent(
            actions, start->job_id, start->generation,
            "this node was told to start its part before, and nothing of that is "
            "here any more");
        return;
    }
    if (!is_sound(start)) {
        launcher_report_absent(actions, start->job_id, start->generation,
                               "its start order contradicts itself: slots, ranks and world do not "
                               "fit together");
        return;
    }
    if (shim != NULL)
        launcher_table_remove(launcher, shim, actions);
    char cause[REASON_BYTES_MAX];
    bool refused = start_is_refused(launcher, start, cause, sizeof cause);
    shim = launcher_table_add(launcher, actions);
    if (shim == NULL) {
        launcher_report_absent(actions, start->job_id, start->generation,
                               "this node has all the shims it can have");
        return;
    }
    fill_entry(shim, start);
    if (refused) {
        launcher_shim_set_dead(shim, event->now_us);
        launcher_shim_set_cause(shim, "%s", cause);
        launcher_log(actions, "start of job %llu, generation %u refused: %s",
                     (unsigned long long)start->job_id, start->generation, cause);
        launcher_report_dead(actions, shim, event->now_us);
        return;
    }
    shim->started_at_us = shim->heard_at_us = event->now_us;
    shim->ranks_left = UINT32_MAX;
    shim->ask_at_us = event->now_us + LAUNCHER_QUIET_US;
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SPAWN_SHIM,
                                                   .job_id = start->job_id,
                                                   .generation = start->generation,
                                                   .msg = *event->msg});
}

static void on_forget(struct launcher *launcher, struct launcher_shim *shim,
                      const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->dead || shim->unseen) {
        launcher_table_remove(launcher, shim, actions);
        return;
    }
    if (!shim->forgotten)
        shim->end_by_us = event->now_us + LAUNCHER_STOP_SLACK_US; /* the stop was carried out */
    shim->forgotten = true; /* passed on when it connects, if it is not connected now */
    if (shim->connected)
        launcher_send_shim(actions, shim, MSG_TYPE_FORGET)->forget = event->msg->forget;
}

static void on_report_ack(struct launcher_shim *shim, const struct launcher_event *event,
                          struct launcher_actions *actions)
{
    if (!shim->dead && shim->connected)
        launcher_send_shim(actions, shim, MSG_TYPE_REPORT_ACK)->report_ack = event->msg->report_ack;
    else if (shim->dead && event->msg->report_ack.revision > shim->acked)
        shim->acked = event->msg->report_ack.revision;
}

void launcher_order(struct launcher *launcher, const struct launcher_event *event, uint64_t job_id,
                    uint32_t generation, struct launcher_actions *actions)
{
    struct launcher_shim *shim = launcher_table_find(launcher, job_id, generation);
    if (!launcher->welcomed)
        return;
    if (shim != NULL && !launcher_is_ours(launcher, shim))
        shim = NULL; /* the same id, but a job of another server */
    /* A stop for an unknown shim: its start order was lost, or it ended and was forgotten. The
     * server waits for the end of every part before it starts the next generation, so it needs an
     * answer. */
    if (shim == NULL && event->msg->type == MSG_TYPE_STOP)
        launcher_report_absent(actions, job_id, generation, "this node does not know the job");
    if (shim == NULL)
        return;
    if (event->msg->type == MSG_TYPE_STOP && !shim->dead) {
        launcher_shim_end_by(shim,
                             event->now_us + event->msg->stop.grace_us + LAUNCHER_STOP_SLACK_US);
        launcher_silent_stop(shim, &event->msg->stop, event->now_us, actions);
    }
    if (event->msg->type == MSG_TYPE_FORGET) {
        on_forget(launcher, shim, event, actions);
    } else if (event->msg->type == MSG_TYPE_REPORT_ACK) {
        on_report_ack(shim, event, actions);
    } else if (shim->connected) {
        shim->got_go = shim->got_go || event->msg->type == MSG_TYPE_GO;
        launcher_send_shim(actions, shim, event->msg->type);
        actions->items[actions->count - 1].msg = *event->msg;
    }
}
