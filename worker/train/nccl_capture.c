/* Tests once, before training, whether collectives of the communicator can be captured. A
 * non-blocking NCCL communicator queues them from a thread of its own, which a capture may not see.
 * In that case all ranks make a blocking communicator instead. They have to agree on that, since
 * making one needs all of them. */
#include "worker/train/internal.h"

#include <time.h>

#include "common/io/mono.h"
#include "common/log.h"
#include "worker/backend/cuda/module/runtime.h"

enum { TRIAL_BYTES = 256, TRIAL_TIMEOUT_US = 60 * 1000000, NAP_NS = 1000000 };

/* What the trial works with. */
struct trial {
    const struct train *train;
    const struct cuda_runtime *runtime;
    struct CUstream_st *stream;
    struct CUevent_st *passed;
    void *memory;
};

static enum status sum(const struct trial *trial, struct err *err)
{
    return trial->train->device->nccl->queue_sum(trial->train->nccl_link, trial->memory,
                                                 TRIAL_BYTES / sizeof(float), GRAPH_F32,
                                                 trial->stream, err);
}

/* Waits until the stream has passed the event; gives up if a peer is lost. */
static enum status wait_passed(const struct trial *trial, struct err *err)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const uint64_t deadline_us = mono_us() + TRIAL_TIMEOUT_US;
    bool passed = false;
    enum status status = trial->runtime->event_record(trial->passed, trial->stream, err);

    while (status == STATUS_OK && !passed) {
        status = trial->runtime->event_passed(trial->passed, &passed, err);
        if (status == STATUS_OK)
            status = comm_lost(trial->train->comm, "the first collective", err);
        if (status == STATUS_OK && mono_us() > deadline_us)
            status = err_set(err, STATUS_TIMEOUT, 0, "NCCL: the first collective did not end");
        if (!passed)
            (void)nanosleep(&nap, NULL);
    }
    return status;
}

/* The captured graph is discarded: launching it would be a collective of all ranks. */
static enum status capture(const struct trial *trial, struct err *err)
{
    struct CUgraphExec_st *graph = NULL;
    struct err ignored;
    enum status status = trial->runtime->capture_begin(trial->stream, err), ended;

    if (status != STATUS_OK)
        return status;
    status = sum(trial, err);
    ended =
        trial->runtime->capture_end(trial->stream, &graph, status == STATUS_OK ? err : &ignored);
    trial->runtime->graph_free(&graph);
    return status == STATUS_OK ? ended : status;
}

static enum status open_trial(struct trial *trial, struct err *err)
{
    enum status status = trial->runtime->stream_new(&trial->stream, err);

    if (status == STATUS_OK)
        status = trial->runtime->event_new(&trial->passed, err);
    return status == STATUS_OK ? trial->runtime->memory_new(&trial->memory, TRIAL_BYTES, err)
                               : status;
}

static void close_trial(struct trial *trial)
{
    trial->runtime->memory_free(&trial->memory);
    trial->runtime->event_free(&trial->passed);
    trial->runtime->stream_free(&trial->stream);
}

enum status train_nccl_try_capture(struct train *train, bool *can_capture, struct err *err)
{
    struct trial trial = {.train = train, .runtime = train->device->runtime};
    struct err why = {.text = ""};
    float refusals = 0.0F;
    enum status status = open_trial(&trial, err);

    if (status == STATUS_OK)
        status = sum(&trial, err); /* connections are made by the first */
    if (status == STATUS_OK)
        status = wait_passed(&trial, err);
    if (status == STATUS_OK && capture(&trial, &why) != STATUS_OK)
        refusals = 1.0F;
    close_trial(&trial);
    if (status == STATUS_OK)
        status = comm_all_reduce_sum(train->comm, &refusals, 1, err);
    *can_capture = refusals == 0.0F;
    if (status == STATUS_OK && !*can_capture)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "NCCL's collectives cannot be captured without blocking (%.120s): a blocking "
                 "communicator is used",
                 why.text[0] != '\0' ? why.text : "on another rank");
    return status;
}
