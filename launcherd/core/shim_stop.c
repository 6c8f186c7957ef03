#include "launcherd/core/shim_stop.h"

#include <assert.h>
#include <stdarg.h>

#include "common/utf8.h"

#define TREE_CHECK_US 20000u
#define SIGNAL_KILL 9u
#define SIGNAL_TERM 15u

void shim_add(struct shim_actions *actions, struct shim_action action)
{
    assert(actions->count < SHIM_ACTIONS_MAX);
    actions->items[actions->count++] = action;
}

void shim_change(struct shim *shim)
{
    shim->revision++;
}

void shim_fail(struct shim *shim, const struct shim_event *event, enum failure_class class,
               int32_t rank, const char *format, ...)
{
    if (shim->has_failed)
        return; /* the first failure is the cause */
    shim->has_failed = true;
    va_list args;
    va_start(args, format);
    utf8_printable_format(shim->cause, sizeof shim->cause, format, args);
    va_end(args);
    shim->failed_class = class;
    shim->failed_rank = rank;
    shim->failed_by_peer = event->by_peer;
    shim->failed_at_us = event->now_us - (event->age_us < event->now_us ? event->age_us : 0);
    shim_change(shim);
}

static void forget_times(struct shim *shim)
{
    shim->check_at_us = shim->left_at_us = shim->late_at_us = shim->look_at_us = 0;
}

void shim_set_phase(struct shim *shim, enum shim_phase phase, uint64_t now_us)
{
    assert(phase > shim->phase);
    shim->phase = phase;
    if (phase >= SHIM_STOPPING && shim->stopping_at_us == 0)
        shim->stopping_at_us = now_us;
    if (phase == SHIM_ENDED) {
        shim->ended_at_us = now_us;
        forget_times(shim);
    }
    shim_change(shim);
}

bool shim_workers_are_gone(const struct shim *shim)
{
    for (uint32_t i = 0; i < shim->options.local_count; i++) {
        enum rank_state state = shim->ranks[i].state;
        if (state == RANK_RUNNING || shim->ranks[i].is_raised ||
            (state == RANK_WAITING && shim->go_taken))
            return false;
    }
    return true;
}

void shim_end_if_over(struct shim *shim, uint64_t now_us)
{
    if (shim->phase == SHIM_STOPPING && shim->tree_empty && !shim->store_runs &&
        shim_workers_are_gone(shim))
        shim_set_phase(shim, SHIM_ENDED, now_us);
}

void shim_kill_tree(struct shim *shim, struct shim_actions *actions)
{
    shim->kill_at_us = UINT64_MAX;
    forget_times(shim);
    shim_add(actions, (struct shim_action){.type = SHIM_KILL_TREE});
}

void shim_stop_now(struct shim *shim, uint64_t now_us, struct shim_actions *actions)
{
    if (shim->phase == SHIM_ENDED)
        return;
    if (!shim->go_taken) {
        shim_set_phase(shim, SHIM_ENDED, now_us);
        return;
    }
    if (shim->phase != SHIM_STOPPING)
        shim_set_phase(shim, SHIM_STOPPING, now_us);
    if (shim->kill_at_us != UINT64_MAX)
        shim_kill_tree(shim, actions);
}

/* From now on until the kill; the grace of a second stop may be shorter. */
static void set_late(struct shim *shim, uint64_t now_us)
{
    const uint64_t quarter_us = (shim->kill_at_us - now_us) / 4;

    shim->late_at_us = shim->kill_at_us - (quarter_us < SHIM_LATE_US ? quarter_us : SHIM_LATE_US);
}

/* What is left gets the signal, and so does what that leaves, until nothing is left. */
static void signal_left(struct shim *shim, uint64_t now_us, bool is_told,
                        struct shim_actions *actions)
{
    shim->look_at_us = now_us + SHIM_LEFT_LOOK_US;
    shim_add(actions, (struct shim_action){.type = SHIM_SIGNAL_LEFT,
                                           .signal = shim->stop_signal,
                                           .is_told = is_told});
}

void shim_stop_gently(struct shim *shim, uint64_t now_us, uint32_t signal, uint64_t grace_us,
                      struct shim_actions *actions)
{
    if (shim->phase == SHIM_ENDED || shim->kill_at_us == UINT64_MAX)
        return;
    if (!shim->go_taken || grace_us == 0 || signal == SIGNAL_KILL) {
        shim_stop_now(shim, now_us, actions);
        return;
    }
    uint64_t kill_at_us = now_us + grace_us;
    if (shim->phase != SHIM_STOPPING)
        shim_set_phase(shim, SHIM_STOPPING, now_us);
    const bool is_sooner = shim->kill_at_us == 0 || kill_at_us < shim->kill_at_us;
    if (is_sooner)
        shim->kill_at_us = kill_at_us; /* a second stop cannot extend the grace */
    if (is_sooner || shim->stop_signal != signal)
        set_late(shim, now_us);
    if (shim->stop_signal == signal)
        return;
    shim->stop_signal = signal;
    if (!shim_workers_are_gone(shim))
        shim_add(actions, (struct shim_action){.type = SHIM_SIGNAL, .signal = signal});
    else if (shim->check_at_us != 0 && shim->left_at_us == 0)
        signal_left(shim, now_us, false, actions);
}

void shim_stop_peers(struct shim *shim, uint64_t now_us, struct shim_actions *actions)
{
    if (shim->phase != SHIM_STOPPING)
        shim_stop_gently(shim, now_us, SIGNAL_TERM, shim->options.grace_us, actions);
}

static bool is_dumping(const struct shim *shim)
{
    for (uint32_t i = 0; i < shim->options.local_count; i++)
        if (shim->ranks[i].is_dumping)
            return true;
    return false;
}

/* Begins to end processes that the workers may have left. */
static void begin_end_of_left(struct shim *shim, uint64_t now_us)
{
    uint64_t grace_us = shim->options.grace_us;

    if (grace_us > SHIM_LEFT_GRACE_US)
        grace_us = SHIM_LEFT_GRACE_US;
    shim_set_phase(shim, SHIM_STOPPING, now_us);
    shim->left_at_us = now_us + SHIM_QUIET_US;
    shim->kill_at_us = shim->left_at_us + grace_us;
    set_late(shim, shim->left_at_us);
}

void shim_workers_gone(struct shim *shim, uint64_t now_us, bool in_success,
                       struct shim_actions *actions)
{
    if (shim->phase == SHIM_ENDED || shim->kill_at_us == UINT64_MAX)
        return; /* the kill goes on until no process is left */
    if ((in_success && shim->options.grace_us == 0) || is_dumping(shim)) {
        shim_stop_now(shim, now_us, actions); /* a core file gets some seconds more */
        return;
    }
    if (in_success && shim->phase != SHIM_STOPPING)
        begin_end_of_left(shim, now_us);
    else if (shim->left_at_us == 0)
        signal_left(shim, now_us, false, actions);
    shim->check_at_us = now_us + TREE_CHECK_US;
    shim_add(actions, (struct shim_action){.type = SHIM_CHECK_TREE});
}

static void end_left(struct shim *shim, uint64_t now_us, struct shim_actions *actions)
{
    shim->left_at_us = 0;
    if (shim->stop_signal == 0)
        shim->stop_signal = SIGNAL_TERM;
    signal_left(shim, now_us, true, actions);
}

void shim_check_grace(struct shim *shim, uint64_t now_us, struct shim_actions *actions)
{
    if (shim->phase != SHIM_STOPPING || shim->kill_at_us == UINT64_MAX)
        return;
    if (now_us >= shim->kill_at_us) {
        shim_kill_tree(shim, actions);
        actions->items[actions->count - 1].is_told = true;
        return;
    }
    if (shim->left_at_us != 0 && now_us >= shim->left_at_us)
        end_left(shim, now_us, actions);
    if (shim->late_at_us != 0 && now_us >= shim->late_at_us) {
        shim->late_at_us = 0;
        shim_add(actions,
                 (struct shim_action){.type = SHIM_SIGNAL_LATE, .signal = shim->stop_signal});
    }
    if (shim->look_at_us != 0 && now_us >= shim->look_at_us)
        signal_left(shim, now_us, false, actions);
    if (shim->check_at_us != 0 && now_us >= shim->check_at_us) {
        shim->check_at_us = now_us + TREE_CHECK_US;
        shim_add(actions, (struct shim_action){.type = SHIM_CHECK_TREE});
    }
}

uint64_t shim_stop_timer_us(const struct shim *shim)
{
    uint64_t at_us = shim->phase == SHIM_STOPPING ? shim->kill_at_us : UINT64_MAX;

    const uint64_t due_us[] = {shim->check_at_us, shim->left_at_us, shim->late_at_us,
                               shim->look_at_us};

    for (uint32_t i = 0; i < sizeof due_us / sizeof due_us[0]; i++)
        if (due_us[i] != 0 && due_us[i] < at_us)
            at_us = due_us[i];
    return at_us;
}
