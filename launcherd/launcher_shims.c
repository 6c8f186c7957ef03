/* What the server orders about shims, and what becomes of them. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "launcherd/launcher_state.h"

#define CONNECT_FIRST_US 5000u
#define CONNECT_MAX_US 1000000u
/* The newest revision that there can be: nothing of the dead shim's own counts after it. */
#define REVISION_LAST UINT32_MAX

/* -- orders
 * ----------------------------------------------------------------------------------------- */

/* A new entry; NULL when the table is full, even of another server's dead. */
static struct launcher_shim *enter(struct launcher *launcher, struct launcher_actions *actions)
{
    for (uint32_t i = 0; launcher->shim_count == SHIMS_PER_NODE_MAX && i < launcher->shim_count;
         i++)
        if (launcher->shims[i].dead && !launcher_serves(launcher, &launcher->shims[i]))
            launcher_remove(launcher, &launcher->shims[i], actions);
    if (launcher->shim_count == SHIMS_PER_NODE_MAX)
        return NULL;
    struct launcher_shim *shim = &launcher->shims[launcher->shim_count++];
    memset(shim, 0, sizeof *shim);
    return shim;
}

/* Why `start` cannot be carried out; false: it can. */
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
        if (shim->dead || shim->phase == SHIM_ENDED || (shim->slot_mask & start->slot_mask) == 0)
            continue;
        (void)snprintf(cause, cause_bytes,
                       "slot %d of node %s is still held by job %llu, generation %u",
                       __builtin_ctzll(shim->slot_mask & start->slot_mask), launcher->options.name,
                       (unsigned long long)shim->job_id, shim->generation);
        return true;
    }
    int closed = launcher_slot_closed(launcher, start->slot_mask);
    if (closed >= 0) {
        const struct launcher_slot *slot = &launcher->slots[closed];
        (void)snprintf(cause, cause_bytes, "slot %d of node %s is %s%s%s", closed,
                       launcher->options.name, slot_state_word(slot->state),
                       slot->reason[0] != '\0' ? ": " : "", slot->reason);
        return true;
    }
    return false;
}

static void set_dead(struct launcher_shim *shim, uint64_t now_us)
{
    shim->dead = true;
    shim->connected = false;
    shim->connect_at_us = 0;
    shim->phase = SHIM_ENDED;
    shim->revision = REVISION_LAST;
    shim->acked = 0;
    shim->gone_at_us = now_us;
}

static void refuse_without_entry(const struct msg_start *start, struct launcher_actions *actions,
                                 const char *cause)
{
    struct msg_shim_report *report =
        &launcher_send_server(actions, MSG_TYPE_SHIM_REPORT)->shim_report;
    *report = (struct msg_shim_report){
        .job_id = start->job_id,
        .generation = start->generation,
        .revision = REVISION_LAST,
        .phase = SHIM_ENDED,
        .failed_rank = -1,
        .cause = cause,
        .tail = "",
    };
}

static void fill_entry(struct launcher_shim *shim, const struct msg_start *start)
{
    shim->job_id = start->job_id;
    shim->generation = start->generation;
    shim->phase = SHIM_PREPARING;
    shim->slot_mask = start->slot_mask;
    shim->rank_base = start->rank_base;
    shim->local_count = start->local_count;
    launcher_copy(shim->cluster, sizeof shim->cluster, start->cluster);
}

void launcher_start(struct launcher *launcher, const struct launcher_event *event,
                    struct launcher_actions *actions)
{
    const struct msg_start *start = &event->msg->start;
    struct launcher_shim *shim = launcher_find(launcher, start->job_id, start->generation);

    if (strcmp(start->cluster, launcher->cluster) != 0)
        return; /* the server contradicts its own welcome */
    if (shim != NULL && launcher_serves(launcher, shim))
        return; /* said again */
    if (shim != NULL && !shim->dead) {
        refuse_without_entry(start, actions,
                             "a job of another server, with this number, runs here");
        return;
    }
    if (shim != NULL)
        launcher_remove(launcher, shim, actions);
    char cause[REASON_BYTES_MAX];
    bool refused = start_is_refused(launcher, start, cause, sizeof cause);
    shim = enter(launcher, actions);
    if (shim == NULL) {
        refuse_without_entry(start, actions, "this node has all the shims it can have");
        return;
    }
    fill_entry(shim, start);
    if (refused) {
        set_dead(shim, event->now_us);
        launcher_copy(shim->cause, sizeof shim->cause, cause);
        launcher_note(actions, "start of job %llu, generation %u refused: %s",
                      (unsigned long long)start->job_id, start->generation, cause);
        launcher_report_dead(actions, shim, event->now_us);
        return;
    }
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SPAWN_SHIM,
                                                   .job_id = start->job_id,
                                                   .generation = start->generation,
                                                   .msg = *event->msg});
}

static void on_forget(struct launcher *launcher, struct launcher_shim *shim,
                      const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->dead) {
        launcher_remove(launcher, shim, actions);
        return;
    }
    shim->forgotten = true; /* told when it connects, if it is not connected now */
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

/* A stop for what is not known here has come true already: its start order was lost, or it was
 * forgotten. The server waits for the end of every part before it starts the next generation. */
static void answer_unknown_stop(struct launcher_actions *actions, const struct msg_stop *stop)
{
    launcher_send_server(actions, MSG_TYPE_SHIM_REPORT)->shim_report = (struct msg_shim_report){
        .job_id = stop->job_id,
        .generation = stop->generation,
        .revision = REVISION_LAST,
        .phase = SHIM_ENDED,
        .failed_rank = -1,
        .cause = "this node does not know the job",
        .tail = "",
    };
}

/* An order to one shim: job_id and generation stand first in each of these messages. */
void launcher_order(struct launcher *launcher, const struct launcher_event *event, uint64_t job_id,
                    uint32_t generation, struct launcher_actions *actions)
{
    struct launcher_shim *shim = launcher_find(launcher, job_id, generation);
    if (shim == NULL && launcher->welcomed && event->msg->type == MSG_TYPE_STOP)
        answer_unknown_stop(actions, &event->msg->stop);
    if (shim == NULL || !launcher->welcomed || !launcher_serves(launcher, shim))
        return;
    if (event->msg->type == MSG_TYPE_FORGET) {
        on_forget(launcher, shim, event, actions);
    } else if (event->msg->type == MSG_TYPE_REPORT_ACK) {
        on_report_ack(shim, event, actions);
    } else if (shim->connected) {
        launcher_send_shim(actions, shim, event->msg->type);
        actions->items[actions->count - 1].msg = *event->msg;
    }
}

/* -- the shims
 * ----------------------------------------------------------------------------------------- */

static void keep_end(struct launcher_shim *shim, const struct msg_shim_report *report,
                     uint64_t now_us)
{
    struct launcher_end *end = &shim->end;
    if (report->phase != SHIM_ENDED || report->ranks.count > SLOTS_PER_NODE_MAX)
        return;
    end->is_known = true;
    end->failed_rank = report->failed_rank;
    end->failed_errno_exit = report->failed_errno_exit;
    end->failed_at_us = now_us > report->failed_age_us ? now_us - report->failed_age_us : 0;
    end->rank_count = report->ranks.count;
    if (report->ranks.count > 0)
        memcpy(end->ranks, report->ranks.items, report->ranks.count * sizeof end->ranks[0]);
    launcher_copy(end->tail, sizeof end->tail, report->tail);
    launcher_copy(shim->cause, sizeof shim->cause, report->cause);
}

/* `how`: "was killed (signal 9)". What it had recorded itself about the end of its workers counts
 * more than the way in which it went. */
static void bury(const struct launcher *launcher, struct launcher_shim *shim,
                 const struct launcher_event *event)
{
    if (shim->dead)
        return;
    set_dead(shim, event->now_us);
    (void)snprintf(shim->cause, sizeof shim->cause, "the shim of job %llu on %s %s",
                   (unsigned long long)shim->job_id, launcher->options.name,
                   event->text != NULL ? event->text : "is gone");
    if (event->msg != NULL && event->msg->type == MSG_TYPE_SHIM_REPORT)
        keep_end(shim, &event->msg->shim_report, event->now_us);
}

void launcher_adopt(struct launcher *launcher, const struct launcher_event *event,
                    struct launcher_actions *actions)
{
    if (launcher_find(launcher, event->shim->job_id, event->shim->generation) != NULL)
        return; /* a second directory of the same name cannot be */
    struct launcher_shim *shim = enter(launcher, actions);
    if (shim == NULL)
        return;
    *shim = *event->shim;
    shim->connected = false;
    shim->dead = false;
    shim->reported = false;
    shim->connect_at_us = 0;
    shim->connect_failures = 0;
    shim->end.is_known = false;
    if (!event->alive) {
        bury(launcher, shim, event);
        return;
    }
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_CONNECT_SHIM,
                                                   .job_id = shim->job_id,
                                                   .generation = shim->generation});
}

static void on_shim_open(struct launcher *launcher, struct launcher_shim *shim,
                         const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->dead)
        return;
    shim->connected = true;
    shim->connect_at_us = 0;
    shim->connect_failures = 0;
    shim->reported = false;
    shim->phase = event->msg->shim_hello.phase;
    if (!launcher_serves(launcher, shim) || launcher->cluster[0] == '\0')
        return;
    if (launcher->lease_until_us != 0)
        launcher_send_shim(actions, shim, MSG_TYPE_LEASE)->lease.until_us =
            launcher->lease_until_us;
    if (shim->forgotten) {
        struct msg_forget *forget = &launcher_send_shim(actions, shim, MSG_TYPE_FORGET)->forget;
        forget->job_id = shim->job_id;
        forget->generation = shim->generation;
    }
}

static void on_shim_msg(struct launcher *launcher, struct launcher_shim *shim,
                        const struct launcher_event *event, struct launcher_actions *actions)
{
    const struct msg *msg = event->msg;
    if (shim->dead)
        return;
    if (msg->type == MSG_TYPE_SHIM_REPORT)
        shim->phase = msg->shim_report.phase;
    else if (msg->type != MSG_TYPE_PROGRESS)
        return;
    if (!launcher->welcomed || !launcher_serves(launcher, shim))
        return;
    if (msg->type == MSG_TYPE_SHIM_REPORT)
        shim->reported = true;
    launcher_send_server(actions, msg->type);
    actions->items[actions->count - 1].msg = *msg;
}

static void on_shim_closed(struct launcher_shim *shim, uint64_t now_us)
{
    if (shim->dead)
        return;
    uint64_t delay_us = CONNECT_MAX_US;
    if (shim->connect_failures < 7)
        delay_us = (uint64_t)CONNECT_FIRST_US << shim->connect_failures;
    shim->connect_failures++;
    shim->connected = false;
    shim->connect_at_us = now_us + delay_us;
}

static void on_shim_gone(struct launcher *launcher, struct launcher_shim *shim,
                         const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->forgotten) {
        launcher_remove(launcher, shim, actions);
        return;
    }
    bury(launcher, shim, event);
    launcher_note(actions, "job %llu, generation %u: %s", (unsigned long long)shim->job_id,
                  shim->generation,
                  shim->cause[0] != '\0' ? shim->cause : "its shim is gone, after the end");
    if (launcher->welcomed && launcher_serves(launcher, shim))
        launcher_report_dead(actions, shim, event->now_us);
}

static void on_shim_failed(struct launcher *launcher, struct launcher_shim *shim,
                           const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->dead)
        return;
    set_dead(shim, event->now_us);
    launcher_copy(shim->cause, sizeof shim->cause, event->text);
    if (shim->forgotten)
        launcher_remove(launcher, shim, actions);
    else if (launcher->welcomed && launcher_serves(launcher, shim))
        launcher_report_dead(actions, shim, event->now_us);
}

void launcher_on_shim(struct launcher *launcher, const struct launcher_event *event,
                      struct launcher_actions *actions)
{
    struct launcher_shim *shim = launcher_find(launcher, event->job_id, event->generation);
    if (shim == NULL)
        return;
    if (event->type == LAUNCHER_EVENT_SHIM_OPEN)
        on_shim_open(launcher, shim, event, actions);
    else if (event->type == LAUNCHER_EVENT_SHIM_MSG)
        on_shim_msg(launcher, shim, event, actions);
    else if (event->type == LAUNCHER_EVENT_SHIM_CLOSED)
        on_shim_closed(shim, event->now_us);
    else if (event->type == LAUNCHER_EVENT_SHIM_FAILED)
        on_shim_failed(launcher, shim, event, actions);
    else
        on_shim_gone(launcher, shim, event, actions);
}
