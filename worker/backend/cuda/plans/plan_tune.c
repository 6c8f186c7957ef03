/* The parts that need CUDA: the device's name, and which candidate is the fastest on it. */
#include "worker/backend/cuda/plans/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#define RUNS 4       /* timed together, after one that warms up */
#define ALIGN 256    /* bytes */
#define PATTERN 0x3c /* every byte: 1.06 as fp16, small as bf16 and fp32, true as a mask */

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

/* Where each port of the request lies in one piece of memory. Returns the bytes of all. */
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
};

static size_t workspace_of(const struct plan *plan, uint32_t candidate)
{
    return plan->is_linear ? plan->lt.algorithms[candidate].workspaceSize
                           : plan->candidates[candidate].workspace_bytes;
}

/* Microseconds of one run; 1e30 for a candidate that fails. */
static float time_one(struct plan_set *set, struct plan *plan, uint32_t candidate,
                      const struct stopwatch *watch)
{
    void *pointers[PLAN_PORTS];
    const size_t operands = lay_out(&plan->request, watch->memory, pointers);
    float ms = 0;

    for (int i = 0; i < RUNS + 1; i++) {
        if (i == 1 && cudaEventRecord(watch->from, watch->stream) != cudaSuccess)
            return 1e30F;
        if (plan_queue(set, plan, candidate, watch->stream, watch->memory + operands, pointers,
                       NULL) != STATUS_OK)
            return 1e30F;
    }
    if (cudaEventRecord(watch->to, watch->stream) != cudaSuccess ||
        cudaEventSynchronize(watch->to) != cudaSuccess ||
        cudaEventElapsedTime(&ms, watch->from, watch->to) != cudaSuccess)
        return 1e30F;
    return ms * 1000.0F / RUNS;
}

static void tune(struct plan_set *set, struct plan *plan, const struct stopwatch *watch)
{
    plan->info.time_us = 1e30F;
    for (uint32_t i = 0; i < plan->candidate_count; i++) {
        const float time_us = time_one(set, plan, i, watch);

        if (time_us < plan->info.time_us) {
            plan->info.time_us = time_us;
            plan->chosen = i;
        }
    }
    if (plan->info.time_us >= 1e30F) {
        plan->info.time_us = 0;
        plan->info.status = STATUS_UNSUPPORTED;
        (void)snprintf(plan->info.engine, sizeof plan->info.engine, "no candidate could run");
    }
}

/* A single candidate is timed too: DDP_CUDA_STATS=auto needs its time, and it may fail to run. */
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

static void report_no_memory(const struct plan_set *set, size_t bytes)
{
    char text[160];

    if (set->note == NULL)
        return;
    (void)snprintf(text, sizeof text,
                   "no %zu MiB on the device to time plans with: cuDNN's first proposals are taken",
                   bytes >> 20);
    set->note(set->note_user, text);
}

enum status plan_tune_all(struct plan_set *set, struct err *err)
{
    const size_t bytes = memory_needed(set);
    struct stopwatch watch = {NULL, NULL, NULL, NULL};
    cudaError_t error;

    if (bytes == 0)
        return STATUS_OK;
    error = cudaStreamCreateWithFlags(&watch.stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreate(&watch.from);
    if (error == cudaSuccess)
        error = cudaEventCreate(&watch.to);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&watch.memory, bytes);
    if (error == cudaSuccess)
        error = cudaMemset(watch.memory, PATTERN, bytes);
    if (error == cudaSuccess)
        error = cudaDeviceSynchronize();
    for (uint32_t i = 0; i < set->count && error == cudaSuccess; i++)
        if (needs_tuning(set, i))
            tune(set, &set->plans[i], &watch);
    if (watch.stream != NULL)
        (void)cudaStreamSynchronize(watch.stream);
    (void)cudaFree(watch.memory);
    if (watch.to != NULL)
        (void)cudaEventDestroy(watch.to);
    if (watch.from != NULL)
        (void)cudaEventDestroy(watch.from);
    if (watch.stream != NULL)
        (void)cudaStreamDestroy(watch.stream);
    set->stream = NULL; /* it is gone; the handle is set anew */
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        report_no_memory(set, bytes);
        return STATUS_OK;
    }
    return error == cudaSuccess ? STATUS_OK : fail(error, err);
}
