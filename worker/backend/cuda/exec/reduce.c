/* Collectives of a step, one per bucket, on a separate stream. That stream waits for the bucket;
 * the step's stream waits for that stream at the end of backward. This file queues the work;
 * reducer.c decides when. */
#include "worker/backend/cuda/exec/internal.h"

/* Makes room for a bucket as fp32. Only in a step's first run, which is never captured. */
static enum status make_room(struct cuda *cuda, size_t count, struct err *err)
{
    const size_t bytes = count * sizeof(float);
    enum status status = STATUS_OK;

    if (bytes <= cuda->wide_bytes)
        return STATUS_OK;
    if (cuda->mode != CUDA_EAGER)
        return err_set(err, STATUS_CONFLICT, 0, "gradients of %zu values came unannounced", count);
    status = cuda->runtime->stream_sync(cuda->reduces, err); /* the old one is now unused */
    if (status != STATUS_OK)
        return status;
    cuda->runtime->memory_free(&cuda->wide);
    cuda->bytes -= cuda->wide_bytes;
    cuda->wide_bytes = 0;
    status = cuda->runtime->memory_new(&cuda->wide, bytes, err);
    if (status == STATUS_OK) {
        cuda->wide_bytes = bytes;
        cuda->bytes += bytes;
    }
    return status;
}

static enum status queue_scale(struct cuda *cuda, void *to, enum graph_dtype to_type,
                               const void *from, enum graph_dtype from_type, float factor,
                               size_t count, struct err *err)
{
    int code = cuda->kernels->scale(to, cuda_type(to_type), from, cuda_type(from_type), factor,
                                    count, cuda->reduces);

    return cuda_launched(cuda, NULL, code, "factor of reduced gradients", err);
}

static enum status reduce_span(struct cuda *cuda, const struct backend_span *span, struct err *err)
{
    const struct device_collective *collective = &cuda->collective;
    const bool is_wide = collective->in_fp32 && span->dtype != GRAPH_F32;
    const enum graph_dtype dtype = is_wide ? GRAPH_F32 : span->dtype;
    const float postscale = collective->postscale > 0.0F ? collective->postscale : 1.0F;
    void *memory = span->memory;
    enum status status = STATUS_OK;

    if (is_wide) {
        status = make_room(cuda, span->count, err);
        memory = cuda->wide;
        if (status == STATUS_OK)
            status = queue_scale(cuda, memory, GRAPH_F32, span->memory, span->dtype, 1.0F,
                                 span->count, err);
    }
    if (status == STATUS_OK)
        status =
            collective->sum(collective->context, memory, span->count, dtype, cuda->reduces, err);
    if (status != STATUS_OK || (!is_wide && postscale == 1.0F))
        return status;
    return queue_scale(cuda, span->memory, span->dtype, memory, dtype, postscale, span->count, err);
}

/* Queues the collective after the work that computes the bucket; backward continues meanwhile. */
enum status cuda_reduce_bucket(struct cuda *cuda, uint32_t bucket, struct err *err)
{
    enum status status = cuda->runtime->event_record(cuda->bucket_done[bucket], cuda->stream, err);

    if (status == STATUS_OK)
        status = cuda->runtime->event_wait(cuda->bucket_done[bucket], cuda->reduces, err);
    if (status != STATUS_OK)
        return status;
    cuda_profile_part(cuda, CUDA_PART_REDUCE, cuda->reduces);
    status = reduce_span(cuda, &cuda->buckets[bucket], err);
    cuda_profile_end(cuda);
    return status;
}

/* Later work on the step's stream waits for the collectives. */
enum status cuda_reduce_join(struct cuda *cuda, struct err *err)
{
    enum status status = cuda->runtime->event_record(cuda->reduced, cuda->reduces, err);

    cuda_profile_part(cuda, CUDA_PART_JOIN, cuda->stream);
    if (status == STATUS_OK)
        status = cuda->runtime->event_wait(cuda->reduced, cuda->stream, err);
    cuda_profile_end(cuda);
    return status;
}

enum status cuda_reduce_all(struct cuda *cuda, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t b = 0; b < cuda->graph->bucket_count && status == STATUS_OK; b++)
        status = cuda_reduce_bucket(cuda, b, err);
    return status == STATUS_OK ? cuda_reduce_join(cuda, err) : status;
}
