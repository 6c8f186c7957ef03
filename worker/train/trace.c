/* --trace: where the time of some steps goes, on all ranks and on one clock.
 *
 * Without "%r" in the name there is one file: rank 0 writes its spans as they come, and after the last traced step
 * the other ranks send it theirs. With "%r" each rank writes its own file, and nothing is sent. Times are on rank
 * 0's clock: ranks on the same machine share it, the others measure the offset of theirs. */
#include "worker/train/internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/boot_id.h"
#include "worker/comm/clock.h"
#include "worker/metrics/metrics.h"
#include "worker/net/state.h"

static uint64_t read_clock(void *user)
{
    (void)user;
    return mono_us();
}

/* Identifies this boot of the machine, and so its monotonic clock; "": unknown. */
static void read_boot(char boot[BOOT_ID_BYTES])
{
    bool is_kernels;

    memset(boot, 0, BOOT_ID_BYTES);
    boot_id_read(boot, &is_kernels);
    if (!is_kernels)
        memset(boot, 0, BOOT_ID_BYTES);
}

/* Measures the clocks of the ranks that do not have rank 0's. */
static enum status measure(struct train *train, const char *boots, struct comm_clock *clock,
                           struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t r = 1; status == STATUS_OK && r < train->place->world; r++) {
        const char *boot = boots + (size_t)r * BOOT_ID_BYTES;
        struct comm_clock one;

        if (boot[0] != '\0' && memcmp(boot, boots, BOOT_ID_BYTES) == 0)
            continue;
        status =
            comm_clock_measure(train->comm, train->place->rank, r, read_clock, NULL, &one, err);
        if (r == train->place->rank)
            *clock = one;
    }
    return status;
}

/* `base_us`: rank 0's time when this began, where the trace's times begin. */
static enum status agree_clock(struct train *train, struct comm_clock *clock, uint64_t *base_us,
                               struct err *err)
{
    char mine[BOOT_ID_BYTES], *boots;
    enum status status;

    *clock = (struct comm_clock){0};
    *base_us = mono_us();
    if (train->comm == NULL)
        return STATUS_OK;
    boots = calloc(train->place->world, BOOT_ID_BYTES);
    if (boots == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for --trace");
    read_boot(mine);
    status = comm_all_gather(train->comm, mine, sizeof mine, boots, err);
    if (status == STATUS_OK)
        status = measure(train, boots, clock, err);
    if (status == STATUS_OK)
        status = comm_broadcast(train->comm, base_us, sizeof *base_us, 0, err);
    free(boots);
    return status;
}

static bool has_own_file(const struct train *train)
{
    return strstr(train->options->trace, "%r") != NULL || train->place->rank == 0;
}

static enum status open_trace(struct train *train, const struct comm_clock *clock, uint64_t base_us,
                              struct err *err)
{
    const bool is_queue = train->device->backend != &backend_cpu;
    char path[OPTIONS_PATH_BYTES], label[128];
    struct err why = {.text = ""};
    const struct trace_options options = {
        .path = has_own_file(train) ? path : NULL,
        .rank = train->place->rank,
        .node = train->place->node,
        .label = label,
        .shift_us = clock->offset_us - (int64_t)base_us,
    };
    enum status status =
        options_rank_path("--trace", train->options->trace, train->place->rank, path, err);

    (void)snprintf(label, sizeof label, "clock %+" PRId64 " us, at most %" PRIu64 " us off%s",
                   clock->offset_us, clock->error_us,
                   is_queue ? "; spans are when the host queued work, not when the device did it"
                            : "");
    if (status != STATUS_OK)
        return status;
    status = trace_open(&train->trace, &options, &why);
    return status == STATUS_OK
               ? STATUS_OK
               : err_set(err, status, why.code, "--trace %.120s: %.80s", path, why.text);
}

/* If a rank cannot open its file, all ranks still continue together; the failure of that rank then
 * ends them. */
enum status train_trace_open(struct train *train, struct err *err)
{
    struct comm_clock clock;
    uint64_t base_us;
    enum status status;

    if (train->options->trace == NULL)
        return STATUS_OK;
    status = agree_clock(train, &clock, &base_us, err);
    if (status == STATUS_OK)
        status = open_trace(train, &clock, base_us, err);
    trace_set(train->trace, train->options->evaluate);
    return status;
}

/* -- writing -- */

/* A failing writer is reported once, and the trace continues without what could not be written. */
static void tell(struct train *train, enum status status, const struct err *why)
{
    if (status == STATUS_OK || train->trace_has_failed)
        return;
    train->trace_has_failed = true;
    log_line(LOG_WARNING, train_log_about(train), "--trace %s: %s; training goes on",
             train->options->trace, why->text);
}

/* Rank `from` sends its text to rank 0. */
static enum status send_text(struct train *train, uint32_t from, uint64_t byte_count, char *mine,
                             struct err *err)
{
    const uint32_t ranks[] = {from, 0};
    const bool is_mine = from == train->place->rank;
    char *text = mine;
    struct err why = {.text = ""};
    enum status status;

    if (byte_count == 0)
        return STATUS_OK;
    if (train->place->rank == 0)
        text = malloc(byte_count);
    if (text == NULL && (is_mine || train->place->rank == 0))
        return err_set(err, STATUS_MEMORY, 0, "no memory for the trace of rank %u", from);
    status = comm_multicast(train->comm, text, byte_count, ranks, 2, err);
    if (status == STATUS_OK && train->place->rank == 0)
        tell(train, trace_add(train->trace, text, byte_count, &why), &why);
    if (train->place->rank == 0)
        free(text);
    return status;
}

static enum status gather(struct train *train, struct err *err)
{
    const uint32_t world = train->place->world;
    uint64_t *counts = calloc(world, sizeof *counts), count = 0;
    size_t mine_bytes = 0;
    char *mine = NULL;
    enum status status;

    if (counts == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for --trace");
    if (train->place->rank != 0)
        mine = trace_take(train->trace, &mine_bytes);
    count = mine_bytes;
    status = comm_all_gather(train->comm, &count, sizeof count, counts, err);
    for (uint32_t r = 1; status == STATUS_OK && r < world; r++)
        status = send_text(train, r, counts[r], mine, err);
    free(mine);
    free(counts);
    return status;
}

enum status train_trace_end(struct train *train, struct err *err)
{
    enum status status = STATUS_OK;

    if (train->trace == NULL)
        return STATUS_OK;
    trace_set(train->trace, false);
    if (train->comm != NULL && strstr(train->options->trace, "%r") == NULL) {
        struct err why = {.text = ""};

        tell(train, trace_write(train->trace, &why), &why);
        train_pause(train, AGENT_SAVING, "trace"); /* no rank begins a step before all have sent */
        status = gather(train, err);
    }
    train_trace_close(train);
    return status;
}

void train_trace_close(struct train *train)
{
    trace_close(&train->trace);
}

enum status train_trace_step(struct train *train, struct err *err)
{
    const uint32_t step = ++train->trace_step;
    struct err why = {.text = ""};

    if (train->trace == NULL)
        return STATUS_OK;
    if (step > train->options->trace_to)
        return train_trace_end(train, err);
    trace_set(train->trace, step >= train->options->trace_from);
    tell(train, trace_write(train->trace, &why), &why);
    return STATUS_OK;
}

/* -- gradients -- */

void train_trace_reduced(void *user, uint32_t bucket, uint64_t begun_us)
{
    struct train *train = user;
    char name[32];

    (void)snprintf(name, sizeof name, "bucket %u", bucket + 1);
    trace_span(train->trace, TRACE_REDUCTION, name, begun_us, "elements",
               net_bucket(train->net, bucket).count);
}

static enum status begin(void *context, struct err *err)
{
    const struct train *train = context;

    return train->reducer.begin(train->reducer.context, err);
}

static enum status bucket_ready(void *context, uint32_t index, struct err *err)
{
    const struct train *train = context;

    return train->reducer.bucket_ready(train->reducer.context, index, err);
}

static enum status finish(void *context, struct err *err)
{
    struct train *train = context;
    const uint64_t begun_us = trace_now(train->trace);
    const enum status status = train->reducer.finish(train->reducer.context, err);

    trace_span(train->trace, TRACE_TRAINING, "wait for reduction", begun_us, NULL, 0);
    return status;
}

void train_trace_reducer(struct train *train, struct reducer *reducer)
{
    if (train->trace == NULL || reducer->graphable)
        return;
    train->reducer = *reducer;
    reducer->context = train;
    reducer->begin = begin;
    reducer->bucket_ready = bucket_ready;
    reducer->finish = finish;
}
