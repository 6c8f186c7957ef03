/* The parts that need CUDA: the device's name, and which candidate is the fastest on it.
 *
 * A candidate is timed under the conditions of training: as a captured graph of ten runs, so that
 * the host's launch rate does not count; on random values, since a GPU takes less power and has a
 * higher clock on constant ones; after work of WARM_US, during which the clock rises. */
#include "worker/backend/cuda/plans/internal.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/io/mono.h"
#include "kernels/values.h"

#define RUNS 10                 /* timed together */
#define PASSES 2                /* the better one counts; one more run before them warms up */
#define WARM_US 200000          /* of work, before the first measurement */
#define ALIGN 256               /* bytes */
#define PIECE ((size_t)1 << 20) /* bytes of random values, copied over all operands */
#define FAILED 1e30F

static enum status fail(cudaError_t error, struct err *err)
{
    (void)cudaGetLastError();
    return err_set(err, STATUS_LIBRARY, (int)error, "timing plans: %s (%s)",
                   cudaGetErrorString(error), cudaGetErrorName(error));
}

enum status plan_device_open(uint32_t index, struct plan_device *device, struct err *err)
{
    struct cudaDeviceProp prop;
    cudaError_t error = cudaSetDevice((int)index);

    if (error == cudaSuccess)
        error = cudaGetDeviceProperties(&prop, (int)index);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return err_set(err, STATUS_UNSUPPORTED, (int)error, "CUDA device %u: %s", index,
                       cudaGetErrorString(error));
    }
    (void)snprintf(device->name, sizeof device->name, "%.63s", prop.name);
    device->capability = prop.major * 10 + prop.minor;
    device->processors = prop.multiProcessorCount;
    return STATUS_OK;
}

void plan_device_use(uint32_t index)
{
    (void)cudaSetDevice((int)index);
}

static size_t room(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Where each port of the request is in one piece of memory. Returns the total bytes. */
static size_t lay_out(const struct plan_request *request, char *memory, void *pointers[PLAN_PORTS])
{
    size_t at = 0;

    for (uint32_t port = 0; port < PLAN_PORTS; port++) {
        pointers[port] = NULL;
        if (!plan_takes(request, (enum plan_port)port))
            continue;
        pointers[port] = memory != NULL ? memory + at : NULL;
        at += room(plan_port_bytes(request, (enum plan_port)port));
    }
    return at;
}

struct stopwatch {
    cudaStream_t stream;
    cudaEvent_t from, to;
    char *memory; /* operands, then workspace */
    size_t bytes; /* of `memory` */
    void *piece;  /* on the host */
    bool is_filled;
    enum graph_dtype type; /* of the random values in memory */
};

static size_t workspace_of(const struct plan *plan, uint32_t candidate)
{
    return plan->is_linear ? plan->lt.algorithms[candidate].workspaceSize
                           : plan->candidates[candidate].workspace_bytes;
}

/* Random values of the type, between -1 and 1; by splitmix64 (Steele, Lea, Flood 2014). */
static void draw_piece(void *piece, enum graph_dtype type)
{
    uint64_t state = 1;

    for (size_t i = 0; i < PIECE / (type == GRAPH_F32 ? 4 : 2); i++) {
        uint64_t z = state += 0x9e3779b97f4a7c15U;

        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
        z = (z ^ z >> 27) * 0x94d049bb133111ebU;
        values_set(piece, (enum kernel_type)type, i,
                   (float)(int32_t)((z ^ z >> 31) >> 40) * 0x1p-23F - 1.0F);
    }
}

static cudaError_t fill(struct stopwatch *watch, enum graph_dtype type)
{
    size_t done = watch->bytes < PIECE ? watch->bytes : PIECE;
    cudaError_t error;

    if (watch->is_filled && watch->type == type)
        return cudaSuccess;
    draw_piece(watch->piece, type);
    error =
        cudaMemcpyAsync(watch->memory, watch->piece, done, cudaMemcpyHostToDevice, watch->stream);
    while (error == cudaSuccess && done < watch->bytes) {
        const size_t more = done < watch->bytes - done ? done : watch->bytes - done;

        error = cudaMemcpyAsync(watch->memory + done, watch->memory, more, cudaMemcpyDeviceToDevice,
                                watch->stream);
        done += more;
    }
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(watch->stream); /* `piece` is overwritten later */
    watch->is_filled = true;
    watch->type = type;
    return error;
}

/* One run of a candidate, which may be captured. */
struct run {
    struct plan_set *set;
    struct plan *plan;
    uint32_t candidate;
};

static bool queue_runs(const struct run *run, const struct stopwatch *watch, int count)
{
    void *pointers[PLAN_PORTS];
    const size_t operands = lay_out(&run->plan->request, watch->memory, pointers);

    for (int i = 0; i < count; i++)
        if (plan_queue(run->set, run->plan, run->candidate, watch->stream, watch->memory + operands,
                       pointers, NULL) != STATUS_OK)
            return false;
    return true;
}

/* RUNS runs as a graph; NULL if they cannot be captured. */
static cudaGraphExec_t capture(const struct run *run, const struct stopwatch *watch)
{
    cudaGraphExec_t graph = NULL;
    cudaGraph_t drawn = NULL;
    bool is_whole;

    if (cudaStreamBeginCapture(watch->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
        return NULL;
    is_whole = queue_runs(run, watch, RUNS);
    if (cudaStreamEndCapture(watch->stream, &drawn) != cudaSuccess)
        is_whole = false;
    if (is_whole && cudaGraphInstantiate(&graph, drawn, 0) != cudaSuccess)
        graph = NULL;
    if (drawn != NULL)
        (void)cudaGraphDestroy(drawn);
    return graph;
}

/* Microseconds of one run in `graph`, or queued one by one where it is NULL. */
static float time_pass(const struct run *run, const struct stopwatch *watch, cudaGraphExec_t graph)
{
    float ms = 0;

    if (cudaEventRecord(watch->from, watch->stream) != cudaSuccess)
        return FAILED;
    if (graph != NULL ? cudaGraphLaunch(graph, watch->stream) != cudaSuccess
                      : !queue_runs(run, watch, RUNS))
        return FAILED;
    if (cudaEventRecord(watch->to, watch->stream) != cudaSuccess ||
        cudaEventSynchronize(watch->to) != cudaSuccess ||
        cudaEventElapsedTime(&ms, watch->from, watch->to) != cudaSuccess)
        return FAILED;
    return ms * 1000.0F / RUNS;
}

/* Returns FAILED for a candidate that fails; with `captured` also for one that cannot be
 * captured. */
static float time_one(const struct run *run, const struct stopwatch *watch, bool captured)
{
    cudaGraphExec_t graph = NULL;
    float best = FAILED;

    if (!queue_runs(run, watch, 1) || cudaStreamSynchronize(watch->stream) != cudaSuccess)
        return FAILED;
    if (captured) {
        graph = capture(run, watch);
        if (graph == NULL) {
            (void)cudaGetLastError();
            return FAILED;
        }
    }
    for (int pass = 0; pass < 1 + PASSES; pass++) {
        const float time_us = time_pass(run, watch, graph);

        if (pass > 0 && time_us < best)
            best = time_us;
    }
    if (graph != NULL)
        (void)cudaGraphExecDestroy(graph);
    return best;
}

static void tune_by(struct plan_set *set, struct plan *plan, const struct stopwatch *watch,
                    bool captured)
{
    plan->info.time_us = FAILED;
    for (uint32_t i = 0; i < plan->candidate_count; i++) {
        const struct run run = {set, plan, i};
        const float time_us = time_one(&run, watch, captured);

        if (time_us < plan->info.time_us) {
            plan->info.time_us = time_us;
            plan->chosen = i;
        }
    }
}

/* A candidate that cannot be captured would make every step eager: it is chosen only if there is no
 * other. */
static void tune(struct plan_set *set, struct plan *plan, const struct stopwatch *watch)
{
    tune_by(set, plan, watch, true);
    if (plan->info.time_us >= FAILED)
        tune_by(set, plan, watch, false);
    if (plan->info.time_us >= FAILED) {
        plan->info.time_us = 0;
        plan->info.status = STATUS_UNSUPPORTED;
        (void)snprintf(plan->info.engine, sizeof plan->info.engine, "no candidate could run");
    }
}

/* Work for WARM_US: runs the plan's first candidate, or writes to memory if that fails. */
static cudaError_t warm_up(struct plan_set *set, struct plan *plan, const struct stopwatch *watch)
{
    const struct run run = {set, plan, 0};
    const uint64_t end_us = mono_us() + WARM_US;
    cudaError_t error = cudaSuccess;

    while (error == cudaSuccess && mono_us() < end_us) {
        if (!queue_runs(&run, watch, RUNS))
            error = cudaMemsetAsync(watch->memory, 1, watch->bytes, watch->stream);
        if (error == cudaSuccess)
            error = cudaStreamSynchronize(watch->stream);
    }
    return error;
}

/* A single candidate is timed too: DDP_CUDA_STATS=auto needs its time, and the candidate may fail
 * to run. */
static bool needs_tuning(const struct plan_set *set, uint32_t index)
{
    const struct plan *plan = &set->plans[index];

    if (plan->built_as != index || plan->info.from_cache)
        return false;
    return plan->candidate_count > 1 || (plan->candidate_count == 1 && set->candidates > 1);
}

static size_t memory_needed(const struct plan_set *set)
{
    size_t most = 0;

    for (uint32_t i = 0; i < set->count; i++) {
        const struct plan *plan = &set->plans[i];
        void *pointers[PLAN_PORTS];
        size_t operands;

        if (!needs_tuning(set, i))
            continue;
        operands = lay_out(&plan->request, NULL, pointers);
        for (uint32_t k = 0; k < plan->candidate_count; k++)
            if (operands + workspace_of(plan, k) > most)
                most = operands + workspace_of(plan, k);
    }
    return most;
}

/* Once: there is a set for each batch size, and each may lack memory. */
static void report_no_memory(const struct plan_set *set, size_t bytes)
{
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    char text[256];

    if (set->note == NULL || atomic_flag_test_and_set(&is_said))
        return;
    (void)snprintf(
        text, sizeof text,
        "no %zu MiB free on CUDA device %u to time plans with: cuDNN's first proposals "
        "are taken, and not kept in the cache. Free memory on that GPU or give a smaller "
        "-b; the next run times them",
        bytes >> 20, set->device_index);
    set->note(set->note_user, text);
}

static cudaError_t open_watch(struct stopwatch *watch)
{
    cudaError_t error = cudaStreamCreateWithFlags(&watch->stream, cudaStreamNonBlocking);

    if (error == cudaSuccess)
        error = cudaEventCreate(&watch->from);
    if (error == cudaSuccess)
        error = cudaEventCreate(&watch->to);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&watch->memory, watch->bytes);
    watch->piece = malloc(PIECE);
    return error == cudaSuccess && watch->piece == NULL ? cudaErrorMemoryAllocation : error;
}

static void close_watch(struct stopwatch *watch)
{
    if (watch->stream != NULL)
        (void)cudaStreamSynchronize(watch->stream);
    (void)cudaFree(watch->memory);
    if (watch->to != NULL)
        (void)cudaEventDestroy(watch->to);
    if (watch->from != NULL)
        (void)cudaEventDestroy(watch->from);
    if (watch->stream != NULL)
        (void)cudaStreamDestroy(watch->stream);
    free(watch->piece);
}

enum status plan_tune_all(struct plan_set *set, struct err *err)
{
    struct stopwatch watch = {.bytes = memory_needed(set)};
    bool is_warm = false;
    cudaError_t error;

    if (watch.bytes == 0)
        return STATUS_OK;
    error = open_watch(&watch);
    for (uint32_t i = 0; i < set->count && error == cudaSuccess; i++) {
        struct plan *plan = &set->plans[i];

        if (!needs_tuning(set, i))
            continue;
        error = fill(&watch, plan->request.type);
        if (error == cudaSuccess && !is_warm)
            error = warm_up(set, plan, &watch);
        is_warm = true;
        if (error == cudaSuccess)
            tune(set, plan, &watch);
    }
    close_watch(&watch);
    set->stream = NULL; /* the stream is destroyed; the next run sets the handle's stream again */
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        report_no_memory(set, watch.bytes);
        return STATUS_OK;
    }
    return error == cudaSuccess ? STATUS_OK : fail(error, err);
}
