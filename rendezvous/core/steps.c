#include "rendezvous/core/steps.h"

#include "rendezvous/core/fence.h"
#include "rendezvous/core/parts.h"
#include "rendezvous/core/state.h"

static uint32_t seconds(uint64_t us)
{
    return (uint32_t)((us + 999999) / 1000000);
}

static bool lists(const struct rdzv *rdzv, const struct job *job, const struct part_state *state)
{
    return state->node != NODE_NONE &&
           roster_lists(&rdzv->nodes[state->node], job->record.job_id, job->record.generation);
}

static enum part_step step_of(const struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    const struct part_state *state = &job->gang.parts[part];

    if (parts_is_over(state))
        return STEP_OVER;
    if (job->record.stopping != STOP_NONE)
        return STEP_STOP;
    if (part == 0 && parts_only_store_is_left(job))
        return STEP_STORE;
    if (state->is_reported && state->phase >= SHIM_RUNNING)
        return job->world_sent && state->phase == SHIM_RUNNING && !state->has_world ? STEP_WORLD
                                                                                    : STEP_WORK;
    if (job->record.state != JOB_STARTING)
        return STEP_WORK; /* a stored part that runs: its report follows */
    if (state->is_reported && state->phase == SHIM_READY)
        return job->go_sent ? STEP_RUN : STEP_WAIT;
    return state->is_reported || lists(rdzv, job, state) ? STEP_PREPARE : STEP_TAKE;
}

static uint64_t limit_us(const struct job *job, const struct part_state *state)
{
    switch ((enum part_step)state->step) {
    case STEP_TAKE:
        return STEP_TAKE_US;
    case STEP_PREPARE:
        return job->has_no_stage || state->is_silent ? STEP_PREPARE_US : STEP_STAGED_US;
    case STEP_RUN:
        return STEP_RUN_US;
    case STEP_WORLD:
        return STEP_WORLD_US;
    case STEP_STORE:
        return STEP_STORE_US;
    case STEP_STOP:
        return fence_has_no_worker(job) ? STEP_STOP_IDLE_US
                                        : job->record.stop_grace_us + STEP_STOP_US;
    case STEP_WAIT:
    case STEP_WORK:
    case STEP_OVER:
        break;
    }
    return UINT64_MAX;
}

uint64_t steps_due_us(const struct job *job, uint32_t part)
{
    const struct part_state *state = &job->gang.parts[part];
    const uint64_t limit = limit_us(job, state);

    return limit == UINT64_MAX || state->is_late ? UINT64_MAX
                                                 : state->step_at_s * 1000000ull + limit;
}

bool steps_is_slow(const struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    const struct part_state *state = &job->gang.parts[part];

    return job->record.state == JOB_STARTING &&
           rdzv->out.now_us >= state->step_at_s * 1000000ull + STEP_SLOW_US;
}

void steps_expect(struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    const uint64_t due_us = steps_due_us(job, part);

    if (due_us < rdzv->step_at_us)
        rdzv->step_at_us = due_us;
}

void steps_note(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    struct part_state *state = &job->gang.parts[part];
    const enum part_step step = step_of(rdzv, job, part);

    if (state->step_at_s != 0 &&
        (step == (enum part_step)state->step ||
         (step == STEP_TAKE &&
          state->step == STEP_PREPARE))) /* a launcherd that comes and goes gets no new time */
        return;
    if (step == STEP_WORK && state->step == STEP_RUN && state->node != NODE_NONE)
        trouble_clear(&rdzv->nodes[state->node].trouble);
    state->step = (uint8_t)step;
    state->step_at_s = seconds(rdzv->out.now_us);
    if (state->is_late)
        job->silent[0] = '\0'; /* it said that this part has not carried out its stop */
    state->is_late = false;
    steps_expect(rdzv, job, part);
}

void steps_note_all(struct rdzv *rdzv, struct job *job)
{
    for (uint32_t i = 0; i < job->record.part_count; i++)
        steps_note(rdzv, job, i);
}

void steps_again(struct rdzv *rdzv, const struct job *job, uint32_t part)
{
    struct part_state *state = &job->gang.parts[part];

    state->step_at_s = seconds(rdzv->out.now_us);
    steps_expect(rdzv, job, part);
}

void steps_back(struct rdzv *rdzv, struct job *job, uint32_t part)
{
    struct part_state *state = &job->gang.parts[part];

    if (!state->is_away)
        return;
    state->is_away = state->is_late = false;
    state->step_at_s = seconds(rdzv->out.now_us);
    steps_expect(rdzv, job, part);
}

/* The step began later by that much time, which does not count. Never later than now. */
static void shift(const struct rdzv *rdzv, struct part_state *state, uint64_t us)
{
    const uint32_t now_s = seconds(rdzv->out.now_us);
    const uint64_t at_s = state->step_at_s + us / 1000000;

    state->step_at_s = at_s < now_s ? (uint32_t)at_s : now_s;
}

void steps_heard(struct rdzv *rdzv, const struct node *node)
{
    if (node->unheard_us <= rdzv->options.suspect_us)
        return;
    for (uint32_t i = 0; i < roster_part_count(rdzv, node); i++) {
        uint32_t part;
        struct job *job = roster_part(rdzv, node, i, &part);

        shift(rdzv, &job->gang.parts[part], node->unheard_us - rdzv->options.suspect_us);
    }
}

void steps_paused(struct rdzv *rdzv, uint64_t paused_us)
{
    for (uint32_t i = 0; i < rdzv->live_count; i++) {
        struct job *job = job_live(rdzv, i);

        for (uint32_t k = 0; k < job->record.part_count; k++)
            shift(rdzv, &job->gang.parts[k], paused_us);
    }
}
