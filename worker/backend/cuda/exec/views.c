/* Host copies of the backend's memory: bytes, and views of state and of buckets. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/exec/internal.h"

enum status cuda_memory_read(void *state, const void *memory, void *host, size_t bytes,
                             struct err *err)
{
    struct cuda *cuda = state;
    enum status status = cuda_failed(cuda, err);

    assert(cuda->mode != CUDA_CAPTURE); /* a wait would end the capture */
    if (status == STATUS_OK)
        status = cuda->runtime->queue_copy_out(host, memory, bytes, cuda->stream, err);
    return status == STATUS_OK ? cuda->runtime->stream_sync(cuda->stream, err) : status;
}

enum status cuda_memory_write(void *state, void *memory, const void *host, size_t bytes,
                              struct err *err)
{
    struct cuda *cuda = state;
    enum status status = cuda_failed(cuda, err);

    assert(cuda->mode != CUDA_CAPTURE);
    if (status == STATUS_OK)
        status = cuda->runtime->queue_copy_in(memory, host, bytes, cuda->stream, err);
    return status == STATUS_OK ? cuda->runtime->stream_sync(cuda->stream, err) : status;
}

/* Allocates room for a span, which is kept for the next one. */
static enum status make_room(struct cuda *cuda, struct cuda_stage *stage,
                             const struct backend_span *span, struct err *err)
{
    const size_t bytes = span->count * graph_dtype_bytes(span->dtype);
    float *floats;
    enum status status;

    if (bytes > stage->pinned_bytes) {
        cuda->runtime->pinned_free(&stage->pinned);
        stage->pinned_bytes = 0;
        status = cuda->runtime->pinned_new(&stage->pinned, bytes, err);
        if (status != STATUS_OK)
            return status;
        stage->pinned_bytes = bytes;
    }
    if (span->dtype == GRAPH_F32 || span->count <= stage->float_count)
        return STATUS_OK;
    floats = realloc(stage->floats, span->count * sizeof *floats);
    if (floats == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a copy of %zu gradients", span->count);
    stage->floats = floats;
    stage->float_count = span->count;
    return STATUS_OK;
}

/* A bucket waits only for its own event, on a stream that does not wait for the step's stream. The
 * caller may be another thread than the one that queues. */
static enum status wait_for(struct cuda *cuda, uint32_t bucket, struct err *err)
{
    enum status status = cuda->runtime->device_use(cuda->options.device_index, err);

    if (status != STATUS_OK)
        return status;
    return bucket == GRAPH_NONE ? cuda->runtime->stream_sync(cuda->stream, err)
                                : cuda->runtime->event_sync(cuda->bucket_done[bucket], err);
}

enum status cuda_view_open(void *state, const struct backend_span *span, uint32_t bucket,
                           float **values, struct err *err)
{
    struct cuda *cuda = state;
    struct cuda_stage *stage = bucket == GRAPH_NONE ? &cuda->state_stage : &cuda->bucket_stage;
    const size_t bytes = span->count * graph_dtype_bytes(span->dtype);
    enum status status;

    assert(!stage->is_open); /* one view at a time */
    assert(bucket == GRAPH_NONE || bucket < cuda->graph->bucket_count);
    status = wait_for(cuda, bucket, err);
    if (status == STATUS_OK)
        status = make_room(cuda, stage, span, err);
    if (status == STATUS_OK)
        status =
            cuda->runtime->queue_copy_out(stage->pinned, span->memory, bytes, cuda->views, err);
    if (status == STATUS_OK)
        status = cuda->runtime->stream_sync(cuda->views, err);
    if (status != STATUS_OK)
        return status;
    stage->is_open = true;
    *values = stage->pinned;
    if (span->dtype == GRAPH_F32)
        return STATUS_OK;
    *values = stage->floats;
    cuda_widen(stage->pinned, span->dtype, span->count, stage->floats);
    return STATUS_OK;
}

enum status cuda_view_close(void *state, const struct backend_span *span, uint32_t bucket,
                            float *values, struct err *err)
{
    struct cuda *cuda = state;
    struct cuda_stage *stage = bucket == GRAPH_NONE ? &cuda->state_stage : &cuda->bucket_stage;
    const size_t bytes = span->count * graph_dtype_bytes(span->dtype);
    enum status status;

    assert(stage->is_open && stage->pinned_bytes >= bytes);
    assert(values == (span->dtype == GRAPH_F32 ? stage->pinned : stage->floats));
    stage->is_open = false;
    if (span->dtype != GRAPH_F32)
        cuda_narrow(values, span->dtype, span->count, stage->pinned);
    status = cuda->runtime->queue_copy_in(span->memory, stage->pinned, bytes, cuda->views, err);
    return status == STATUS_OK ? cuda->runtime->stream_sync(cuda->views, err) : status;
}

void cuda_stage_free(struct cuda *cuda, struct cuda_stage *stage)
{
    cuda->runtime->pinned_free(&stage->pinned);
    free(stage->floats);
    *stage = (struct cuda_stage){0};
}

/* -- tensors, row-major -- */

enum status cuda_tensor_pack(void *state, uint32_t index, const float *row_major, float *stored,
                             struct err *err)
{
    struct cuda *cuda = state;
    const struct cuda_tensor *tensor = &cuda->tensors[index];
    float *host = calloc(tensor->size + 1, sizeof *host);
    enum status status;

    if (host == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a copy of %s", tensor->graph->name);
    cuda_tensor_store(tensor, row_major, host);
    status = cuda_memory_write(cuda, stored, host, tensor->size * sizeof *host, err);
    free(host);
    return status;
}

enum status cuda_tensor_unpack(void *state, uint32_t index, const void *stored,
                               enum graph_dtype dtype, float *row_major, struct err *err)
{
    struct cuda *cuda = state;
    const struct cuda_tensor *tensor = &cuda->tensors[index];
    const size_t bytes = tensor->size * graph_dtype_bytes(dtype);
    float *host = calloc(tensor->size + 1, sizeof *host);
    void *typed = malloc(bytes + 1);
    enum status status = STATUS_OK;

    if (host == NULL || typed == NULL)
        status = err_set(err, STATUS_MEMORY, 0, "no memory for a copy of %s", tensor->graph->name);
    if (status == STATUS_OK)
        status = cuda_memory_read(cuda, stored, typed, bytes, err);
    if (status == STATUS_OK) {
        cuda_widen(typed, dtype, tensor->size, host);
        cuda_tensor_fetch(tensor, host, row_major);
    }
    free(typed);
    free(host);
    return status;
}
