/* A step: its layers are queued one by one or replayed as a graph.
 *
 * images.c provides the batch. A capture (a CUDA graph) holds forward and backward of one batch
 * size, reductions included: from the unpacked images to the last gradient. The optimizer step is a
 * separate graph (optimizer_step.c). The first step that is announced by net_step_graphable runs
 * eagerly, so that libraries can initialise; the second one is captured. */
#include <assert.h>
#include <string.h>

#include "common/log.h"
#include "worker/backend/cuda/exec/internal.h"

static bool can_capture(const struct cuda *cuda)
{
    return cuda->is_graphable && cuda->captures && cuda->norm_sum == NULL &&
           !cuda_profile_is_on(cuda);
}

void cuda_step_graphable(void *state)
{
    ((struct cuda *)state)->is_graphable = true;
}

void cuda_drop_captures(void *state)
{
    struct cuda *cuda = state;

    for (uint32_t i = 0; i < CUDA_STEPS_MAX; i++)
        cuda->runtime->graph_free(&cuda->steps[i].graph);
    cuda->runtime->graph_free(&cuda->optimizer_capture.graph);
    cuda->captures = false;
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
    const bool captures = can_capture(cuda);
    struct cuda_step *step = captures ? find_step(cuda, cuda->n) : NULL;

    cuda_optimizer_begin(cuda, captures);
    cuda->mode = CUDA_EAGER;
    cuda->step = step;
    if (step == NULL)
        return STATUS_OK;
    step->n = cuda->n;
    if (step->graph != NULL) {
        cuda->mode = CUDA_REPLAY;
        return STATUS_OK;
    }
    if (!step->is_warm) {
        step->is_warm = true;
        return STATUS_OK;
    }
    assert(step->graph == NULL && cuda->norm_sum == NULL); /* the host takes no part in a capture */
    cuda->mode = CUDA_CAPTURE;
    return cuda->runtime->capture_begin(cuda->stream, err);
}

/* Training plans match the batch size, since batch-norm statistics include every row. Evaluation
 * runs the full-batch plans and ignores the surplus rows. */
static enum status take_plans(struct cuda *cuda, struct err *err)
{
    const bool may_be_last = cuda->batch_last > 0 && !cuda->evaluate_only;
    enum status status = STATUS_OK;

    cuda->rows = cuda->training ? cuda->n : cuda->batch_max;
    if (cuda->training && cuda->n == cuda->batch_max && may_be_last &&
        cuda->steps_begun < CUDA_STEPS_BEFORE_LAST &&
        ++cuda->steps_begun == CUDA_STEPS_BEFORE_LAST) {
        cuda_sets_begin(cuda, cuda->batch_last);
        if (cuda->profile != NULL) /* its steps are not to be slower for the thread's work */
            status = cuda_sets_use(cuda, cuda->batch_last, err);
    }
    return status == STATUS_OK ? cuda_sets_use(cuda, cuda->rows, err) : status;
}

enum status cuda_step_begin(void *state, const struct net_images *images, const int64_t *labels,
                            uint32_t n, bool training, struct err *err)
{
    struct cuda *cuda = state;
    const uint32_t slot = cuda->slot_next;
    enum status status = cuda_failed(cuda, err);

    assert(n > 0 && n <= cuda->batch_max && cuda->mode == CUDA_EAGER);
    cuda->n = n;
    cuda->training = training;
    cuda->slot_next = (slot + 1) % CUDA_SLOTS;
    cuda_profile_collect(cuda); /* for the step before, if gradients are accumulated */
    if (status == STATUS_OK)
        status = take_plans(cuda, err);
    if (status == STATUS_OK)
        status = cuda_images_send(cuda, slot, images, labels, err);
    if (status == STATUS_OK)
        status = cuda_images_unpack(cuda, slot, err);
    if (status == STATUS_OK)
        status = choose_mode(cuda, err);
    cuda->is_graphable = false;
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

/* Adds this layer's share to input gradients that another reader wrote before. */
static enum status add_shares(struct cuda *cuda, struct cuda_layer *layer, struct err *err)
{
    enum status status = STATUS_OK;

    for (uint32_t k = 0; k < 2 && status == STATUS_OK; k++) {
        const struct cuda_value *in = layer->in[k];
        int code;

        if (!layer->adds[k] || (k == 0 && cuda_adds_by_plan(cuda, layer)))
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

bool cuda_is_quiet(const struct cuda *cuda)
{
    return cuda->mode == CUDA_REPLAY || cuda->mode == CUDA_DEFER;
}

/* From now on all steps are eager. */
static void stop_captures(struct cuda *cuda, const struct err *why)
{
    cuda->runtime->graph_free(&cuda->step->graph);
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "steps run eagerly, since a capture failed: %s",
             why->text);
    cuda->captures = false;
}

enum status cuda_settle(struct cuda *cuda, enum status status, const struct err *why,
                        struct err *err)
{
    struct err ignored;

    if (status == STATUS_OK)
        return STATUS_OK;
    if (cuda->mode != CUDA_CAPTURE) {
        cuda->mode = CUDA_EAGER;
        if (err != NULL)
            *err = *why;
        return status;
    }
    assert(cuda->step != NULL);
    (void)cuda->runtime->capture_end(cuda->stream, &cuda->step->graph, &ignored);
    stop_captures(cuda, why);
    cuda->mode = CUDA_DEFER;
    return STATUS_OK;
}

enum status cuda_layer_forward(void *state, uint32_t layer, struct err *err)
{
    struct cuda *cuda = state;
    struct err why = {.text = ""};
    enum status status = STATUS_OK;

    assert(layer < cuda->graph->layer_count);
    if (!cuda_is_quiet(cuda))
        status = forward(cuda, layer, &why);
    return cuda_settle(cuda, status, &why, err);
}

/* Runs a whole step eagerly. */
static enum status run_eagerly(struct cuda *cuda, struct err *err)
{
    const uint32_t count = cuda->graph->layer_count;
    enum status status = STATUS_OK;

    assert(cuda->step != NULL && cuda->step->graph == NULL);
    cuda->mode = CUDA_EAGER;
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++)
        status = forward(cuda, i, err);
    for (uint32_t i = count; i-- > 0 && status == STATUS_OK;)
        status = backward(cuda, i, cuda->step->grad_scale, err);
    return status == STATUS_OK && cuda->is_reduced ? cuda_reduce_all(cuda, err) : status;
}

/* If the capture failed, this step and all later ones are eager. */
static enum status end_capture(struct cuda *cuda, struct err *err)
{
    struct err why = {.text = ""};

    if (cuda->runtime->capture_end(cuda->stream, &cuda->step->graph, &why) == STATUS_OK) {
        cuda->mode = CUDA_EAGER;
        return cuda->runtime->queue_graph(cuda->step->graph, cuda->stream, err);
    }
    stop_captures(cuda, &why);
    return run_eagerly(cuda, err);
}

enum status cuda_backward_end(void *state, struct err *err)
{
    struct cuda *cuda = state;
    struct err why = {.text = ""};
    enum status status = STATUS_OK;

    if (cuda->mode == CUDA_DEFER)
        status = run_eagerly(cuda, &why);
    else if (cuda->mode == CUDA_CAPTURE)
        status = end_capture(cuda, &why);
    else if (cuda->mode == CUDA_REPLAY)
        status = cuda->runtime->queue_graph(cuda->step->graph, cuda->stream, &why);
    cuda->mode = CUDA_EAGER;
    cuda->is_reduced = false;
    return cuda_settle(cuda, status, &why, err);
}

/* A capture holds one scale of the gradients: with another scale it is dropped, and a later step
 * captures again. */
static enum status check_scale(struct cuda *cuda, float grad_scale, struct err *err)
{
    enum status status = STATUS_OK;

    if (cuda->step == NULL || cuda->mode == CUDA_EAGER)
        return STATUS_OK;
    if (cuda->mode == CUDA_REPLAY && grad_scale != cuda->step->grad_scale) {
        cuda->runtime->graph_free(&cuda->step->graph);
        cuda->mode = CUDA_EAGER;
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

    assert(layer < cuda->graph->layer_count && cuda->training);
    if (layer + 1 == cuda->graph->layer_count)
        status = check_scale(cuda, grad_scale, &why);
    if (status == STATUS_OK && !cuda_is_quiet(cuda))
        status = backward(cuda, layer, grad_scale, &why);
    return cuda_settle(cuda, status, &why, err);
}

/* In an eager step a reducer on the host may open the bucket (cuda_view_open): it waits only for
 * this event. The next call that can report an error reports one of this call. */
void cuda_bucket_ready(void *state, uint32_t bucket, const struct backend_span *grads)
{
    struct cuda *cuda = state;
    struct err err = {.text = ""};

    assert(bucket < cuda->graph->bucket_count && grads->memory != NULL);
    cuda->buckets[bucket] = *grads;
    if (cuda->mode == CUDA_EAGER && !cuda->is_reduced)
        cuda_keep(cuda, cuda->runtime->event_record(cuda->bucket_done[bucket], cuda->stream, &err),
                  &err);
}
