/* The images of a step on their way to the device. They are copied on a separate stream, while the
 * step before computes, into one of two slots; then they are normalised into the step's input.
 *
 * Images in memory from cuda_images_new are copied directly, others from a pinned copy of them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/exec/internal.h"

static size_t image_pixels(const struct cuda *cuda)
{
    const struct cuda_value *input = &cuda->layers[0].out;

    return (size_t)cuda->image_channels * input->h * input->w;
}

/* The offset of labels in a slot: after images of the larger kind, fp32. */
static size_t labels_at(const struct cuda *cuda)
{
    return cuda->batch_max * image_pixels(cuda) * sizeof(float);
}

static enum status open_slot(struct cuda *cuda, uint32_t index, struct err *err)
{
    const struct cuda_runtime *runtime = cuda->runtime;
    const size_t label_bytes = cuda->batch_max * sizeof(int64_t);
    const size_t bytes = labels_at(cuda) + label_bytes;
    enum status status = runtime->pinned_new(&cuda->slots[index].pinned, label_bytes, err);

    if (status == STATUS_OK)
        status = runtime->memory_new(&cuda->slots[index].images, bytes, err);
    if (status == STATUS_OK)
        status = runtime->event_new(&cuda->slots[index].copied, err);
    if (status == STATUS_OK)
        status = runtime->event_new(&cuda->slots[index].used, err);
    cuda->bytes += bytes;
    return status;
}

enum status cuda_slots_open(struct cuda *cuda, struct err *err)
{
    void *labels = NULL;
    enum status status = STATUS_OK;

    for (uint32_t i = 0; i < CUDA_SLOTS && status == STATUS_OK; i++)
        status = open_slot(cuda, i, err);
    if (status == STATUS_OK)
        status = cuda->runtime->memory_new(&labels, cuda->batch_max * sizeof(int64_t), err);
    cuda->labels = labels;
    return status;
}

void cuda_slots_close(struct cuda *cuda)
{
    void *labels = cuda->labels;

    assert(cuda->lent == NULL); /* freed before the net is closed */
    for (uint32_t i = 0; i < CUDA_SLOTS; i++) {
        cuda->runtime->pinned_free(&cuda->slots[i].pinned);
        cuda->runtime->pinned_free(&cuda->slots[i].staged);
        cuda->runtime->memory_free(&cuda->slots[i].images);
        cuda->runtime->event_free(&cuda->slots[i].copied);
        cuda->runtime->event_free(&cuda->slots[i].used);
    }
    cuda->runtime->memory_free(&labels);
    cuda->labels = NULL;
}

/* -- memory that the net lends to callers -- */

struct cuda_lent {
    struct cuda_lent *next;
    void *memory;
    size_t bytes;
};

void *cuda_images_new(void *state, size_t bytes)
{
    struct cuda *cuda = state;
    struct cuda_lent *lent = calloc(1, sizeof *lent);

    if (lent == NULL || cuda->runtime->pinned_new(&lent->memory, bytes, NULL) != STATUS_OK) {
        free(lent);
        return NULL;
    }
    lent->bytes = bytes;
    lent->next = cuda->lent;
    cuda->lent = lent;
    return lent->memory;
}

static struct cuda_lent **find_lent(struct cuda *cuda, const void *images)
{
    struct cuda_lent **at = &cuda->lent;

    while (*at != NULL && !((uintptr_t)images >= (uintptr_t)(*at)->memory &&
                            (uintptr_t)images < (uintptr_t)(*at)->memory + (*at)->bytes))
        at = &(*at)->next;
    return at;
}

void cuda_images_free(void *state, void *memory)
{
    struct cuda *cuda = state;
    struct cuda_lent **at = find_lent(cuda, memory), *lent = *at;

    assert(lent != NULL && lent->memory == memory);
    (void)cuda_images_settle(cuda, memory, NULL);
    *at = lent->next;
    cuda->runtime->pinned_free(&lent->memory);
    free(lent);
}

enum status cuda_images_settle(void *state, const void *memory, struct err *err)
{
    struct cuda *cuda = state;
    const struct cuda_lent *lent = *find_lent(cuda, memory);
    enum status status = STATUS_OK;

    assert(lent != NULL);
    for (uint32_t i = 0; i < CUDA_SLOTS && status == STATUS_OK; i++) {
        if (cuda->slots[i].lent != lent)
            continue;
        status = cuda->runtime->event_sync(cuda->slots[i].copied, err);
        cuda->slots[i].lent = NULL;
    }
    return status;
}

/* -- a batch -- */

static const struct net_normal no_normal = {.std = {1.0F, 1.0F, 1.0F, 1.0F}};

/* Finds the pinned memory of the images: the caller's, if it is from cuda_images_new, else a
 * copy. */
static enum status find_pinned(struct cuda *cuda, uint32_t slot, const void *images, size_t bytes,
                               const void **pinned, struct err *err)
{
    struct cuda_lent *lent = *find_lent(cuda, images);
    enum status status = STATUS_OK;

    cuda->slots[slot].lent = lent;
    *pinned = images;
    if (lent != NULL) {
        assert((const char *)images + bytes <= (const char *)lent->memory + lent->bytes);
        return STATUS_OK;
    }
    if (cuda->slots[slot].staged == NULL)
        status = cuda->runtime->pinned_new(&cuda->slots[slot].staged, labels_at(cuda), err);
    if (status == STATUS_OK)
        memcpy(cuda->slots[slot].staged, images, bytes);
    *pinned = cuda->slots[slot].staged;
    return status;
}

/* Queues the copies of the batch to the device. Two waits are needed: the host must not write the
 * slot's pinned memory before the last copy from it has ended, and the new copy must not begin
 * before the step that uses the slot's last batch has read it. */
enum status cuda_images_send(struct cuda *cuda, uint32_t slot, const struct net_images *images,
                             const int64_t *labels, struct err *err)
{
    const struct cuda_runtime *runtime = cuda->runtime;
    const bool are_bytes = images->bytes != NULL;
    const void *given = are_bytes ? (const void *)images->bytes : images->floats, *pinned = NULL;
    const size_t bytes = cuda->n * image_pixels(cuda) * (are_bytes ? 1 : sizeof(float));
    const size_t label_bytes = cuda->n * sizeof *labels;
    char *device = cuda->slots[slot].images;
    enum status status = STATUS_OK;

    if (cuda->slots[slot].is_used) {
        status = runtime->event_sync(cuda->slots[slot].copied, err);
        if (status == STATUS_OK)
            status = runtime->event_wait(cuda->slots[slot].used, cuda->copies, err);
    }
    if (status == STATUS_OK)
        status = find_pinned(cuda, slot, given, bytes, &pinned, err);
    if (status != STATUS_OK)
        return status;
    cuda->slots[slot].are_bytes = are_bytes;
    cuda->slots[slot].normal = images->normal != NULL ? *images->normal : no_normal;
    memcpy(cuda->slots[slot].pinned, labels, label_bytes);
    cuda_profile_part(cuda, CUDA_PART_COPY, cuda->copies);
    status = runtime->queue_copy_in(device, pinned, bytes, cuda->copies, err);
    if (status == STATUS_OK)
        status = runtime->queue_copy_in(device + labels_at(cuda), cuda->slots[slot].pinned,
                                        label_bytes, cuda->copies, err);
    cuda_profile_end(cuda);
    return status == STATUS_OK ? runtime->event_record(cuda->slots[slot].copied, cuda->copies, err)
                               : status;
}

/* Converts the slot's images to NHWC, in the input's type, and stores them as the step's input. */
enum status cuda_images_unpack(struct cuda *cuda, uint32_t slot, struct err *err)
{
    const struct cuda_layer *input = &cuda->layers[0];
    const struct net_normal *normal = &cuda->slots[slot].normal;
    struct kernel_images shape = {
        .images = cuda->n,
        .height = input->out.h,
        .width = input->out.w,
        .in_channels = cuda->image_channels,
        .out_channels = input->graph->out.dims[0],
        .stored_channels = input->out.channels,
        .from_bytes = cuda->slots[slot].are_bytes,
        .is_planar = !cuda->slots[slot].are_bytes,
        .type = cuda_type(input->out.dtype),
    };
    const char *from = cuda->slots[slot].images;
    enum status status = cuda->runtime->event_wait(cuda->slots[slot].copied, cuda->stream, err);
    int code;

    static_assert(sizeof shape.mean == sizeof normal->mean, "as many channels");
    if (status != STATUS_OK)
        return status;
    memcpy(shape.mean, normal->mean, sizeof shape.mean);
    memcpy(shape.std, normal->std, sizeof shape.std);
    cuda_profile_part(cuda, CUDA_PART_IMAGES, cuda->stream);
    code = cuda->kernels->images(&shape, from, input->out.data, cuda->stream);
    status = cuda_launched(cuda, input, code, "images", err);
    if (status == STATUS_OK)
        status = cuda->runtime->queue_copy(cuda->labels, from + labels_at(cuda),
                                           cuda->n * sizeof *cuda->labels, cuda->stream, err);
    cuda_profile_end(cuda);
    if (status == STATUS_OK)
        status = cuda->runtime->event_record(cuda->slots[slot].used, cuda->stream, err);
    cuda->slots[slot].is_used = true;
    return status;
}
