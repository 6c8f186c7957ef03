#include "launcherd/core/launcher.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/msg_version.h"
#include "launcherd/core/launcher_beat.h"
#include "launcherd/core/launcher_check.h"
#include "launcherd/core/launcher_evaluate.h"
#include "launcherd/core/launcher_leave.h"
#include "launcherd/core/launcher_orders.h"
#include "launcherd/core/launcher_seen.h"
#include "launcherd/core/launcher_shims.h"
#include "launcherd/core/launcher_silent.h"
#include "launcherd/core/launcher_slots.h"
#include "launcherd/core/launcher_table.h"

#define RETRY_FIRST_US 5000u
#define RETRY_BASE_US 10000u
#define RETRY_MAX_US 1000000u
/* The retry interval if the reason does not go away by itself: short enough for the person who
 * repairs it. */
#define RETRY_REFUSED_US 30000000u
/* How long "busy" may be answered: the server may still count an earlier connection of this node,
 * because a network failure hid its end, until that connection has missed its beats. */
#define BUSY_MAX_US NODE_LOST_US
#define SILENT_BEATS 5u
/* The longest pause after connections that do not hold: the server does not count this node as silent yet, so it sees
 * that orders are not carried out, and not that a node is away. */
#define PAUSE_BEATS 3u
/* While the lead moves to another server, all servers refuse this node: each attempt may be the
 * first that finds the new leader. */
#define RETRY_STANDBY_MAX_US 500000u
#define REFERRALS_FOLLOWED_AT_ONCE 2u /* the last leader is still named for a while */

void launcher_init(struct launcher *launcher, const struct launcher_options *options)
{
    assert(options->slots >= 1 && options->slots <= SLOTS_PER_NODE_MAX);
    assert(options->gpus <= SLOTS_PER_NODE_MAX && options->gpu_timeout_us > 0);
    /* Not the table of shims: its pages are touched only as entries are added. */
    memset(launcher, 0, offsetof(struct launcher, shims));
    launcher->options = *options;
    launcher->retry_at_us = UINT64_MAX;
    launcher->beat_at_us = UINT64_MAX;
    launcher->silent_at_us = UINT64_MAX;
    launcher->random = options->seed;
}

/* splitmix64, Steele et al. 2014 */
static uint64_t draw(struct launcher *launcher)
{
    uint64_t z = launcher->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

const struct launcher_shim *launcher_find(const struct launcher *launcher, uint64_t job_id,
                                          uint32_t generation)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (launcher->shims[i].job_id == job_id && launcher->shims[i].generation == generation)
            return &launcher->shims[i];
    return NULL;
}

static void on_server_open(struct launcher *launcher, const struct launcher_event *event,
                           struct launcher_actions *actions)
{
    const uint64_t now_us = event->now_us;

    if (event->text != NULL)
        (void)snprintf(launcher->options.address, sizeof launcher->options.address, "%s",
                       event->text);
    launcher->server_open = true;
    launcher->welcomed = launcher->referred = false;
    launcher->was_away = launcher->was_away || event->is_other_server;
    launcher->hello_at_us = now_us;
    launcher->retry_at_us = UINT64_MAX;
    launcher->silent_at_us = now_us + HELLO_TIMEOUT_US;
    launcher_hello(launcher, now_us, actions);
}

static bool has_living_shim(const struct launcher *launcher)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (!launcher->shims[i].dead)
            return true;
    return false;
}

/* The server refuses this node and will go on refusing it until a person acts. Without jobs here
 * the process ends, so that whoever started it notices. With jobs it stays: they run until their
 * lease ends, and the problem may be repaired before that. A service stays too: nobody starts it
 * again when the server has been upgraded, or has its keys again. */
static void on_refused(struct launcher *launcher, const char *why, struct launcher_actions *actions)
{
    const bool has_jobs = has_living_shim(launcher);

    if (!has_jobs && !launcher->options.keeps_trying) {
        (void)snprintf(actions->end_text, sizeof actions->end_text, "%s", why);
        launcher_add(actions,
                     (struct launcher_action){.type = LAUNCHER_END, .text = actions->end_text});
    } else if (!launcher->refused) {
        launcher_log(actions, "%s", why);
        launcher_log(actions, "trying again every %u s%s", RETRY_REFUSED_US / 1000000u,
                     has_jobs ? ": the jobs here go on until their lease ends" : "");
    }
    launcher->refused = true;
}

/* The server answers the hello with an error. */
static void on_hello_error(struct launcher *launcher, const struct msg_error *error,
                           uint64_t now_us, struct launcher_actions *actions)
{
    char why[LAUNCHER_END_BYTES];
    const bool is_busy = strcmp(error->code, "busy") == 0;

    launcher->busy = is_busy;
    (void)snprintf(why, sizeof why, "the server does not take node %s: %s%s%s",
                   launcher->options.name, error->message, error->hint[0] != '\0' ? "; " : "",
                   error->hint);
    if (is_busy && launcher->busy_at_us == 0) {
        launcher->busy_at_us = now_us;
        launcher_log(actions, "%s", why);
        launcher_log(actions, "trying again for %u s: it may be an earlier connection of this node",
                     BUSY_MAX_US / 1000000u);
    }
    /* The answer says how things were when the hello left: this process may have been stopped since. */
    if (is_busy ? launcher->hello_at_us >= launcher->busy_at_us + BUSY_MAX_US
                : strcmp(error->code, "refused") == 0 || strcmp(error->code, "bad_request") == 0)
        on_refused(launcher, why, actions);
    else if (!is_busy && launcher->failures <= 1)
        launcher_log(actions, "%s", why); /* logged once in a series */
}

/* The server is a standby: the edge connects to the leader that it names, if any. */
static void on_refer(struct launcher *launcher, const struct msg_refer *refer,
                     struct launcher_actions *actions)
{
    launcher->referred = true;
    if (launcher->referrals++ == 0 && refer->leader[0] != '\0')
        launcher_log(actions, "the server stands by and names the one at %s", refer->leader);
    else if (launcher->referrals == 1)
        launcher_log(actions, "the server stands by, and none leads now%s%s: trying again",
                     refer->why[0] != '\0' ? ": " : "", refer->why);
    if (refer->leader[0] == '\0')
        launcher->referrals += REFERRALS_FOLLOWED_AT_ONCE;
}

static bool has_lasted(const struct launcher *launcher, uint64_t now_us)
{
    return now_us >= launcher->welcomed_at_us + LAUNCHER_STEADY_US;
}

/* The server welcomes this node again. Counts connections to it that did not hold: each of them makes
 * the server look well. */
static void count_short(struct launcher *launcher, struct launcher_actions *actions)
{
    const bool counts = launcher->was_short && !launcher->was_away;

    launcher->was_short = launcher->was_away = false;
    if (!counts || launcher->short_count == UINT32_MAX)
        return;
    launcher->short_count++;
    if (launcher->short_count == LAUNCHER_SHORT_TOLD)
        launcher_log(
            actions,
            "the connection to the server has ended %u times in a row within %u s of its "
            "welcome: it does not hold. If it ended after silence, large messages may be lost "
            "on the way: look at the MTU of the network",
            launcher->short_count, LAUNCHER_STEADY_US / 1000000u);
}

/* The same server has welcomed this node again and again, and no connection has held: the pause grows to PAUSE_BEATS.
 * 0: that is not so. */
static uint64_t pause_us(struct launcher *launcher)
{
    const uint64_t most_us = PAUSE_BEATS * launcher->beat_interval_us;
    uint64_t us = RETRY_MAX_US;

    if (!launcher->was_short || launcher->was_away || launcher->short_count < LAUNCHER_SHORT_TOLD)
        return 0;
    for (uint32_t i = LAUNCHER_SHORT_TOLD; i < launcher->short_count && us < most_us; i++)
        us *= 2;
    us = us < most_us ? us : most_us;
    return us / 2 + draw(launcher) % (us / 2 + 1);
}

/* The first attempt after a working connection comes almost at once. The next ones wait for a
 * random time below a cap that doubles (full jitter), so that the nodes do not all connect in the
 * same instant when the server comes back. */
static void on_server_closed(struct launcher *launcher, const struct launcher_event *event,
                             struct launcher_actions *actions)
{
    const uint64_t now_us = event->now_us;

    if (event->text != NULL)
        on_refused(launcher, event->text, actions);
    if (!launcher->busy)
        launcher->busy_at_us = 0;
    launcher->busy = false;
    if (launcher->welcomed)
        launcher->was_short = !has_lasted(launcher, now_us);
    if (launcher->welcomed && !launcher->was_short)
        launcher->short_count = 0;
    if (!launcher->server_open || launcher->referred)
        launcher->was_away = true;
    uint64_t cap_us = launcher->referred ? RETRY_STANDBY_MAX_US : RETRY_MAX_US;
    if (launcher->failures < 7 && (uint64_t)RETRY_BASE_US << launcher->failures < cap_us)
        cap_us = (uint64_t)RETRY_BASE_US << launcher->failures;
    const bool is_named = launcher->referred && launcher->referrals <= REFERRALS_FOLLOWED_AT_ONCE;
    uint64_t delay_us = launcher->failures == 0 || is_named
                            ? RETRY_FIRST_US
                            : 1000 + draw(launcher) % (cap_us - 1000);
    const uint64_t paused_us = pause_us(launcher);
    if (paused_us > delay_us)
        delay_us = paused_us;
    launcher->failures++;
    launcher->referred = false;
    if (launcher->refused)
        delay_us = RETRY_REFUSED_US / 2 + draw(launcher) % RETRY_REFUSED_US;
    launcher->server_open = false;
    launcher->welcomed = false;
    launcher->beat_at_us = UINT64_MAX;
    launcher->silent_at_us = UINT64_MAX;
    launcher->retry_at_us = now_us + delay_us;
}

/* The lease counts from when our message was sent, not from when the answer came: so our deadline
 * is never after the server's. It is also for shims that are not connected: see LAUNCHER_SEND_SHIM. */
static void extend_lease(struct launcher *launcher, uint64_t sent_us,
                         struct launcher_actions *actions)
{
    if (sent_us + launcher->lease_us <= launcher->lease_until_us)
        return;
    launcher->lease_until_us = sent_us + launcher->lease_us;
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (!shim->dead && launcher_is_ours(launcher, shim))
            launcher_send_shim(actions, shim, MSG_TYPE_LEASE)->lease.until_us =
                launcher->lease_until_us;
    }
}

/* The server is another one than before: shims of the last one keep the lease that it gave. */
static void leave_cluster(struct launcher *launcher)
{
    for (uint32_t i = 0; launcher->cluster[0] != '\0' && i < launcher->shim_count; i++)
        if (launcher_is_ours(launcher, &launcher->shims[i]))
            launcher->shims[i].foreign_until_us = launcher->lease_until_us;
}

static void on_welcome(struct launcher *launcher, const struct msg_node_welcome *welcome,
                       uint64_t now_us, struct launcher_actions *actions)
{
    uint32_t foreign_count = 0;
    if (strcmp(launcher->cluster, welcome->cluster) != 0)
        leave_cluster(launcher);
    launcher->welcomed = true;
    count_short(launcher, actions);
    launcher->welcomed_at_us = now_us;
    launcher->refused = false;
    launcher->referrals = 0;
    launcher->busy_at_us = 0;
    (void)snprintf(launcher->cluster, sizeof launcher->cluster, "%s", welcome->cluster);
    launcher->beat_interval_us = welcome->beat_interval_us;
    launcher->lease_us = welcome->lease_us;
    launcher_seen_lease(launcher, actions);
    launcher->silent_at_us = now_us + SILENT_BEATS * launcher->beat_interval_us;
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        struct launcher_shim *shim = &launcher->shims[i];
        shim->reported = false;
        shim->acked = 0; /* this may be a new process of the server, or another server */
        foreign_count += !launcher_is_ours(launcher, shim) && !shim->dead;
    }
    if (foreign_count > 0)
        launcher_log(
            actions,
            "%u shims belong to another server than cluster %s: they run until their lease ends",
            foreign_count, launcher->cluster);
    extend_lease(launcher, launcher->hello_at_us, actions);
    launcher_leave_welcomed(launcher);
    launcher_beat(launcher, now_us, actions);
}

static void on_beat_ack(struct launcher *launcher, const struct msg_beat_ack *ack, uint64_t now_us,
                        struct launcher_actions *actions)
{
    if (!launcher->welcomed || ack->sent_us > now_us)
        return;
    launcher->silent_at_us = now_us + SILENT_BEATS * launcher->beat_interval_us;
    if (has_lasted(launcher, now_us)) {
        if (launcher->short_count >= LAUNCHER_SHORT_TOLD)
            launcher_log(actions, "the connection to the server holds again");
        launcher->short_count = launcher->failures = 0;
    }
    extend_lease(launcher, ack->sent_us, actions);
    launcher_leave_acked(launcher, ack->sent_us);
}

static void on_server_msg(struct launcher *launcher, const struct launcher_event *event,
                          struct launcher_actions *actions)
{
    const struct msg *msg = event->msg;
    if (!launcher->server_open)
        return;
    if (msg->type == MSG_TYPE_NODE_WELCOME)
        on_welcome(launcher, &msg->node_welcome, event->now_us, actions);
    else if (msg->type == MSG_TYPE_BEAT_ACK)
        on_beat_ack(launcher, &msg->beat_ack, event->now_us, actions);
    else if (msg->type == MSG_TYPE_START && launcher->welcomed)
        launcher_start(launcher, event, actions);
    else if (msg->type == MSG_TYPE_GO)
        launcher_order(launcher, event, msg->go.job_id, msg->go.generation, actions);
    else if (msg->type == MSG_TYPE_WORLD)
        launcher_order(launcher, event, msg->world.job_id, msg->world.generation, actions);
    else if (msg->type == MSG_TYPE_STOP)
        launcher_order(launcher, event, msg->stop.job_id, msg->stop.generation, actions);
    else if (msg->type == MSG_TYPE_FORGET)
        launcher_order(launcher, event, msg->forget.job_id, msg->forget.generation, actions);
    else if (msg->type == MSG_TYPE_REPORT_ACK)
        launcher_order(launcher, event, msg->report_ack.job_id, msg->report_ack.generation,
                       actions);
    else if (msg->type == MSG_TYPE_SLOT_RESUME)
        launcher_slot_resume(launcher, &msg->slot_resume, event->now_us, actions);
    else if (msg->type == MSG_TYPE_REFER && !launcher->welcomed)
        on_refer(launcher, &msg->refer, actions);
    else if (msg->type == MSG_TYPE_ERROR && !launcher->welcomed)
        on_hello_error(launcher, &msg->error, event->now_us, actions);
    else if (msg->type == MSG_TYPE_ERROR)
        launcher_log(actions, "the server answers with an error: %s%s%s", msg->error.message,
                     msg->error.hint[0] != '\0' ? "; " : "", msg->error.hint);
}

static void run_timers(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions)
{
    if (now_us >= launcher->retry_at_us) {
        launcher->retry_at_us = UINT64_MAX;
        launcher_add(actions, (struct launcher_action){.type = LAUNCHER_CONNECT_SERVER});
    }
    if (now_us >= launcher->silent_at_us) {
        const char *why = launcher->welcomed ? "the server has not answered 5 beats"
                                             : "the server did not welcome this node in time";
        launcher->silent_at_us = UINT64_MAX;
        launcher->beat_at_us = UINT64_MAX;
        launcher_add(actions, (struct launcher_action){.type = LAUNCHER_CLOSE_SERVER, .text = why});
    } else if (launcher->welcomed && now_us >= launcher->beat_at_us) {
        launcher_beat(launcher, now_us, actions);
    }
    if (launcher_leave_alone(launcher, now_us, actions))
        return;
    launcher_shims_connect(launcher, now_us, actions);
    launcher_shims_ask(launcher, now_us, actions);
    launcher_silent_look(launcher, now_us, actions);
    launcher_shims_enforce(launcher, now_us, actions);
    launcher_shims_forget(launcher, now_us, actions);
}

static uint64_t next_timer_us(const struct launcher *launcher)
{
    const uint64_t times_us[] = {
        launcher->retry_at_us,
        launcher->silent_at_us,
        launcher->beat_at_us,
        launcher_shims_timer_us(launcher),
        launcher_slots_timer_us(launcher),
        launcher_leave_timer_us(launcher),
        launcher->slots_changed && launcher->welcomed ? 0 : UINT64_MAX, /* the next beat */
    };
    uint64_t at_us = UINT64_MAX;
    for (size_t i = 0; i < sizeof times_us / sizeof times_us[0]; i++)
        if (times_us[i] < at_us)
            at_us = times_us[i];
    return at_us;
}

static void on_event(struct launcher *launcher, const struct launcher_event *event,
                     struct launcher_actions *actions)
{
    switch (event->type) {
    case LAUNCHER_EVENT_TICK:
        run_timers(launcher, event->now_us, actions);
        break;
    case LAUNCHER_EVENT_ADOPT:
        launcher_adopt(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_SEEN_LOADED:
        launcher->seen = *event->seen;
        break;
    case LAUNCHER_EVENT_SLOTS_LOADED:
        launcher_slots_load(launcher, event->slots);
        break;
    case LAUNCHER_EVENT_ADOPTED:
        launcher_slots_begin(launcher, event->now_us);
        launcher_add(actions, (struct launcher_action){.type = LAUNCHER_CONNECT_SERVER});
        break;
    case LAUNCHER_EVENT_SERVER_OPEN:
        on_server_open(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_SERVER_CLOSED:
        on_server_closed(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_SERVER_MSG:
        on_server_msg(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_SHIM_HELD:
    case LAUNCHER_EVENT_SHIM_WARM:
    case LAUNCHER_EVENT_SHIM_OPEN:
    case LAUNCHER_EVENT_SHIM_MSG:
    case LAUNCHER_EVENT_SHIM_CLOSED:
    case LAUNCHER_EVENT_SHIM_LOOKED:
    case LAUNCHER_EVENT_SHIM_FAILED:
    case LAUNCHER_EVENT_SHIM_EXITED:
    case LAUNCHER_EVENT_SHIM_GONE:
        launcher_on_shim(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_GPU:
        launcher_on_gpu(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_XID:
        launcher_on_xid(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_START_POSSIBLE:
        if (launcher->welcomed)
            launcher_beat(launcher, event->now_us, actions);
        break;
    case LAUNCHER_EVENT_LEAVE:
        launcher_leave(launcher, event->now_us, actions);
        break;
    }
}

void launcher_step(struct launcher *launcher, const struct launcher_event *event,
                   struct launcher_actions *actions)
{
    const uint64_t lease_before_us = launcher->lease_until_us;
    launcher_actions_begin(actions);
    on_event(launcher, event, actions);
    assert(actions->count <= LAUNCHER_EVENT_ACTIONS_MAX + LAUNCHER_BEAT_ACTIONS_MAX);
    launcher_slots_settle(launcher, event->now_us, actions);
    if (launcher->slots_changed && launcher->welcomed)
        launcher_beat(launcher, event->now_us, actions);
    launcher_leave_settle(launcher, event->now_us, actions);
    actions->timer_at_us = next_timer_us(launcher);
    launcher_check(launcher, lease_before_us);
}
