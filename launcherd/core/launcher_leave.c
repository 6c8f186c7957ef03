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

/* Whether no server has stopped the shim: there is none, it belongs to another one, or its stop has not come. */
static bool is_alone(const struct launcher *launcher, const struct launcher_shim *shim)
{
    return launcher_shim_is_active(shim) &&
           (!launcher->welcomed || !launcher_is_ours(launcher, shim) || shim->stop_by_us == 0);
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

        if (!is_alone(launcher, shim))
            continue;
        const struct msg_stop stop = {.job_id = shim->job_id,
                                      .generation = shim->generation,
                                      .signal = SIGTERM,
                                      .grace_us = shim->grace_us,
                                      .reason = "its node leaves, and no stop has come from a "
                                                "server"};

        launcher_shim_end_by(shim, now_us + shim->grace_us + LAUNCHER_STOP_SLACK_US);
        if (!shim->connected)
            continue;
        launcher_send_shim(actions, shim, MSG_TYPE_STOP)->stop = stop;
        count++;
    }
    if (count > 0)
        launcher_log(actions, "no server stops %u shims: they are stopped from here", count);
    return true;
}

/* An unseen shim is in no hand of ours. */
static bool have_ended(const struct launcher *launcher)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (!launcher->shims[i].unseen && launcher_shim_is_active(&launcher->shims[i]))
            return false;
    return true;
}

/* Whether the server has not recorded the end of some shim: it sends `forget` then. */
static bool is_owed(const struct launcher *launcher)
{
    for (uint32_t i = 0; launcher->welcomed && i < launcher->shim_count; i++)
        if (!launcher->shims[i].unseen && launcher_is_ours(launcher, &launcher->shims[i]))
            return true;
    return false;
}

/* All shims have ended: whether nothing more need be waited for. */
static bool is_over(const struct launcher *launcher, uint64_t now_us)
{
    const struct launcher_leaving *leaving = &launcher->leaving;

    if (is_owed(launcher))
        return now_us >= leaving->leave_by_us;
    return launcher->welcomed ? leaving->is_known : now_us >= leaving->since_us + LAUNCHER_ALONE_US;
}

void launcher_leave_settle(struct launcher *launcher, uint64_t now_us,
                           struct launcher_actions *actions)
{
    struct launcher_leaving *leaving = &launcher->leaving;

    if (!leaving->is_on || leaving->has_left)
        return;
    if (!have_ended(launcher)) {
        leaving->leave_by_us = 0;
        return;
    }
    if (leaving->leave_by_us == 0)
        leaving->leave_by_us = now_us + LAUNCHER_ALONE_US;
    if (!is_over(launcher, now_us))
        return;
    if (is_owed(launcher))
        launcher_log(actions, "the server has not recorded the end of its jobs in %u s",
                     LAUNCHER_ALONE_US / 1000000u);
    leaving->has_left = true;
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_LEFT});
}

uint64_t launcher_leave_timer_us(const struct launcher *launcher)
{
    const struct launcher_leaving *leaving = &launcher->leaving;

    if (!leaving->is_on)
        return UINT64_MAX;
    return !leaving->has_left && leaving->leave_by_us != 0 &&
                   leaving->leave_by_us < leaving->alone_at_us && is_owed(launcher)
               ? leaving->leave_by_us
               : leaving->alone_at_us;
}
