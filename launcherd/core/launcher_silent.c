#include "launcherd/core/launcher_silent.h"

#include <stdio.h>

#include "launcherd/core/launcher_table.h"

#define LOOK_AGAIN_US 500000u

static void look(struct launcher_shim *shim, uint64_t now_us, struct launcher_actions *actions)
{
    shim->look_at_us = now_us + LOOK_AGAIN_US;
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_LOOK_SHIM,
                                                   .job_id = shim->job_id,
                                                   .generation = shim->generation});
}

static void signal_ranks(struct launcher_shim *shim, struct launcher_actions *actions)
{
    launcher_add(actions, (struct launcher_action){.type = LAUNCHER_SIGNAL_RANKS,
                                                   .job_id = shim->job_id,
                                                   .generation = shim->generation,
                                                   .signal = shim->stop_signal});
}

bool launcher_silent_owes_end(const struct launcher *launcher, const struct launcher_shim *shim)
{
    return shim->phase == SHIM_ENDED && launcher->welcomed && !shim->reported && !shim->forgotten;
}

bool launcher_silent_minds(const struct launcher *launcher, const struct launcher_shim *shim)
{
    const bool is_unmet = shim->adopted && !shim->is_met && shim->phase != SHIM_ENDED;

    return !shim->dead && !shim->unseen && shim->killed_at_us == 0 && shim->ask_at_us != 0 &&
           (is_unmet || shim->phase == SHIM_RUNNING || shim->phase == SHIM_STOPPING ||
            launcher_silent_owes_end(launcher, shim)) &&
           launcher_is_ours(launcher, shim);
}

bool launcher_silent_is_to_stop(const struct launcher_shim *shim)
{
    return shim->stop_by_us != 0 &&
           (shim->phase >= SHIM_RUNNING || (shim->adopted && !shim->is_met));
}

void launcher_silent_heard(struct launcher_shim *shim, uint64_t now_us,
                           struct launcher_actions *actions)
{
    if (shim->is_told)
        launcher_log(actions, "job %llu, generation %u: its shim answers again",
                     (unsigned long long)shim->job_id, shim->generation);
    shim->is_silent = shim->is_told = false;
    shim->heard_at_us = now_us;
}

void launcher_silent_begin(struct launcher_shim *shim, uint64_t now_us,
                           struct launcher_actions *actions)
{
    shim->is_silent = true;
    if (shim->phase != SHIM_ENDED) /* else there is nothing to see: launcher_due.c */
        look(shim, now_us, actions);
}

void launcher_silent_looked(struct launcher_shim *shim, const struct launcher_event *event,
                            struct launcher_actions *actions)
{
    if (!shim->is_silent || shim->dead)
        return; /* it has answered meanwhile */
    (void)snprintf(shim->state, sizeof shim->state, "%s", event->text);
    shim->ranks_left = event->ranks_left;
    shim->pid = event->pid;
    if (shim->is_told)
        return;
    shim->is_told = true;
    launcher_log(actions,
                 "job %llu, generation %u: its shim, pid %u, does not answer since %llu s: state "
                 "%s. Its ranks are left alone; a stop ends them all the same",
                 (unsigned long long)shim->job_id, shim->generation, shim->pid,
                 (unsigned long long)((event->now_us - shim->heard_at_us) / 1000000), shim->state);
    if (shim->stop_by_us != 0)
        signal_ranks(shim, actions);
}

void launcher_silent_stop(struct launcher_shim *shim, const struct msg_stop *stop, uint64_t now_us,
                          struct launcher_actions *actions)
{
    const uint64_t by_us = now_us + stop->grace_us;
    const bool is_other = shim->stop_by_us == 0 || stop->signal != shim->stop_signal;

    if (shim->stop_by_us == 0 || by_us < shim->stop_by_us)
        shim->stop_by_us = by_us;
    shim->stop_signal = stop->signal;
    if (shim->is_told) {
        if (is_other)
            signal_ranks(shim, actions);
        look(shim, now_us, actions);
    } else if (is_other && launcher_silent_is_to_stop(shim) &&
               shim->ask_at_us > now_us + LAUNCHER_STOP_ASK_US) {
        shim->ask_at_us = now_us + LAUNCHER_STOP_ASK_US; /* it answers a stop at once */
    }
}

uint64_t launcher_silent_look_us(const struct launcher_shim *shim)
{
    const bool looks =
        !shim->dead && shim->killed_at_us == 0 && shim->is_silent && shim->stop_by_us != 0;

    return looks ? shim->look_at_us : UINT64_MAX;
}

void launcher_silent_look(struct launcher *launcher, uint64_t now_us,
                          struct launcher_actions *actions)
{
    for (uint32_t i = 0; i < launcher->shim_count; i++)
        if (now_us >= launcher_silent_look_us(&launcher->shims[i]))
            look(&launcher->shims[i], now_us, actions);
}

uint32_t launcher_silent_list(const struct launcher *launcher, uint64_t now_us,
                              struct part_shim_silent out[SHIMS_SILENT_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < launcher->shim_count && count < SHIMS_SILENT_MAX; i++) {
        const struct launcher_shim *shim = &launcher->shims[i];
        const uint64_t silent_us = now_us - shim->heard_at_us;

        if (!shim->is_told || shim->dead || !launcher_is_ours(launcher, shim))
            continue;
        out[count++] = (struct part_shim_silent){
            .job_id = shim->job_id,
            .generation = shim->generation,
            .pid = shim->pid,
            .silent_us = silent_us < DURATION_US_MAX ? silent_us : DURATION_US_MAX,
            .state = shim->state,
        };
    }
    return count;
}
