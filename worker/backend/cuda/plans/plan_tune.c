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

struct plan_watch {
    cudaStream_t stream;
    cudaEvent_t from, to;
    char *memory; /* operands, then workspace; grows with what is timed */
    size_t bytes; /* of `memory` */
    void *piece;  /* on the host */
    bool is_filled, is_warm;
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

static cudaError_t fill(struct plan_watch *watch, enum graph_dtype type)
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

static bool queue_runs(const struct run *run, const struct plan_watch *watch, int count)
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
static cudaGraphExec_t capture(const struct run *run, const struct plan_watch *watch)
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
static float time_pass(const struct run *run, const struct plan_watch *watch, cudaGraphExec_t graph)
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
static float time_one(const struct run *run, const struct plan_watch *watch, bool captured)
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

static void tune_by(struct plan_set *set, struct plan *plan, const struct plan_watch *watch,
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
static void tune(struct plan_set *set, struct plan *plan, const struct plan_watch *watch)
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
static cudaError_t warm_up(struct plan_set *set, struct plan *plan, const struct plan_watch *watch)
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

/* Once for a process: each set may lack memory. */
static void report_no_memory(const struct plan_set *set, size_t bytes)
{
    static atomic_flag is_said = ATOMIC_FLAG_INIT;
    char text[256];

    if (set->note == NULL || atomic_flag_test_and_set(&is_said))
        return;
    (void)snprintf(text, sizeof text,
                   "no %zu MiB free on CUDA device %u to time plans with: cuDNN's first proposals "
                   "are taken. Free memory on that GPU or give a smaller -b; the next run times "
                   "them",
                   bytes >> 20, set->device_index);
    set->note(set->note_user, text);
}

enum status plan_watch_open(struct plan_watch **out, struct err *err)
{
    struct plan_watch *watch = calloc(1, sizeof *watch);
    cudaError_t error = cudaErrorMemoryAllocation;

    *out = watch;
    if (watch != NULL)
        error = cudaStreamCreateWithFlags(&watch->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreate(&watch->from);
    if (error == cudaSuccess)
        error = cudaEventCreate(&watch->to);
    if (error == cudaSuccess) {
        watch->piece = malloc(PIECE);
        error = watch->piece == NULL ? cudaErrorMemoryAllocation : cudaSuccess;
    }
    return error == cudaSuccess ? STATUS_OK : fail(error, err);
}

void plan_watch_close(struct plan_watch **out, struct plan_set *set)
{
    struct plan_watch *watch = *out;

    if (watch == NULL)
        return;
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
    free(watch);
    *out = NULL;
    set->owner->stream = NULL; /* it is destroyed; the next run sets the handle's stream again */
}

static size_t memory_needed(const struct plan *plan)
{
    void *pointers[PLAN_PORTS];
    const size_t operands = lay_out(&plan->request, NULL, pointers);
    size_t workspace = 0;

    for (uint32_t i = 0; i < plan->candidate_count; i++)
        if (workspace_of(plan, i) > workspace)
            workspace = workspace_of(plan, i);
    return operands + workspace;
}

/* The costliest plans come first, so the memory rarely grows. */
static cudaError_t grow(struct plan_watch *watch, size_t bytes)
{
    cudaError_t error;

    if (bytes <= watch->bytes)
        return cudaSuccess;
    (void)cudaFree(watch->memory);
    watch->memory = NULL;
    watch->bytes = 0;
    watch->is_filled = false;
    error = cudaMalloc((void **)&watch->memory, bytes);
    if (error == cudaSuccess)
        watch->bytes = bytes;
    return error;
}

enum status plan_watch_fit(struct plan_watch *watch, const struct plan_set *set,
                           const struct plan *plan, struct err *err)
{
    const size_t bytes = memory_needed(plan);
    const cudaError_t error = grow(watch, bytes);

    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        report_no_memory(set, bytes);
        return STATUS_MEMORY;
    }
    return error == cudaSuccess ? STATUS_OK : fail(error, err);
}

enum status plan_time(struct plan_watch *watch, struct plan_set *set, struct plan *plan,
                      struct err *err)
{
    cudaError_t error;

    error = memory_needed(plan) <= watch->bytes ? cudaSuccess : cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = fill(watch, plan->request.type);
    if (error == cudaSuccess && !watch->is_warm)
        error = warm_up(set, plan, watch);
    watch->is_warm = true;
    if (error != cudaSuccess)
        return fail(error, err);
    tune(set, plan, watch);
    return STATUS_OK;
}
