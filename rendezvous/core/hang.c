#include "rendezvous/core/hang.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/core/actions.h"

#define GAP_FIRST_US 1000000u
#define GAPS_PER_DOUBLING 4u
#define GAPS_FULL 10000u        /* at this count all counts are halved */
#define QUIET_LEAST_US 5000000u /* limit for ranks that send regularly */

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t age(uint64_t now_us, uint64_t since_us)
{
    return now_us > since_us ? now_us - since_us : 0;
}

/* -- durations of steps ---------------------------------------------------------------------------- */

/* The longest duration that gaps[place] counts: 1 s, 1.25 s, 1.5 s, 1.75 s, 2 s, 2.5 s and so
 * on. */
static uint64_t gap_top_us(uint32_t place)
{
    const uint64_t octave_us = (uint64_t)GAP_FIRST_US << place / GAPS_PER_DOUBLING;

    return octave_us + octave_us / GAPS_PER_DOUBLING * (place % GAPS_PER_DOUBLING);
}

static void count_gap(struct hang_job *job, uint64_t gap_us)
{
    uint32_t place = 0;

    while (place + 1 < HANG_GAPS && gap_us > gap_top_us(place))
        place++;
    job->gaps[place]++;
    if (++job->gap_count < GAPS_FULL)
        return;
    job->gap_count = 0;
    for (uint32_t i = 0; i < HANG_GAPS; i++) {
        job->gaps[i] /= 2;
        job->gap_count += job->gaps[i];
    }
}

uint64_t hang_p99_us(const struct hang_job *job)
{
    uint32_t above = 0;

    for (uint32_t i = HANG_GAPS; i-- > 1;) {
        above += job->gaps[i];
        if ((uint64_t)above * 100 > job->gap_count)
            return gap_top_us(i);
    }
    return 0;
}

/* -- what ranks report ----------------------------------------------------------------------------- */

/* The first rank that reports a new step moves the job's step forward. */
static void step_forward(struct hang_job *job, uint64_t steps, uint64_t now_us)
{
    if (job->stepped_us > job->floor_us)
        count_gap(job, age(now_us, job->stepped_us) / steps);
    job->stepped_us = now_us;
    job->has_step = true;
}

bool hang_told(struct hang_job *job, struct hang_rank *rank, const struct msg_progress *progress,
               uint64_t now_us)
{
    const bool has_ended = progress->steps > 0 && progress->step >= progress->steps;
    const uint8_t phase =
        progress->phase == PROGRESS_STEPS && has_ended ? PROGRESS_ENDING : (uint8_t)progress->phase;
    const bool is_first = rank->heard_us == 0, has_stepped = progress->step > rank->step;
    const bool moves = is_first || has_stepped || phase != rank->phase ||
                       (phase != PROGRESS_STEPS && progress->collectives > rank->collectives);

    job->has_told = true;
    rank->heard_us = now_us;
    rank->again_us = progress->again_us;
    rank->in_collective = progress->in_collective;
    rank->collectives = progress->collectives;
    (void)snprintf(rank->doing, sizeof rank->doing, "%s", progress->doing);
    if (moves) {
        rank->moved_us = now_us;
        job->moved_us = now_us;
        job->idle_since_us = 0;
    }
    if (phase != rank->phase || phase != PROGRESS_STEPS)
        job->stepped_us = 0;
    if (has_stepped && !is_first && rank->advances < 2)
        rank->advances++;
    if (progress->step > job->step && phase == PROGRESS_STEPS)
        step_forward(job, progress->step - job->step, now_us);
    if (progress->step > job->step) {
        job->stride = job->step > 0 ? progress->step - job->step : 1;
        job->step = progress->step;
    }
    rank->step = progress->step;
    rank->phase = phase;
    return moves;
}

void hang_begin_anew(struct hang_job *job, uint64_t now_us)
{
    job->floor_us = now_us;
    job->idle_since_us = 0;
}

/* -- the rule ---------------------------------------------------------------------------------- */

/* Summary of what the running ranks have reported. */
struct told {
    bool all_tell_again, in_phase, is_preparing;
    int32_t silent_rank, oldest_rank;
    uint64_t silent_since_us, silent_limit_us, silent_at_us; /* when the next one will be silent */
    uint64_t oldest_us;
};

static uint64_t silent_limit(const struct hang_rank *rank, const struct hang_limits *limits)
{
    return later(limits->least_us, HANG_STEP_FACTOR * rank->again_us);
}

static void look_at(const struct hang_job *job, const struct hang_rank *rank, uint32_t index,
                    const struct hang_limits *limits, uint64_t now_us, struct told *told)
{
    const uint64_t heard_us = later(rank->heard_us, job->floor_us);
    const uint64_t moved_us = later(rank->moved_us, job->floor_us);
    const uint64_t limit_us = silent_limit(rank, limits);

    if (rank->again_us == 0)
        told->all_tell_again = false;
    else if (heard_us + limit_us < told->silent_at_us)
        told->silent_at_us = heard_us + limit_us;
    if (rank->again_us > 0 && age(now_us, heard_us) >= limit_us && told->silent_rank < 0) {
        told->silent_rank = (int32_t)index;
        told->silent_since_us = heard_us;
        told->silent_limit_us = limit_us;
    }
    told->in_phase = told->in_phase || rank->phase != PROGRESS_STEPS;
    told->is_preparing = told->is_preparing || rank->phase == PROGRESS_PREPARING;
    if (rank->advances >= 2 && moved_us < told->oldest_us) {
        told->oldest_us = moved_us;
        told->oldest_rank = (int32_t)index;
    }
}

static struct told look_at_all(const struct hang_job *job, const struct hang_rank *ranks,
                               const struct rdzv_rank *states, uint32_t world,
                               const struct hang_limits *limits, uint64_t now_us)
{
    bool any_heard = false; /* false in a restarted server, until a message comes */
    struct told told = {.all_tell_again = true,
                        .silent_rank = -1,
                        .oldest_rank = -1,
                        .silent_at_us = UINT64_MAX,
                        .oldest_us = UINT64_MAX};

    for (uint32_t i = 0; i < world; i++)
        if (ranks[i].heard_us > 0 && states[i].state == RANK_RUNNING) {
            look_at(job, &ranks[i], i, limits, now_us, &told);
            any_heard = true;
        }
    told.all_tell_again = told.all_tell_again && any_heard;
    return told;
}

/* Judges steps: the newest of the job, or those of a rank that stays behind the others for too
 * long. */
static struct hang_doubt judge_steps(const struct hang_job *job, const struct told *told,
                                     const struct hang_limits *limits)
{
    const uint64_t p99_us = limits->timeout_us == 0 ? hang_p99_us(job) : 0;
    struct hang_doubt doubt = {
        .why = HANG_STEPS,
        .rank = -1,
        .since_us = later(job->moved_us, job->floor_us),
        .limit_us = limits->timeout_us != 0 ? limits->timeout_us
                                            : later(limits->least_us, HANG_STEP_FACTOR * p99_us),
        .wants_idle = limits->timeout_us == 0 && !told->all_tell_again,
    };

    if (told->oldest_rank >= 0 && told->oldest_us < doubt.since_us) {
        doubt.since_us = told->oldest_us;
        doubt.rank = told->oldest_rank;
    }
    return doubt;
}

static struct hang_doubt judge_others(const struct hang_job *job, const struct told *told,
                                      const struct hang_limits *limits)
{
    struct hang_doubt doubt = {.why =
                                   told->in_phase && !told->is_preparing ? HANG_PHASE : HANG_FIRST,
                               .rank = -1,
                               .since_us = later(job->moved_us, job->floor_us),
                               .limit_us = limits->first_us};

    if (limits->timeout_us > doubt.limit_us)
        doubt.limit_us = limits->timeout_us;
    if (!job->has_told) {
        doubt.why = HANG_IDLE;
        doubt.since_us = job->floor_us;
        doubt.limit_us = limits->timeout_us;
        doubt.wants_idle = true;
    }
    return doubt;
}

/* A rank that is busy although no step comes may be doing something that it does not report, until
 * first_us. In that case its nodes are asked again every quarter of the limit. */
static void wait_for_idle(const struct hang_job *job, const struct hang_limits *limits,
                          uint64_t now_us, struct hang_doubt *doubt)
{
    const uint64_t quarter_us = doubt->limit_us / 4, lasted_us = age(now_us, doubt->since_us);

    if (doubt->why != HANG_IDLE && lasted_us >= later(doubt->limit_us, limits->first_us)) {
        doubt->wants_idle = false;
        doubt->is_over = true;
        return;
    }
    doubt->is_over = lasted_us >= doubt->limit_us && job->idle_since_us > 0 &&
                     age(now_us, job->idle_since_us) >= doubt->limit_us - quarter_us;
    doubt->next_us = now_us + quarter_us;
    if (!doubt->is_over && job->idle_since_us == 0 && lasted_us < quarter_us) {
        doubt->why = HANG_NOT;
        doubt->next_us = doubt->since_us + quarter_us;
    }
}

struct hang_doubt hang_judge(const struct hang_job *job, const struct hang_rank *ranks,
                             const struct rdzv_rank *states, uint32_t world,
                             const struct hang_limits *limits, uint64_t now_us)
{
    const struct told told = look_at_all(job, ranks, states, world, limits, now_us);
    struct hang_doubt doubt = {.why = HANG_NOT, .rank = -1, .next_us = UINT64_MAX};

    if (limits->timeout_us == TIME_US_MAX || (!job->has_told && limits->timeout_us == 0))
        return doubt;
    if (told.silent_rank >= 0)
        return (struct hang_doubt){.why = HANG_SILENT,
                                   .is_over = true,
                                   .rank = told.silent_rank,
                                   .since_us = told.silent_since_us,
                                   .limit_us = told.silent_limit_us};
    doubt = job->has_told && job->has_step && !told.in_phase ? judge_steps(job, &told, limits)
                                                             : judge_others(job, &told, limits);
    if (doubt.wants_idle) {
        wait_for_idle(job, limits, now_us, &doubt);
    } else {
        doubt.is_over = age(now_us, doubt.since_us) >= doubt.limit_us;
        doubt.next_us = doubt.since_us + doubt.limit_us;
        if (!doubt.is_over)
            doubt.why = HANG_NOT;
    }
    if (told.silent_at_us < doubt.next_us)
        doubt.next_us = told.silent_at_us;
    return doubt;
}

void hang_heard_idle(struct hang_job *job, const struct hang_doubt *doubt, bool idles,
                     uint64_t now_us)
{
    if (!idles) {
        job->idle_since_us = 0;
        if (doubt->why == HANG_IDLE)
            job->floor_us = now_us; /* it is busy: nothing else is known of its progress */
    } else if (job->idle_since_us == 0) {
        job->idle_since_us = now_us;
    }
}

/* -- which rank the others wait for ---------------------------------------------------------------- */

static void add(struct hang_blame *out, enum hang_reason reason, uint32_t rank, const char *where)
{
    if (out->count++ > 0 && (int32_t)rank > out->rank)
        return;
    out->reason = reason;
    out->rank = (int32_t)rank;
    out->where = where;
}

/* A stopped process. For a program that reports progress, the last report before it was stopped
 * says more than its stack. */
static void blame_stopped(const struct hang_rank *ranks, uint32_t world,
                          const struct part_rank_look *looks, uint32_t count,
                          struct hang_blame *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t rank = looks[i].rank;

        if (strcmp(looks[i].state, "T") == 0 || strcmp(looks[i].state, "t") == 0)
            add(out, HANG_STOPPED, rank,
                rank < world && ranks[rank].doing[0] != '\0' ? ranks[rank].doing : looks[i].where);
    }
}

/* A quiet rank counts only if others still report. */
static void blame_quiet(const struct hang_rank *ranks, const struct rdzv_rank *states,
                        uint32_t world, uint64_t now_us, struct hang_blame *out)
{
    uint32_t others = 0;

    for (uint32_t i = 0; i < world; i++) {
        if (ranks[i].again_us == 0 || states[i].state != RANK_RUNNING)
            continue;
        if (age(now_us, ranks[i].heard_us) >=
            later(QUIET_LEAST_US, HANG_STEP_FACTOR * ranks[i].again_us))
            add(out, HANG_QUIET, i, ranks[i].doing);
        else
            others++;
    }
    if (others == 0)
        *out = (struct hang_blame){.rank = -1, .where = ""};
}

/* Names the ranks with the lowest number, if others have a higher one. Ranks that report no number
 * are ignored. */
static void blame_lowest(const struct hang_rank *ranks, const struct rdzv_rank *states,
                         uint32_t world, bool by_collective, struct hang_blame *out)
{
    uint64_t lowest = UINT64_MAX, highest = 0;

    for (uint32_t i = 0; i < world; i++) {
        const uint64_t number = by_collective ? ranks[i].collectives : ranks[i].step;

        if (ranks[i].heard_us == 0 || number == 0)
            continue;
        if (states[i].state == RANK_RUNNING && number < lowest)
            lowest = number;
        highest = later(highest, number);
    }
    for (uint32_t i = 0; i < world && lowest < highest; i++)
        if (ranks[i].heard_us != 0 && states[i].state == RANK_RUNNING &&
            (by_collective ? ranks[i].collectives : ranks[i].step) == lowest)
            add(out, by_collective ? HANG_BEHIND : HANG_STEP, i, ranks[i].doing);
    out->its = lowest;
    out->others = highest;
}

static void blame_elsewhere(const struct part_rank_look *looks, uint32_t count,
                            struct hang_blame *out)
{
    bool any_waits = false;

    for (uint32_t i = 0; i < count; i++)
        any_waits = any_waits || looks[i].place == LOOK_COLLECTIVE;
    for (uint32_t i = 0; any_waits && i < count; i++)
        if (looks[i].place == LOOK_ELSEWHERE)
            add(out, HANG_ELSEWHERE, looks[i].rank, looks[i].where);
}

void hang_blame(const struct hang_rank *ranks, const struct rdzv_rank *states, uint32_t world,
                const struct part_rank_look *looks, uint32_t look_count, uint64_t now_us,
                struct hang_blame *out)
{
    *out = (struct hang_blame){.rank = -1, .where = ""};
    blame_stopped(ranks, world, looks, look_count, out);
    if (out->count == 0)
        blame_quiet(ranks, states, world, now_us, out);
    if (out->count == 0)
        blame_lowest(ranks, states, world, true, out);
    if (out->count == 0)
        blame_elsewhere(looks, look_count, out);
    if (out->count == 0)
        blame_lowest(ranks, states, world, false, out);
    for (uint32_t i = 0; i < look_count && out->where[0] == '\0' && out->count > 0; i++)
        if ((int32_t)looks[i].rank == out->rank)
            out->where = looks[i].where;
}

void hang_describe(const struct hang_blame *blame, const char *node, uint32_t world,
                   char text[REASON_BYTES_MAX])
{
    char who[128], more[32] = "", why[96] = "";

    if (blame->count > 1)
        (void)snprintf(more, sizeof more, " (and %u more)", blame->count - 1);
    (void)snprintf(who, sizeof who, "rank %d%s on %s", blame->rank, more, node);
    switch (blame->reason) {
    case HANG_NOBODY:
        text_format(text, "all ranks stand in the same place, as far as is known");
        return;
    case HANG_STOPPED:
        (void)snprintf(why, sizeof why, "whose process is stopped (SIGSTOP, or a debugger)");
        break;
    case HANG_QUIET:
        (void)snprintf(why, sizeof why, "which tells nothing any more");
        break;
    case HANG_BEHIND:
        (void)snprintf(why, sizeof why, "which has begun %llu collectives of %llu",
                       (unsigned long long)blame->its, (unsigned long long)blame->others);
        break;
    case HANG_STEP:
        (void)snprintf(why, sizeof why, "which is at step %llu of %llu",
                       (unsigned long long)blame->its, (unsigned long long)blame->others);
        break;
    case HANG_ELSEWHERE:
        (void)snprintf(why, sizeof why, "which is in no collective");
        break;
    }
    text_format(text, "%s%s, %s%s%.60s", world > 1 ? "the others wait for " : "", who, why,
                blame->where[0] != '\0' ? ": " : "", blame->where);
}
