/* ddp_cuda.so: streams, events, memory and captured steps over the CUDA runtime. */
#include "worker/backend/cuda/module/runtime.h"

#include <cuda_runtime_api.h>

static enum status check(cudaError_t error, const char *what, struct err *err)
{
    if (error == cudaSuccess)
        return STATUS_OK;
    (void)cudaGetLastError(); /* clear it, so that the next call does not report it again */
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

/* The memset is on the default stream. Our streams do not wait for that stream, so the host
 * waits. */
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

/* Thread-local mode: calls of other threads, such as copies from pinned memory, do not end the
 * capture. */
static enum status capture_begin(struct CUstream_st *stream, struct err *err)
{
    return check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                 "begin of a captured step", err);
}

static enum status capture_end(struct CUstream_st *stream, struct CUgraphExec_st **graph,
                               struct err *err)
{
    cudaGraph_t drawn = NULL;
    enum status status = check(cudaStreamEndCapture(stream, &drawn), "end of a captured step", err);

    *graph = NULL;
    if (status == STATUS_OK)
        status = check(cudaGraphInstantiate(graph, drawn, 0), "set-up of a captured step", err);
    if (status != STATUS_OK)
        *graph = NULL;
    if (drawn != NULL)
        (void)cudaGraphDestroy(drawn);
    return status;
}

static enum status queue_graph(struct CUgraphExec_st *graph, struct CUstream_st *stream,
                               struct err *err)
{
    return check(cudaGraphLaunch(graph, stream), "launch of a captured step", err);
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

const struct cuda_runtime cuda_runtime = CUDA_RUNTIME_TABLE();
