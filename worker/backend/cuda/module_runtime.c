/* ddp_cuda.so: streams, events, memory and recorded steps over the CUDA runtime. */
#include "worker/backend/cuda/module_runtime.h"

#include <cuda_runtime_api.h>

static enum status check(cudaError_t error, const char *what, struct err *err)
{
    if (error == cudaSuccess)
        return STATUS_OK;
    (void)cudaGetLastError(); /* reported here; must not come up again in the next call */
    return err_set(err, error == cudaErrorMemoryAllocation ? STATUS_MEMORY : STATUS_LIBRARY,
                   (int)error, "CUDA %s: %s (%s)", what, cudaGetErrorString(error),
                   cudaGetErrorName(error));
}

static enum status device_use(uint32_t index, struct err *err)
{
    return check(cudaSetDevice((int)index), "device set-up", err);
}

static enum status memory_info(size_t *free_bytes, size_t *total_bytes, struct err *err)
{
    return check(cudaMemGetInfo(free_bytes, total_bytes), "memory information", err);
}

static void memory_free(void **memory)
{
    (void)cudaFree(*memory);
    *memory = NULL;
}

/* The memset is on the default stream, which ours do not wait for: so it is waited for here. */
static enum status memory_new(void **memory, size_t bytes, struct err *err)
{
    enum status status;

    *memory = NULL;
    if (bytes == 0)
        return STATUS_OK;
    status = check(cudaMalloc(memory, bytes), "allocation", err);
    if (status != STATUS_OK)
        return status;
    status = check(cudaMemset(*memory, 0, bytes), "memset", err);
    if (status == STATUS_OK)
        status = check(cudaStreamSynchronize(NULL), "memset", err);
    if (status != STATUS_OK)
        memory_free(memory);
    return status;
}

static enum status pinned_new(void **memory, size_t bytes, struct err *err)
{
    *memory = NULL;
    return bytes == 0 ? STATUS_OK
                      : check(cudaHostAlloc(memory, bytes, cudaHostAllocDefault),
                              "allocation of pinned memory", err);
}

static void pinned_free(void **memory)
{
    if (*memory != NULL)
        (void)cudaFreeHost(*memory);
    *memory = NULL;
}

static enum status stream_new(struct CUstream_st **stream, struct err *err)
{
    *stream = NULL;
    return check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "new stream", err);
}

static void stream_free(struct CUstream_st **stream)
{
    if (*stream != NULL)
        (void)cudaStreamDestroy(*stream);
    *stream = NULL;
}

static enum status stream_sync(struct CUstream_st *stream, struct err *err)
{
    return check(cudaStreamSynchronize(stream), "work on the device", err);
}

static enum status event_new(struct CUevent_st **event, struct err *err)
{
    *event = NULL;
    return check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "new event", err);
}

static void event_free(struct CUevent_st **event)
{
    if (*event != NULL)
        (void)cudaEventDestroy(*event);
    *event = NULL;
}

static enum status event_record(struct CUevent_st *event, struct CUstream_st *stream,
                                struct err *err)
{
    return check(cudaEventRecord(event, stream), "record of an event", err);
}

static enum status event_wait(struct CUevent_st *event, struct CUstream_st *stream, struct err *err)
{
    return check(cudaStreamWaitEvent(stream, event, 0), "wait for an event", err);
}

static enum status event_sync(struct CUevent_st *event, struct err *err)
{
    return check(cudaEventSynchronize(event), "work on the device", err);
}

static enum status event_passed(struct CUevent_st *event, bool *passed, struct err *err)
{
    cudaError_t error = cudaEventQuery(event);

    *passed = error == cudaSuccess;
    if (error != cudaErrorNotReady)
        return check(error, "work on the device", err);
    (void)cudaGetLastError();
    return STATUS_OK;
}

static enum status event_new_timed(struct CUevent_st **event, struct err *err)
{
    *event = NULL;
    return check(cudaEventCreate(event), "new event", err);
}

static enum status event_elapsed(struct CUevent_st *begin, struct CUevent_st *end, double *us,
                                 struct err *err)
{
    float ms = 0.0F;
    enum status status = check(cudaEventElapsedTime(&ms, begin, end), "time between events", err);

    *us = (double)ms * 1e3;
    return status;
}

static enum status queue_copy_in(void *device, const void *host, size_t bytes,
                                 struct CUstream_st *stream, struct err *err)
{
    return check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream),
                 "copy to the device", err);
}

static enum status queue_copy_out(void *host, const void *device, size_t bytes,
                                  struct CUstream_st *stream, struct err *err)
{
    return check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream),
                 "copy from the device", err);
}

static enum status queue_copy(void *to, const void *from, size_t bytes, struct CUstream_st *stream,
                              struct err *err)
{
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream),
                 "copy on the device", err);
}

static enum status queue_zero(void *memory, size_t bytes, struct CUstream_st *stream,
                              struct err *err)
{
    return check(cudaMemsetAsync(memory, 0, bytes, stream), "memset", err);
}

/* Thread-local: what other threads do, such as pinned copies of data, does not break the record. */
static enum status record_begin(struct CUstream_st *stream, struct err *err)
{
    return check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                 "begin of a recorded step", err);
}

static enum status record_end(struct CUstream_st *stream, struct CUgraphExec_st **graph,
                              struct err *err)
{
    cudaGraph_t drawn = NULL;
    enum status status = check(cudaStreamEndCapture(stream, &drawn), "end of a recorded step", err);

    *graph = NULL;
    if (status == STATUS_OK)
        status = check(cudaGraphInstantiate(graph, drawn, 0), "set-up of a recorded step", err);
    if (status != STATUS_OK)
        *graph = NULL;
    if (drawn != NULL)
        (void)cudaGraphDestroy(drawn);
    return status;
}

static enum status queue_graph(struct CUgraphExec_st *graph, struct CUstream_st *stream,
                               struct err *err)
{
    return check(cudaGraphLaunch(graph, stream), "launch of a recorded step", err);
}

static void graph_free(struct CUgraphExec_st **graph)
{
    if (*graph != NULL)
        (void)cudaGraphExecDestroy(*graph);
    *graph = NULL;
}

static enum status launched(int code, const char *what, struct err *err)
{
    return check((cudaError_t)code, what, err);
}

static void device_reset(void)
{
    (void)cudaDeviceReset();
}

const struct cuda_runtime cuda_runtime = {
    .device_use = device_use,
    .memory_info = memory_info,
    .memory_new = memory_new,
    .memory_free = memory_free,
    .pinned_new = pinned_new,
    .pinned_free = pinned_free,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .stream_sync = stream_sync,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_sync = event_sync,
    .event_passed = event_passed,
    .event_new_timed = event_new_timed,
    .event_elapsed = event_elapsed,
    .queue_copy_in = queue_copy_in,
    .queue_copy_out = queue_copy_out,
    .queue_copy = queue_copy,
    .queue_zero = queue_zero,
    .record_begin = record_begin,
    .record_end = record_end,
    .queue_graph = queue_graph,
    .graph_free = graph_free,
    .launched = launched,
    .device_reset = device_reset,
};
