#include "launcherd/core/launcher_leave.h"

#include <signal.h>

#include "launcherd/core/launcher_shims.h"
#include "launcherd/core/launcher_table.h"

void launcher_leave(struct launcher *launcher, uint64_t now_us, struct launcher_actions *actions)
{
    struct launcher_leaving *leaving = &launcher->leaving;

    if (leaving->is_on)
        return;
    *leaving = (struct launcher_leaving){
        .is_on = true, .since_us = now_us, .alone_at_us = now_us + LAUNCHER_ALONE_US};
    launcher->slots_changed = true; /* so that the next beat is sent at once */
    launcher_log(actions, "this node leaves: its jobs are stopped with their grace");
}

void launcher_leave_welcomed(struct launcher *launcher)
{
    launcher->leaving.told_us = 0;
    launcher->leaving.is_known = false;
}

void launcher_leave_beat(struct launcher *launcher, struct msg_beat *beat)
{
    struct launcher_leaving *leaving = &launcher->leaving;

    beat->leaving = leaving->is_on;
    if (leaving->is_on && leaving->told_us == 0)
        leaving->told_us = beat->sent_us;
}

void launcher_leave_acked(struct launcher *launcher, uint64_t sent_us)
{
    struct launcher_leaving *leaving = &launcher->leaving;

    if (leaving->told_us != 0 && sent_us >= leaving->told_us)
        leaving->is_known = true;
}

/* Whether no server will stop the shim: there is none, or it belongs to another one. */
static bool is_alone(const struct launcher *launcher, const struct launcher_shim *shim)
{
    return !shim->dead && (!launcher->welcomed || !launcher_is_ours(launcher, shim));
}

bool launcher_leave_alone(struct launcher *launcher, uint64_t now_us,
                          struct launcher_actions *actions)
{
    uint32_t count = 0;

    if (!launcher->leaving.is_on || now_us < launcher->leaving.alone_at_us)
        return false;
    launcher->leaving.alone_at_us = now_us + LAUNCHER_ALONE_US; /* shims that were not connected */
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        struct launcher_shim *shim = &launcher->shims[i];

        if (!is_alone(launcher, shim) || shim->phase == SHIM_ENDED)
            continue;
        const struct msg_stop stop = {.job_id = shim->job_id,
                                      .generation = shim->generation,
                                      .signal = SIGTERM,
                                      .grace_us = LAUNCHER_ALONE_GRACE_US,
                                      .reason = "its node leaves, and no server answers"};

        launcher_shim_end_by(shim, now_us + LAUNCHER_ALONE_GRACE_US + LAUNCHER_STOP_SLACK_US);
        if (!shim->connected)
            continue;
        launcher_send_shim(actions, shim, MSG_TYPE_STOP)->stop = stop;
        count++;
    }
    if (count > 0)
        launcher_log(actions, "no server stops %u shims: they are stopped from here", count);
    return true;
}

static bool is_empty(const struct launcher *launcher, uint64_t now_us)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];

        if (shim->unseen)
            continue; /* it is in no hand of ours */
        if (is_alone(launcher, shim) && shim->phase != SHIM_ENDED)
            return false;
        if (launcher->welcomed && launcher_is_ours(launcher, shim))
            return false; /* wait until the server has recorded its end and sends `forget` */
    }
    return launcher->welcomed ? launcher->leaving.is_known
                              : now_us >= launcher->leaving.since_us + LAUNCHER_ALONE_US;
}

void launcher_leave_settle(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions)
{
    struct launcher_leaving *leaving = &launcher->leaving;

    if (!leaving->is_on || leaving->has_left || !is_empty(launcher, now_us))
        return;
    leaving->has_left = true;
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_LEFT});
}

uint64_t launcher_leave_timer_us(const struct launcher *launcher)
{
    return launcher->leaving.is_on ? launcher->leaving.alone_at_us : UINT64_MAX;
}
