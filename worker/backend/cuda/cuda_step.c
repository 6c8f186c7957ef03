/* A step: its batch on the way to the device, its layers queued one by one or repeated from a
 * record.
 *
 * A batch goes into one of two pinned slots and is copied on a stream of its own while the step
 * before it computes. A record holds forward and backward of one batch size (a CUDA graph), from
 * the images in their place to the last gradient, reductions included; the end of the step is one
 * of its own (cuda_tail.c). It is made at the second step that is announced by net_step_whole, the
 * first one lets libraries settle. */
#include <assert.h>
#include <string.h>

#include "common/log.h"
#include "worker/backend/cuda/cuda.h"

static size_t image_pixels(const struct cuda *cuda)
{
    const struct cuda_value *input = &cuda->layers[0].out;

    return (size_t)cuda->image_channels * input->h * input->w;
}

/* Where labels lie in a slot: behind images of the larger kind. */
static size_t labels_at(const struct cuda *cuda)
{
    return cuda->batch_max * image_pixels(cuda) * sizeof(float);
}

static enum status open_slot(struct cuda *cuda, uint32_t index, struct err *err)
{
    const struct cuda_runtime *runtime = cuda->runtime;
    const size_t bytes = labels_at(cuda) + cuda->batch_max * sizeof(int64_t);
    enum status status = runtime->pinned_new(&cuda->slots[index].pinned, bytes, err);

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

    for (uint32_t i = 0; i < CUDA_SLOTS; i++) {
        cuda->runtime->pinned_free(&cuda->slots[i].pinned);
        cuda->runtime->memory_free(&cuda->slots[i].images);
        cuda->runtime->event_free(&cuda->slots[i].copied);
        cuda->runtime->event_free(&cuda->slots[i].used);
    }
    cuda->runtime->memory_free(&labels);
    cuda->labels = NULL;
}

/* Into the slot, and from there to the device behind what still reads the slot's last batch. */
static enum status send(struct cuda *cuda, uint32_t slot, const struct net_images *images,
                        const int64_t *labels, struct err *err)
{
    const struct cuda_runtime *runtime = cuda->runtime;
    const bool are_bytes = images->bytes != NULL;
    const size_t bytes = cuda->n * image_pixels(cuda) * (are_bytes ? 1 : sizeof(float));
    const size_t label_bytes = cuda->n * sizeof *labels, behind = labels_at(cuda);
    char *pinned = cuda->slots[slot].pinned, *device = cuda->slots[slot].images;
    enum status status = STATUS_OK;

    if (cuda->slots[slot].is_used) {
        status = runtime->event_sync(cuda->slots[slot].copied, err);
        if (status == STATUS_OK)
            status = runtime->event_wait(cuda->slots[slot].used, cuda->copies, err);
    }
    if (status != STATUS_OK)
        return status;
    cuda->slots[slot].are_bytes = are_bytes;
    memcpy(pinned, are_bytes ? (const void *)images->bytes : images->floats, bytes);
    memcpy(pinned + behind, labels, label_bytes);
    cuda_profile_part(cuda, CUDA_PART_COPY, cuda->copies);
    status = runtime->queue_copy_in(device, pinned, bytes, cuda->copies, err);
    if (status == STATUS_OK)
        status = runtime->queue_copy_in(device + behind, pinned + behind, label_bytes, cuda->copies,
                                        err);
    cuda_profile_end(cuda);
    return status == STATUS_OK ? runtime->event_record(cuda->slots[slot].copied, cuda->copies, err)
                               : status;
}

/* To where the step reads them, as NHWC in the input's type. */
static enum status unpack(struct cuda *cuda, uint32_t slot, struct err *err)
{
    const struct cuda_layer *input = &cuda->layers[0];
    const struct kernel_images shape = {
        .images = cuda->n,
        .height = input->out.h,
        .width = input->out.w,
        .in_channels = cuda->image_channels,
        .out_channels = input->graph->out.dims[0],
        .from_bytes = cuda->slots[slot].are_bytes,
        .is_planar = true,
        .type = cuda_type(input->out.dtype),
        .std = {1.0F, 1.0F, 1.0F, 1.0F},
    };
    const char *from = cuda->slots[slot].images;
    enum status status = cuda->runtime->event_wait(cuda->slots[slot].copied, cuda->stream, err);
    int code;

    if (status != STATUS_OK)
        return status;
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

static bool can_record(const struct cuda *cuda)
{
    return cuda->is_promised && cuda->records && cuda->norm_sum == NULL &&
           !cuda_profile_is_on(cuda);
}

void cuda_step_whole(void *state)
{
    ((struct cuda *)state)->is_promised = true;
}

void cuda_drop_records(void *state)
{
    struct cuda *cuda = state;

    for (uint32_t i = 0; i < CUDA_STEPS_MAX; i++)
        cuda->runtime->graph_free(&cuda->steps[i].graph);
    cuda->runtime->graph_free(&cuda->tail_record.graph);
    cuda->records = false;
}

static struct cuda_step *find_step(struct cuda *cuda, uint32_t n)
{
    for (uint32_t i = 0; i < CUDA_STEPS_MAX; i++)
        if (cuda->steps[i].n == n || cuda->steps[i].n == 0)
            return &cuda->steps[i];
    return NULL;
}

static enum status choose_mode(struct cuda *cuda, struct err *err)
{
    const bool records = can_record(cuda);
    struct cuda_step *step = records ? find_step(cuda, cuda->n) : NULL;

    cuda_tail_begin(cuda, records);
    cuda->mode = CUDA_PLAIN;
    cuda->step = step;
    if (step == NULL)
        return STATUS_OK;
    step->n = cuda->n;
    if (step->graph != NULL) {
        cuda->mode = CUDA_REPEAT;
        return STATUS_OK;
    }
    if (!step->is_warm) {
        step->is_warm = true;
        return STATUS_OK;
    }
    cuda->mode = CUDA_RECORD;
    return cuda->runtime->record_begin(cuda->stream, err);
}

/* Plans of a training step have its size, because statistics count every row; an evaluation of
 * fewer images computes rows that nobody looks at. */
static enum status take_plans(struct cuda *cuda, struct err *err)
{
    cuda->rows = cuda->training ? cuda->n : cuda->batch_max;
    return cuda_sets_use(cuda, cuda->rows, err);
}

enum status cuda_step_begin(void *state, const struct net_images *images, const int64_t *labels,
                            uint32_t n, bool training, struct err *err)
{
    struct cuda *cuda = state;
    const uint32_t slot = cuda->slot_next;
    enum status status = cuda_failed(cuda, err);

    assert(n > 0 && n <= cuda->batch_max && cuda->mode == CUDA_PLAIN);
    cuda->n = n;
    cuda->training = training;
    cuda->slot_next = (slot + 1) % CUDA_SLOTS;
    cuda_profile_collect(cuda); /* of an inner step of an accumulation */
    if (status == STATUS_OK)
        status = take_plans(cuda, err);
    if (status == STATUS_OK)
        status = send(cuda, slot, images, labels, err);
    if (status == STATUS_OK)
        status = unpack(cuda, slot, err);
    if (status == STATUS_OK)
        status = choose_mode(cuda, err);
    cuda->is_promised = false;
    return status;
}

static enum status forward(struct cuda *cuda, uint32_t index, struct err *err)
{
    struct cuda_layer *layer = &cuda->layers[index];
    enum status status;

    cuda_profile_layer(cuda, index, false);
    status = layer->op->forward(cuda, layer, err);
    cuda_profile_end(cuda);
    return status;
}

/* What other layers have left of the gradient, and this layer's share. */
static enum status add_shares(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t k = 0; k < 2 && status == STATUS_OK; k++) {
        const struct cuda_value *in = layer->in[k];
        int code;

        if (!layer->adds[k])
            continue;
        code = cuda->kernels->add(in->grad, in->grad, layer->spare[k], cuda_type(in->dtype), false,
                                  cuda->rows * in->image_size, cuda->stream);
        status = cuda_launched(cuda, layer, code, "sum of gradients", err);
    }
    return status;
}

static enum status backward(struct cuda *cuda, uint32_t index, float grad_scale, struct err *err)
{
    struct cuda_layer *layer = &cuda->layers[index];
    enum status status;

    cuda_profile_layer(cuda, index, true);
    status = layer->op->backward(cuda, layer, grad_scale, err);
    if (status == STATUS_OK)
        status = add_shares(cuda, layer, err);
    cuda_profile_end(cuda);
    return status;
}

static bool is_quiet(const struct cuda *cuda)
{
    return cuda->mode == CUDA_REPEAT || cuda->mode == CUDA_LATER;
}

/* Steps are queued as they come from now on. */
static void end_records(struct cuda *cuda, const struct err *why)
{
    cuda->runtime->graph_free(&cuda->step->graph);
    log_line(LOG_WARNING, LOG_ABOUT_NONE,
             "steps are queued layer by layer, since recording one failed: %s", why->text);
    cuda->records = false;
}

/* What a call came to. Where it failed while it was written down, it may be one that cannot be:
 * then nothing has run yet, and the step is queued when it is complete. */
static enum status settle(struct cuda *cuda, enum status status, const struct err *why)
{
    struct err ignored;

    if (status == STATUS_OK)
        return STATUS_OK;
    if (cuda->mode != CUDA_RECORD) {
        cuda->mode = CUDA_PLAIN;
        return status;
    }
    (void)cuda->runtime->record_end(cuda->stream, &cuda->step->graph, &ignored);
    end_records(cuda, why);
    cuda->mode = CUDA_LATER;
    return STATUS_OK;
}

enum status cuda_layer_forward(void *state, uint32_t layer, struct err *err)
{
    struct cuda *cuda = state;
    struct err why = {.text = ""};
    enum status status = is_quiet(cuda) ? STATUS_OK : forward(cuda, layer, &why);

    status = settle(cuda, status, &why);
    if (status != STATUS_OK && err != NULL)
        *err = why;
    return status;
}

/* The whole of a step as it comes. */
static enum status run_plain(struct cuda *cuda, struct err *err)
{
    const uint32_t count = cuda->graph->layer_count;
    enum status status = STATUS_OK;

    cuda->mode = CUDA_PLAIN;
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++)
        status = forward(cuda, i, err);
    for (uint32_t i = count; i-- > 0 && status == STATUS_OK;)
        status = backward(cuda, i, cuda->step->grad_scale, err);
    for (uint32_t b = 0; cuda->is_reduced && b < cuda->graph->bucket_count; b++)
        if (status == STATUS_OK)
            status = cuda_reduce_bucket(cuda, b, err);
    return status == STATUS_OK ? cuda_reduce_join(cuda, err) : status;
}

/* Where nothing could be recorded the step is queued as it comes, and all later ones. */
static enum status end_record(struct cuda *cuda, struct err *err)
{
    struct err why = {.text = ""};
    enum status joined = cuda_reduce_join(cuda, &why);

    if (cuda->runtime->record_end(cuda->stream, &cuda->step->graph, &why) == STATUS_OK &&
        joined == STATUS_OK) {
        cuda->mode = CUDA_PLAIN;
        return cuda->runtime->queue_graph(cuda->step->graph, cuda->stream, err);
    }
    end_records(cuda, &why);
    return run_plain(cuda, err);
}

/* Backward is complete, its last bucket too. */
static enum status end_backward(struct cuda *cuda, struct err *err)
{
    const bool reduces = cuda->is_reduced && cuda->reduce.delays && !is_quiet(cuda);
    struct err why = {.text = ""};
    enum status status = STATUS_OK;

    for (uint32_t b = 0; reduces && status == STATUS_OK && b < cuda->graph->bucket_count; b++)
        status = cuda_reduce_bucket(cuda, b, &why);
    status = settle(cuda, status, &why);
    if (status != STATUS_OK)
        *err = why; /* of a caller in this file */
    else if (cuda->mode == CUDA_LATER)
        status = run_plain(cuda, err);
    else if (cuda->mode == CUDA_RECORD)
        status = end_record(cuda, err);
    else if (cuda->mode == CUDA_REPEAT)
        status = cuda->runtime->queue_graph(cuda->step->graph, cuda->stream, err);
    else
        status = cuda_reduce_join(cuda, err);
    cuda->mode = CUDA_PLAIN;
    cuda->is_reduced = false;
    return status;
}

/* A record has one scale of the gradients: with another one it is made again. */
static enum status check_scale(struct cuda *cuda, float grad_scale, struct err *err)
{
    enum status status = STATUS_OK;

    if (cuda->step == NULL || cuda->mode == CUDA_PLAIN)
        return STATUS_OK;
    if (cuda->mode == CUDA_REPEAT && grad_scale != cuda->step->grad_scale) {
        cuda->runtime->graph_free(&cuda->step->graph);
        cuda->mode = CUDA_PLAIN;
        for (uint32_t i = 0; i < cuda->graph->layer_count && status == STATUS_OK; i++)
            status = forward(cuda, i, err);
    }
    cuda->step->grad_scale = grad_scale;
    return status;
}

enum status cuda_layer_backward(void *state, uint32_t layer, float grad_scale, struct err *err)
{
    struct cuda *cuda = state;
    struct err why = {.text = ""};
    enum status status = STATUS_OK;

    if (layer + 1 == cuda->graph->layer_count)
        status = check_scale(cuda, grad_scale, &why);
    if (status == STATUS_OK && !is_quiet(cuda))
        status = backward(cuda, layer, grad_scale, &why);
    status = settle(cuda, status, &why);
    if (status != STATUS_OK && err != NULL)
        *err = why;
    return status;
}

/* Without a reduction on the device a host may do it, bucket by bucket, while backward goes on;
 * such a step is never recorded. */
static enum status mark_ready(struct cuda *cuda, uint32_t bucket, struct err *err)
{
    if (is_quiet(cuda))
        return STATUS_OK;
    if (cuda->is_reduced)
        return cuda->reduce.delays ? STATUS_OK : cuda_reduce_bucket(cuda, bucket, err);
    return cuda->mode == CUDA_PLAIN
               ? cuda->runtime->event_record(cuda->bucket_done[bucket], cuda->stream, err)
               : STATUS_OK;
}

void cuda_bucket_ready(void *state, uint32_t bucket, const struct backend_span *grads)
{
    struct cuda *cuda = state;
    struct err err = {.text = ""};
    enum status status;

    cuda->buckets[bucket] = *grads;
    status = mark_ready(cuda, bucket, &err);
    status = settle(cuda, status, &err);
    if (status == STATUS_OK && bucket + 1 == cuda->graph->bucket_count)
        status = end_backward(cuda, &err);
    cuda_keep(cuda, status, &err);
}
