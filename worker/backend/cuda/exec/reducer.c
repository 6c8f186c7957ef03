/* The net's reducer on the device. An eager step queues each bucket's collective when the bucket is
 * complete, parallel to backward. In a captured step the collectives become part of the CUDA graph.
 * A replayed step queues nothing here, and a deferred one queues everything in
 * cuda_backward_end. */
#include <assert.h>

#include "worker/backend/cuda/exec/internal.h"

static enum status begin(void *context, struct err *err)
{
    struct cuda *cuda = context;

    (void)err;
    assert(cuda->training && cuda->collective.sum != NULL);
    cuda->is_reduced = true;
    cuda->ready_count = 0;
    return STATUS_OK;
}

static enum status bucket_ready(void *context, uint32_t index, struct err *err)
{
    struct cuda *cuda = context;
    struct err why = {.text = ""};

    assert(cuda->is_reduced && index == cuda->ready_count);
    cuda->ready_count++;
    if (cuda->collective.delays || cuda_is_quiet(cuda))
        return STATUS_OK;
    return cuda_settle(cuda, cuda_reduce_bucket(cuda, index, &why), &why, err);
}

static enum status finish(void *context, struct err *err)
{
    struct cuda *cuda = context;
    struct err why = {.text = ""};
    enum status status;

    if (cuda->ready_count < cuda->graph->bucket_count) {
        cuda->is_reduced =
            false; /* backward failed: the queued work ends normally or by an abort */
        return STATUS_OK;
    }
    if (cuda_is_quiet(cuda))
        return STATUS_OK;
    status = cuda->collective.delays ? cuda_reduce_all(cuda, &why) : cuda_reduce_join(cuda, &why);
    return cuda_settle(cuda, status, &why, err);
}

void cuda_device_reducer(void *state, const struct device_collective *collective,
                         struct reducer *reducer)
{
    struct cuda *cuda = state;

    cuda->collective = *collective;
    *reducer = (struct reducer){
        .context = cuda,
        .begin = begin,
        .bucket_ready = bucket_ready,
        .finish = finish,
        .prescale = collective->prescale > 0.0F ? collective->prescale : 1.0F,
        .graphable = true,
    };
}
