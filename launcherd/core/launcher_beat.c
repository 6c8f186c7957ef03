#include "launcherd/core/launcher_beat.h"

#include <assert.h>

#include "launcherd/core/launcher_leave.h"
#include "launcherd/core/launcher_report.h"
#include "launcherd/core/launcher_seen.h"
#include "launcherd/core/launcher_silent.h"
#include "launcherd/core/launcher_slots.h"
#include "launcherd/core/launcher_table.h"

static uint32_t list_shims(const struct launcher *launcher, struct part_beat_shim *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (!launcher_is_ours(launcher, shim))
            continue;
        out[count++] = (struct part_beat_shim){
            .job_id = shim->job_id,
            .generation = shim->generation,
            .phase = shim->phase,
            .slot_mask = shim->dead ? 0 : shim->slot_mask,
            .unseen = shim->unseen,
        };
    }
    return count;
}

/* Sends at most one message for each shim: the report of a dead one until it is acknowledged, and a
 * request to one that has not reported since the welcome. Both may get lost, so both are repeated
 * at every beat. */
static void report_shims(const struct launcher *launcher, uint64_t now_us,
                         struct launcher_actions *actions)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        if (!launcher_is_ours(launcher, shim))
            continue;
        if (shim->connected && !shim->reported)
            launcher_send_shim(actions, shim, MSG_TYPE_REPORT_REQUEST)->report_request.all = true;
        else if (shim->dead && shim->acked < shim->revision)
            launcher_report_dead(actions, shim, now_us);
    }
}

void launcher_hello(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions)
{
    const struct launcher_options *options = &launcher->options;
    struct msg_node_hello *hello = &launcher_send_server(actions, MSG_TYPE_NODE_HELLO)->node_hello;
    *hello = (struct msg_node_hello){
        .protocol = options->protocol,
        .version = options->version,
        .name = options->name,
        .boot_id = options->boot_id,
        .machine_id = options->machine_id,
        .state_id = options->state_id,
        .up_us = now_us,
        .instance = options->instance,
        .pid = options->pid,
        .address = options->address,
        .slots = options->slots,
        .gpus = options->gpus,
        .drains_on_term = options->drains_on_term,
        .schema = options->schema,
    };
    hello->shims.count = list_shims(launcher, actions->beat_shims);
    hello->shims.items = actions->beat_shims;
    hello->closed.count = launcher_slots_list_closed(launcher, actions->closed);
    hello->closed.items = actions->closed;
    hello->seen.count = launcher_seen_list(launcher, actions->seen);
    hello->seen.items = actions->seen;
}

void launcher_beat(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions)
{
    const uint32_t before = actions->count;
    assert(launcher->welcomed);
    if (actions->has_beat)
        return;
    actions->has_beat = true;
    struct msg_beat *beat = &launcher_send_server(actions, MSG_TYPE_BEAT)->beat;
    beat->sent_us = now_us;
    beat->shims.count = list_shims(launcher, actions->beat_shims);
    beat->shims.items = actions->beat_shims;
    beat->closed.count = launcher_slots_list_closed(launcher, actions->closed);
    beat->closed.items = actions->closed;
    beat->silent.count = launcher_silent_list(launcher, now_us, actions->silent);
    beat->silent.items = actions->silent;
    launcher_leave_beat(launcher, beat);
    launcher->slots_changed = false;
    report_shims(launcher, now_us, actions);
    launcher->beat_at_us = now_us + launcher->beat_interval_us;
    assert(actions->count - before <= LAUNCHER_BEAT_ACTIONS_MAX);
}
