#include "launcherd/core/launcher_shims.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "launcherd/core/fault.h"
#include "launcherd/core/launcher_due.h"
#include "launcherd/core/launcher_report.h"
#include "launcherd/core/launcher_seen.h"
#include "launcherd/core/launcher_silent.h"
#include "launcherd/core/launcher_slots.h"
#include "launcherd/core/launcher_table.h"

#define CONNECT_FIRST_US 5000u
#define CONNECT_MAX_US 1000000u

static void store_end(struct launcher_shim *shim, const struct msg_shim_report *report,
                      uint64_t now_us)
{
    struct launcher_end *end = &shim->end;
    assert(report->ranks.count <= SLOTS_PER_NODE_MAX); /* checked by the decoder */
    if (report->phase != SHIM_ENDED)
        return;
    end->is_known = true;
    end->failed_rank = report->failed_rank;
    end->failed_errno_exit = report->failed_errno_exit;
    end->failed_class = report->failed_class;
    end->failed_at_us = now_us > report->failed_age_us ? now_us - report->failed_age_us : 0;
    end->rank_count = report->ranks.count;
    if (report->ranks.count > 0)
        memcpy(end->ranks, report->ranks.items, report->ranks.count * sizeof end->ranks[0]);
    (void)snprintf(end->tail, sizeof end->tail, "%s", report->tail);
    (void)snprintf(end->error, sizeof end->error, "%s", report->error);
    end->failed_oom = report->failed_oom;
    end->failed_by_peer = report->failed_by_peer;
    (void)snprintf(end->failed_core, sizeof end->failed_core, "%s", report->failed_core);
    (void)snprintf(end->notice, sizeof end->notice, "%s", report->notice);
    (void)snprintf(shim->cause, sizeof shim->cause, "%s", report->cause);
}

/* If the shim has told or stored a last report, the cause is taken from it; otherwise the cause is how its process
 * ended. */
static void on_death(const struct launcher *launcher, struct launcher_shim *shim,
                     const struct launcher_event *event)
{
    if (shim->dead)
        return;
    launcher_shim_set_dead(shim, event->now_us);
    shim->gone_age_us = event->age_us;
    if (shim->end.is_known)
        return;
    launcher_shim_set_cause(
        shim, "the shim of job %llu on %s %s%s%s", (unsigned long long)shim->job_id,
        launcher->options.name, event->text != NULL ? event->text : "is gone",
        shim->kill_why != NULL ? ": " : "", shim->kill_why != NULL ? shim->kill_why : "");
    if (event->msg != NULL && event->msg->type == MSG_TYPE_SHIM_REPORT)
        store_end(shim, &event->msg->shim_report, event->now_us);
}

void launcher_adopt(struct launcher *launcher, const struct launcher_event *event,
                    struct launcher_actions *actions)
{
    launcher_seen_note(launcher, event->shim->cluster, event->shim->job_id, event->shim->generation,
                       actions);
    if (launcher_table_find(launcher, event->shim->job_id, event->shim->generation) != NULL)
        return;
    struct launcher_shim *shim = launcher_table_add(launcher, actions);
    if (shim == NULL) {
        launcher_log(
            actions,
            "job %llu, generation %u is not adopted: this node has %u shims, as many as it "
            "can have",
            (unsigned long long)event->shim->job_id, event->shim->generation, SHIMS_PER_NODE_MAX);
        return;
    }
    *shim = *event->shim;
    shim->adopted = true;
    shim->unwatched = shim->unseen = event->is_unseen;
    shim->revision = 0;
    shim->acked = 0;
    shim->connected = false;
    shim->dead = false;
    shim->reported = false;
    shim->connect_at_us = 0;
    shim->connect_failures = 0;
    shim->started_at_us = shim->foreign_until_us = shim->take_by_us = 0;
    shim->ask_at_us = event->now_us + LAUNCHER_QUIET_US;
    shim->asks = 0;
    shim->is_met = false; /* its phase is not known before its hello */
    shim->heard_at_us = event->now_us;
    shim->is_silent = shim->is_told = false;
    shim->stop_by_us = shim->look_at_us = 0;
    shim->ranks_left = UINT32_MAX;
    shim->is_held = shim->got_go = shim->ends_lease = false;
    shim->warm_late = false;
    shim->end_by_us = 0;
    shim->killed_at_us = 0;
    shim->kill_why = NULL;
    shim->end.is_known = false;
    if (!event->alive) {
        on_death(launcher, shim, event);
        return;
    }
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_CONNECT_SHIM,
                                                   .job_id = shim->job_id,
                                                   .generation = shim->generation});
}

/* Phases of a shim only advance, whatever its messages contain: one that has ended never uses its
 * slots again. */
static void set_phase(struct launcher_shim *shim, enum shim_phase phase)
{
    if (phase > shim->phase)
        shim->phase = phase;
}

/* It goes on. */
static void heard(struct launcher_shim *shim, uint64_t now_us, struct launcher_actions *actions)
{
    launcher_silent_heard(shim, now_us, actions);
    shim->asks = 0;
    shim->ask_at_us = now_us + LAUNCHER_QUIET_US;
}

static void on_shim_open(struct launcher *launcher, struct launcher_shim *shim,
                         const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->dead)
        return;
    shim->connected = true;
    shim->connect_at_us = 0;
    shim->take_by_us = 0;
    shim->reported = false;
    set_phase(shim, event->msg->shim_hello.phase);
    shim->is_held = false;
    shim->is_met = true;
    shim->ends_lease = shim->ends_lease || event->msg->shim_hello.lease_over;
    shim->unseen = false;
    heard(shim, event->now_us, actions);
    if (shim->started_at_us == 0 && shim->phase == SHIM_PREPARING)
        shim->started_at_us = event->now_us;
    if (!launcher_is_ours(launcher, shim) || launcher->cluster[0] == '\0')
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
    heard(shim, event->now_us, actions);
    if (msg->type == MSG_TYPE_SHIM_HELLO)
        shim->ends_lease = shim->ends_lease || msg->shim_hello.lease_over;
    if (msg->type == MSG_TYPE_SHIM_REPORT) {
        set_phase(shim, msg->shim_report.phase);
        store_end(shim, &msg->shim_report, event->now_us);
    } else if (msg->type != MSG_TYPE_PROGRESS)
        return;
    shim->connect_failures = 0; /* a hello alone is no reason to call it often */
    if (!launcher->welcomed || !launcher_is_ours(launcher, shim))
        return;
    if (msg->type == MSG_TYPE_SHIM_REPORT)
        shim->reported = true;
    launcher_send_server(actions, msg->type);
    actions->items[actions->count - 1].msg = *msg;
    if (msg->type == MSG_TYPE_SHIM_REPORT && shim->warm_late)
        actions->items[actions->count - 1].msg.shim_report.warm_late = true;
}

static void on_shim_closed(struct launcher *launcher, struct launcher_shim *shim, uint64_t now_us,
                           struct launcher_actions *actions)
{
    if (shim->dead)
        return;
    if (shim->unwatched && shim->forgotten) {
        launcher_table_remove(launcher, shim, actions);
        return;
    }
    shim->unseen = shim->unwatched && shim->phase != SHIM_ENDED;
    uint64_t delay_us = CONNECT_MAX_US;
    if (shim->connect_failures < 7)
        delay_us = (uint64_t)CONNECT_FIRST_US << shim->connect_failures;
    shim->connect_failures++;
    shim->connected = false;
    shim->connect_at_us = now_us + delay_us;
}

/* A warm process ended or was killed before it said hello: nothing of the job has begun, so another
 * one is started. */
static void start_again(struct launcher_shim *shim, uint64_t now_us,
                        struct launcher_actions *actions)
{
    shim->warm_late = true;
    shim->take_by_us = shim->killed_at_us = shim->connect_at_us = 0;
    shim->kill_why = NULL;
    shim->connect_failures = 0;
    shim->connected = false;
    shim->started_at_us = now_us;
    heard(shim, now_us, actions);
    launcher_log(actions,
                 "job %llu, generation %u: the process that was warm for it has not become its "
                 "shim; another one is started",
                 (unsigned long long)shim->job_id, shim->generation);
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SPAWN_AGAIN,
                                                   .job_id = shim->job_id,
                                                   .generation = shim->generation});
}

static void on_shim_gone(struct launcher *launcher, struct launcher_shim *shim,
                         const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->forgotten) {
        launcher_table_remove(launcher, shim, actions);
        return;
    }
    if (shim->take_by_us != 0 && shim->end_by_us == 0 && !shim->dead && launcher->welcomed &&
        launcher_is_ours(launcher, shim)) {
        start_again(shim, event->now_us, actions);
        return;
    }
    on_death(launcher, shim, event);
    launcher_log(actions, "job %llu, generation %u: %s", (unsigned long long)shim->job_id,
                 shim->generation,
                 shim->cause[0] != '\0' ? shim->cause : "its shim has exited after the end");
    if (launcher->welcomed && launcher_is_ours(launcher, shim))
        launcher_report_dead(actions, shim, event->now_us);
}

static void on_shim_failed(struct launcher *launcher, struct launcher_shim *shim,
                           const struct launcher_event *event, struct launcher_actions *actions)
{
    if (shim->dead)
        return;
    launcher_shim_set_dead(shim, event->now_us);
    launcher_shim_set_cause(shim, "%s", event->text);
    if (shim->forgotten)
        launcher_table_remove(launcher, shim, actions);
    else if (launcher->welcomed && launcher_is_ours(launcher, shim))
        launcher_report_dead(actions, shim, event->now_us);
}

static void on_shim_exited(struct launcher_shim *shim, uint64_t now_us)
{
    if (shim->killed_at_us == 0)
        shim->killed_at_us = now_us;
}

void launcher_on_shim(struct launcher *launcher, const struct launcher_event *event,
                      struct launcher_actions *actions)
{
    struct launcher_shim *shim = launcher_table_find(launcher, event->job_id, event->generation);
    if (shim == NULL)
        return;
    if (event->type == LAUNCHER_EVENT_SHIM_HELD) {
        shim->is_held = true;
        heard(shim, event->now_us, actions);
    } else if (event->type == LAUNCHER_EVENT_SHIM_WARM)
        shim->take_by_us = event->now_us + LAUNCHER_TAKE_US;
    else if (event->type == LAUNCHER_EVENT_SHIM_OPEN)
        on_shim_open(launcher, shim, event, actions);
    else if (event->type == LAUNCHER_EVENT_SHIM_MSG)
        on_shim_msg(launcher, shim, event, actions);
    else if (event->type == LAUNCHER_EVENT_SHIM_CLOSED)
        on_shim_closed(launcher, shim, event->now_us, actions);
    else if (event->type == LAUNCHER_EVENT_SHIM_LOOKED)
        launcher_silent_looked(shim, event, actions);
    else if (event->type == LAUNCHER_EVENT_SHIM_EXITED)
        on_shim_exited(shim, event->now_us);
    else if (event->type == LAUNCHER_EVENT_SHIM_FAILED)
        on_shim_failed(launcher, shim, event, actions);
    else
        on_shim_gone(launcher, shim, event, actions);
}

void launcher_shims_connect(struct launcher *launcher, uint64_t now_us,
                            struct launcher_actions *actions)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        struct launcher_shim *shim = &launcher->shims[i];
        if (shim->connect_at_us == 0 || now_us < shim->connect_at_us)
            continue;
        shim->connect_at_us = 0;
        launcher_add(actions, (struct launcher_action){.type = LAUNCHER_CONNECT_SHIM,
                                                       .job_id = shim->job_id,
                                                       .generation = shim->generation});
    }
}

/* -- shims that do not carry out what they were told -- */

static uint64_t ask_again_us(const struct launcher_shim *shim)
{
    return launcher_silent_is_to_stop(shim) ? LAUNCHER_STOP_ASK_US : LAUNCHER_ASK_US;
}

/* One that is not connected counts as asked, too. A question leaves in a step of its own each time, so a launcherd
 * that was stopped itself reads the answers before it counts on. */
void launcher_shims_ask(struct launcher *launcher, uint64_t now_us,
                        struct launcher_actions *actions)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        struct launcher_shim *shim = &launcher->shims[i];

        if (!launcher_due_is_asked(launcher, shim) || now_us < shim->ask_at_us)
            continue;
        if (shim->asks < launcher_due_asks_max(shim)) {
            shim->asks++;
            shim->ask_at_us = now_us + ask_again_us(shim);
            if (shim->connected)
                launcher_send_shim(actions, shim, MSG_TYPE_REPORT_REQUEST);
        } else if (!launcher_due_is_watched(launcher, shim)) {
            launcher_silent_begin(shim, now_us, actions);
        }
    }
}

void launcher_shim_end_by(struct launcher_shim *shim, uint64_t at_us)
{
    if (shim->end_by_us == 0 || at_us < shim->end_by_us)
        shim->end_by_us = at_us;
}

/* Gives up a shim whose processes cannot be killed. The server gets its report, so that the job can
 * go on elsewhere. A GPU that may still have its processes is drained; a CPU slot is free again. */
static void give_up(struct launcher *launcher, struct launcher_shim *shim, uint64_t now_us,
                    struct launcher_actions *actions)
{
    static const struct fault fault = {.action = FAULT_DRAIN_RESTART};
    const bool has_ended = shim->phase == SHIM_ENDED; /* then the shim itself is all that is left */
    char what[128];

    (void)snprintf(what, sizeof what, "%s of job %llu do%s not die of SIGKILL",
                   has_ended ? "the shim" : "processes", (unsigned long long)shim->job_id,
                   has_ended ? "es" : "");
    for (uint32_t i = 0; !has_ended && i < launcher_slots_with_gpu(launcher); i++)
        if ((shim->slot_mask >> i & 1) != 0)
            launcher_slot_drain(launcher, i, &fault, what, now_us, actions);
    launcher_shim_set_dead(shim, now_us);
    if (!shim->end.is_known)
        launcher_shim_set_cause(shim, "%s on %s, and are left alone", what, launcher->options.name);
    launcher_log(actions, "generation %u: %s on %s, and %s left alone", shim->generation, what,
                 launcher->options.name, has_ended ? "is" : "are");
    if (launcher->welcomed && launcher_is_ours(launcher, shim))
        launcher_report_dead(actions, shim, now_us);
    if (shim->forgotten)
        launcher_table_remove(launcher, shim, actions);
}

void launcher_shims_enforce(struct launcher *launcher, uint64_t now_us,
                            struct launcher_actions *actions)
{
    const char *why;

    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        struct launcher_shim *shim = &launcher->shims[i];
        if (now_us < launcher_due_us(launcher, shim, &why))
            continue;
        if (shim->killed_at_us != 0) {
            give_up(launcher, shim, now_us, actions);
            return; /* the table may have changed: the others follow in the next step, at once */
        }
        shim->killed_at_us = now_us;
        shim->kill_why = why;
        launcher_add(actions, (struct launcher_action){.type = LAUNCHER_KILL_SHIM,
                                                       .job_id = shim->job_id,
                                                       .generation = shim->generation,
                                                       .text = why});
    }
}

/* When a dead shim of another server is forgotten; UINT64_MAX: never. Our own server says itself what it does not
 * know any more. */
static uint64_t forget_us(const struct launcher *launcher, const struct launcher_shim *shim)
{
    const uint64_t keep_us = launcher->options.keep_us;

    if (keep_us == 0 || !shim->dead || launcher_is_ours(launcher, shim))
        return UINT64_MAX;
    return shim->gone_at_us + (shim->gone_age_us < keep_us ? keep_us - shim->gone_age_us : 0);
}

/* One in a step: the others follow at once. */
void launcher_shims_forget(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        struct launcher_shim *shim = &launcher->shims[i];
        if (now_us < forget_us(launcher, shim))
            continue;
        launcher_log(actions,
                     "job %llu, generation %u, of another server (cluster %s) ended long ago: "
                     "forgotten",
                     (unsigned long long)shim->job_id, shim->generation, shim->cluster);
        launcher_table_remove(launcher, shim, actions);
        return;
    }
}

uint64_t launcher_shims_timer_us(const struct launcher *launcher)
{
    const char *why;
    uint64_t at_us = UINT64_MAX;
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        uint64_t own_us = launcher_due_us(launcher, shim, &why);
        if (own_us < at_us)
            at_us = own_us;
        own_us = forget_us(launcher, shim);
        if (own_us < at_us)
            at_us = own_us;
        if (shim->connect_at_us != 0 && shim->connect_at_us < at_us)
            at_us = shim->connect_at_us;
        if (launcher_due_is_asked(launcher, shim) && shim->ask_at_us < at_us &&
            (shim->asks < launcher_due_asks_max(shim) || !launcher_due_is_watched(launcher, shim)))
            at_us = shim->ask_at_us;
        own_us = launcher_silent_look_us(shim);
        if (own_us < at_us)
            at_us = own_us;
    }
    return at_us;
}
