#include "launcherd/launcher.h"

#include <stddef.h>
#include <string.h>

#include "launcherd/launcher_state.h"

#define RETRY_FIRST_US 5000u
#define RETRY_BASE_US 10000u
#define RETRY_MAX_US 1000000u
#define SILENT_BEATS 5u

void launcher_init(struct launcher *launcher, const struct launcher_options *options)
{
    /* without the shims: their memory is touched when there are some */
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

const struct launcher_shim *launcher_shim(const struct launcher *launcher, uint64_t job_id,
                                          uint32_t generation)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (launcher->shims[i].job_id == job_id && launcher->shims[i].generation == generation)
            return &launcher->shims[i];
    return NULL;
}

/* -- the server
 * ----------------------------------------------------------------------------------------- */

static void on_server_open(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions)
{
    const struct launcher_options *options = &launcher->options;
    launcher->server_open = true;
    launcher->welcomed = false;
    launcher->hello_at_us = now_us;
    launcher->retry_at_us = UINT64_MAX;
    launcher->silent_at_us = now_us + HELLO_TIMEOUT_US;
    struct msg_node_hello *hello = &launcher_send_server(actions, MSG_TYPE_NODE_HELLO)->node_hello;
    *hello = (struct msg_node_hello){
        .protocol = PROTOCOL_VERSION,
        .version = options->version,
        .name = options->name,
        .boot_id = options->boot_id,
        .instance = options->instance,
        .pid = options->pid,
        .address = options->address,
        .slots = options->slots,
        .gpus = options->gpus,
    };
    hello->shims.count = launcher_list(launcher, actions->beat_shims);
    hello->shims.items = actions->beat_shims;
    hello->closed.count = launcher_list_closed(launcher, actions->closed);
    hello->closed.items = actions->closed;
}

/* At once after a connection that had worked, then full jitter under a doubling cap: a server that
 * comes back is not met by all nodes in the same instant. Source: spec/reliability.md, section 4.
 */
static void on_server_closed(struct launcher *launcher, uint64_t now_us)
{
    if (launcher->welcomed)
        launcher->failures = 0;
    uint64_t cap_us = RETRY_MAX_US;
    if (launcher->failures < 7)
        cap_us = (uint64_t)RETRY_BASE_US << launcher->failures;
    uint64_t delay_us =
        launcher->failures == 0 ? RETRY_FIRST_US : 1000 + draw(launcher) % (cap_us - 1000);
    launcher->failures++;
    launcher->server_open = false;
    launcher->welcomed = false;
    launcher->beat_at_us = UINT64_MAX;
    launcher->silent_at_us = UINT64_MAX;
    launcher->retry_at_us = now_us + delay_us;
}

/* Leases count from when we spoke, not from when the answer came: our deadline is the earlier one.
 */
static void extend_lease(struct launcher *launcher, uint64_t sent_us,
                         struct launcher_actions *actions)
{
    if (sent_us + launcher->lease_us <= launcher->lease_until_us)
        return;
    launcher->lease_until_us = sent_us + launcher->lease_us;
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (shim->connected && launcher_serves(launcher, shim))
            launcher_send_shim(actions, shim, MSG_TYPE_LEASE)->lease.until_us =
                launcher->lease_until_us;
    }
}

static void on_welcome(struct launcher *launcher, const struct msg_node_welcome *welcome,
                       uint64_t now_us, struct launcher_actions *actions)
{
    uint32_t foreign_count = 0;
    launcher->welcomed = true;
    launcher->failures = 0;
    launcher_copy(launcher->cluster, sizeof launcher->cluster, welcome->cluster);
    launcher->beat_interval_us = welcome->beat_interval_us;
    launcher->lease_us = welcome->lease_us;
    launcher->silent_at_us = now_us + SILENT_BEATS * launcher->beat_interval_us;
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        struct launcher_shim *shim = &launcher->shims[i];
        shim->reported = false;
        shim->acked = 0; /* by another process of the server, or by another server */
        foreign_count += !launcher_serves(launcher, shim) && !shim->dead;
    }
    if (foreign_count > 0)
        launcher_note(
            actions, "%u shims belong to another server than cluster %s: left alone to their lease",
            foreign_count, launcher->cluster);
    extend_lease(launcher, launcher->hello_at_us, actions);
    launcher_beat(launcher, now_us, actions);
}

static void on_beat_ack(struct launcher *launcher, const struct msg_beat_ack *ack, uint64_t now_us,
                        struct launcher_actions *actions)
{
    if (!launcher->welcomed || ack->sent_us > now_us)
        return;
    launcher->silent_at_us = now_us + SILENT_BEATS * launcher->beat_interval_us;
    extend_lease(launcher, ack->sent_us, actions);
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
    else if (msg->type == MSG_TYPE_ERROR)
        launcher_note(actions, "the server says: %s%s%s", msg->error.message,
                      msg->error.hint[0] != '\0' ? "; " : "", msg->error.hint);
}

/* -- time
 * ----------------------------------------------------------------------------------------- */

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

static uint64_t next_timer_us(const struct launcher *launcher)
{
    uint64_t at_us = launcher->retry_at_us;
    if (launcher->silent_at_us < at_us)
        at_us = launcher->silent_at_us;
    if (launcher->beat_at_us < at_us)
        at_us = launcher->beat_at_us;
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (launcher->shims[i].connect_at_us != 0 && launcher->shims[i].connect_at_us < at_us)
            at_us = launcher->shims[i].connect_at_us;
    uint64_t slots_us = launcher_slots_timer_us(launcher);
    return slots_us < at_us ? slots_us : at_us;
}

void launcher_step(struct launcher *launcher, const struct launcher_event *event,
                   struct launcher_actions *actions)
{
    actions->count = 0;
    actions->rank_rows = 0;
    actions->text_count = 0;
    switch (event->type) {
    case LAUNCHER_EVENT_TICK:
        run_timers(launcher, event->now_us, actions);
        break;
    case LAUNCHER_EVENT_ADOPT:
        launcher_adopt(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_SLOTS_KEPT:
        launcher_slots_kept(launcher, &event->msg->slots_kept);
        break;
    case LAUNCHER_EVENT_ADOPTED:
        launcher_slots_begin(launcher, event->now_us);
        launcher_add(actions, (struct launcher_action){.type = LAUNCHER_CONNECT_SERVER});
        break;
    case LAUNCHER_EVENT_SERVER_OPEN:
        on_server_open(launcher, event->now_us, actions);
        break;
    case LAUNCHER_EVENT_SERVER_CLOSED:
        on_server_closed(launcher, event->now_us);
        break;
    case LAUNCHER_EVENT_SERVER_MSG:
        on_server_msg(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_SHIM_OPEN:
    case LAUNCHER_EVENT_SHIM_MSG:
    case LAUNCHER_EVENT_SHIM_CLOSED:
    case LAUNCHER_EVENT_SHIM_FAILED:
    case LAUNCHER_EVENT_SHIM_GONE:
        launcher_on_shim(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_GPU:
        launcher_on_gpu(launcher, event, actions);
        break;
    case LAUNCHER_EVENT_XID:
        launcher_on_xid(launcher, event, actions);
        break;
    }
    launcher_slots_settle(launcher, event->now_us, actions);
    actions->timer_at_us = next_timer_us(launcher);
}
