#include "ddpctl/follow.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "common/options.h"

#define WAIT_US 10000000u        /* how long the server may wait for new bytes before it answers */
#define PROBLEM_PAUSE_US 100000u /* pause before a log that could not be read is requested again */
#define EARLY_US 1000000u        /* an answer without new bytes before that came too early */
#define PROBLEMS_MAX 50u         /* most errors in a row for a log that is no longer written to */

void follow_init(struct follow *follow, const struct follow_options *options)
{
    memset(follow, 0, offsetof(struct follow, ranks)); /* their table is large: see follow_job */
    follow->options = *options;
    follow->only_one = options->generation > 0 || options->previous;
}

uint32_t follow_world(const struct part_job *job)
{
    return (job->nodes_max > job->nodes ? job->nodes_max : job->nodes) * job->nproc_per_node;
}

/* Puts every rank at the start of its log of `generation`. */
static void begin_generation(struct follow *follow, uint32_t generation)
{
    assert(generation > 0 && generation <= follow->current);
    follow->generation = generation;
    for (uint32_t i = 0; i < follow->world; i++)
        follow->ranks[i] = (struct follow_rank){.wanted = follow->ranks[i].wanted,
                                                .ordinal = follow->ranks[i].ordinal};
}

static enum status choose_ranks(struct follow *follow, const struct msg_job_info *info,
                                struct err *err)
{
    const struct follow_options *options = &follow->options;
    uint32_t wanted = 0;

    if (options->ranks_failed) {
        int64_t failed =
            info->crashed_generation > 0 ? (int64_t)info->crashed_rank : info->failed_rank;

        if (failed < 0 || failed >= follow->world)
            return err_set(err, STATUS_NOT_FOUND, 0, "no rank of this job has failed");
        follow->ranks[failed].wanted = true;
        return STATUS_OK;
    }
    for (uint32_t i = 0; i < RANKS_PER_JOB_MAX; i++) {
        bool is_wanted = options->ranks_all ? i < FOLLOW_RANKS_MAX
                                            : (options->rank_mask[i / 8] >> (i % 8) & 1) != 0;

        if (is_wanted && i >= follow->world && !options->ranks_all)
            return err_set(err, STATUS_NOT_FOUND, 0,
                           "there is no rank %u: the job has ranks 0 to %u", i, follow->world - 1);
        if (!is_wanted || i >= follow->world)
            continue;
        if (wanted == FOLLOW_RANKS_MAX)
            return err_set(err, STATUS_TOO_BIG, 0,
                           "more than %u ranks are selected: ask for fewer with --rank",
                           FOLLOW_RANKS_MAX);
        follow->ranks[i].wanted = true;
        follow->ranks[i].ordinal = wanted++;
    }
    return wanted > 0 ? STATUS_OK : err_set(err, STATUS_NOT_FOUND, 0, "no rank is selected");
}

/* Where nothing else is asked for. Of the failed rank: the generation in which it failed. */
static uint32_t default_generation(const struct follow *follow, const struct msg_job_info *info)
{
    const struct follow_options *options = &follow->options;

    if (!options->ranks_failed)
        return follow->current;
    if (info->crashed_generation > 0 && info->crashed_generation <= follow->current)
        return info->crashed_generation;
    /* No failure is kept: version 1 stored the job. The failure of one that runs again was before. */
    return options->keep_on || follow->ended || follow->current < 2 ? follow->current
                                                                    : follow->current - 1;
}

static enum status choose_generation(struct follow *follow, const struct msg_job_info *info,
                                     struct err *err)
{
    const struct follow_options *options = &follow->options;
    uint32_t wanted = options->generation ? options->generation : default_generation(follow, info);

    if (options->previous && follow->current < 2)
        return err_set(err, STATUS_NOT_FOUND, 0,
                       "there is no previous generation: the job is at generation %u",
                       follow->current);
    if (options->previous)
        wanted = follow->current - 1;
    else if (options->generation == 0 && options->from_generation > 0)
        wanted = options->from_generation;
    if (wanted > follow->current) {
        if (options->keep_on && !follow->ended)
            return STATUS_OK; /* that generation may still start */
        return err_set(err, STATUS_NOT_FOUND, 0,
                       "there is no generation %u: the job is at generation %u", wanted,
                       follow->current);
    }
    begin_generation(follow, wanted);
    return STATUS_OK;
}

enum status follow_job(struct follow *follow, const struct msg_job_info *info, struct err *err)
{
    const struct part_job *job = &info->jobs.items[0];
    enum status status;

    assert(info->jobs.count == 1);
    if (follow->world == 0) {
        follow->job_id = job->job_id;
        follow->world = follow_world(job);
        follow->changes_size = job->nodes_min < job->nodes_max;
        if (follow->world > RANKS_PER_JOB_MAX)
            follow->world = RANKS_PER_JOB_MAX;
        memset(follow->ranks, 0, follow->world * sizeof follow->ranks[0]);
        status = choose_ranks(follow, info, err);
        if (status != STATUS_OK)
            return status;
    }
    if (job->generation > follow->current)
        follow->current = job->generation;
    if (job->ended)
        follow->ended = true;
    if (follow->generation == 0 && follow->current > 0)
        return choose_generation(follow, info, err);
    return STATUS_OK;
}

/* Whether the logs of the generation that we read are no longer written to. */
static bool is_over(const struct follow *follow)
{
    return follow->ended || follow->generation < follow->current;
}

void follow_go(struct follow *follow)
{
    follow->options.is_held = false;
}

bool follow_next(struct follow *follow, uint64_t now_us, struct msg_log_read *read,
                 uint64_t *ask_at_us)
{
    assert(follow->generation == 0 || follow->world > 0);
    if (follow->generation == 0 || (follow->options.is_held && !follow->ended))
        return false;
    for (uint32_t i = 0; i < follow->world; i++) {
        uint32_t rank = (follow->next_rank + i) % follow->world;
        struct follow_rank *cursor = &follow->ranks[rank];

        if (!cursor->wanted || cursor->asked || cursor->final)
            continue;
        if (cursor->ask_at_us > now_us) {
            if (cursor->ask_at_us < *ask_at_us)
                *ask_at_us = cursor->ask_at_us;
            continue;
        }
        cursor->asked = true;
        cursor->ask_at_us = now_us;
        follow->next_rank = (rank + 1) % follow->world;
        *read = (struct msg_log_read){
            .request_id = rank,
            .job_id = follow->job_id,
            .generation = follow->generation,
            .rank = rank,
            .offset = cursor->offset,
            .tail_lines = cursor->begun ? 0 : follow->options.tail_lines,
            .bytes_max = LOG_CHUNK_BYTES_MAX,
            .wait_us = follow->options.keep_on ? WAIT_US : 0,
            .what = follow->options.what,
        };
        return true;
    }
    return false;
}

/* Whether this generation did not have the rank, in a job whose generations differ in size. */
static bool is_absent(const struct follow *follow, const struct msg_log_data *data)
{
    return follow->changes_size && follow->options.ranks_all && data->is_final;
}

static enum follow_data take_problem(struct follow *follow, struct follow_rank *cursor,
                                     bool no_more, uint64_t now_us, bool *is_final)
{
    cursor->problems++;
    cursor->ask_at_us = now_us + PROBLEM_PAUSE_US;
    if (!no_more && follow->options.keep_on &&
        (!is_over(follow) || cursor->problems < PROBLEMS_MAX))
        return FOLLOW_NOTHING;
    cursor->final = *is_final = true;
    return FOLLOW_PROBLEM;
}

enum follow_data follow_take(struct follow *follow, const struct msg_log_data *data,
                             uint64_t now_us, uint32_t *rank, uint32_t *skip, bool *is_final)
{
    struct follow_rank *cursor;
    enum follow_data result = FOLLOW_SHOW;
    bool is_new;

    *skip = 0;
    *is_final = false;
    if (data->request_id >= follow->world || !follow->ranks[data->request_id].asked)
        return FOLLOW_UNASKED;
    *rank = (uint32_t)data->request_id;
    cursor = &follow->ranks[*rank];
    cursor->asked = false;
    if (data->problem[0] != '\0' && is_absent(follow, data)) {
        cursor->final = *is_final = true;
        return FOLLOW_NOTHING;
    }
    if (data->problem[0] != '\0')
        return take_problem(follow, cursor, data->is_final, now_us, is_final);
    cursor->problems = 0;
    if (!cursor->begun && follow->options.tail_lines > 0)
        cursor->offset = data->offset;
    if (data->offset > cursor->offset)
        result = FOLLOW_GAP;
    else
        *skip = cursor->offset - data->offset < data->bytes.count
                    ? (uint32_t)(cursor->offset - data->offset)
                    : data->bytes.count;
    is_new = data->offset + data->bytes.count > cursor->offset;
    if (!is_new && now_us - cursor->ask_at_us < EARLY_US) /* it did not wait for more */
        cursor->ask_at_us = now_us + PROBLEM_PAUSE_US;
    if (data->bytes.count > 0) {
        cursor->begun = true;
        if (data->offset + data->bytes.count > cursor->offset)
            cursor->offset = data->offset + data->bytes.count;
    }
    if (!follow->options.keep_on && cursor->end == 0)
        cursor->end = data->size; /* read only up to here, even if the log grows meanwhile */
    if (data->is_final || (!is_new && !follow->options.keep_on) ||
        (cursor->end > 0 && cursor->offset >= cursor->end))
        cursor->final = *is_final = true;
    return result == FOLLOW_SHOW && *skip == data->bytes.count ? FOLLOW_NOTHING : result;
}

void follow_lost(struct follow *follow, uint32_t first, uint32_t stride)
{
    assert(stride > 0);
    for (uint32_t i = 0; i < follow->world; i++)
        if (follow->ranks[i].ordinal % stride == first)
            follow->ranks[i].asked = false;
}

static bool generation_read(const struct follow *follow)
{
    for (uint32_t i = 0; i < follow->world; i++)
        if (follow->ranks[i].wanted && !follow->ranks[i].final)
            return false;
    return follow->generation > 0;
}

bool follow_turn(struct follow *follow)
{
    if (follow->only_one || !(follow->options.keep_on || follow->options.to_current) ||
        follow->generation >= follow->current || !generation_read(follow))
        return false;
    follow->options.tail_lines = 0; /* it applies only to the first generation */
    begin_generation(follow, follow->generation + 1);
    return true;
}

bool follow_done(const struct follow *follow)
{
    if (follow->world == 0)
        return false;
    if (follow->generation == 0) /* the job has not started yet, or never did */
        return follow->ended || !follow->options.keep_on;
    if (!generation_read(follow))
        return false;
    if (!follow->options.keep_on && follow->options.to_current && !follow->only_one)
        return follow->generation == follow->current;
    return follow->only_one || !follow->options.keep_on ||
           (follow->ended && follow->generation == follow->current);
}

enum status follow_ranks_parse(const char *text, struct follow_options *options, uint8_t *mask,
                               struct err *err)
{
    options->ranks_all = strcmp(text, "all") == 0;
    options->ranks_failed = strcmp(text, "failed") == 0;
    options->rank_mask = mask;
    memset(mask, 0, RANKS_PER_JOB_MAX / 8);
    if (options->ranks_all || options->ranks_failed)
        return STATUS_OK;
    while (*text) {
        size_t length = strcspn(text, ",");
        uint64_t first, last;
        char part[32], *dash;
        enum status status;

        if (length == 0 || length >= sizeof part || (text[length] == ',' && !text[length + 1]))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "--rank: '%.40s' should be like 0,4-7, all or failed", text);
        memcpy(part, text, length);
        part[length] = '\0';
        dash = strchr(part, '-');
        if (dash)
            *dash = '\0';
        status = options_parse_number("--rank", part, 0, RANKS_PER_JOB_MAX - 1, &first, err);
        last = first;
        if (status == STATUS_OK && dash)
            status =
                options_parse_number("--rank", dash + 1, first, RANKS_PER_JOB_MAX - 1, &last, err);
        if (status != STATUS_OK)
            return status;
        for (uint64_t i = first; i <= last; i++)
            mask[i / 8] = (uint8_t)(mask[i / 8] | 1u << (i % 8));
        text += length + (text[length] == ',');
    }
    return STATUS_OK;
}
