/* Batch norms that take their statistics from the convolution before them, so that its output is
 * read once less (DDP_CUDA_STATS).
 *
 * apply:     CONV_STATS -> STATS_FINALIZE -> NORM_APPLY
 *            NORM_APPLY is one pass that normalises, adds and applies the ReLU. Without a ReLU
 *            it is NORM_EVALUATE with the batch's statistics. Backward is NORM_BACKWARD.
 * prologue:  CONV_STATS -> STATS_FINALIZE
 *            The normalised value is never written: the only convolution that reads it computes it
 *            from the norm's input (CONV_STATS_PROLOGUE, CONV_WGRAD_PROLOGUE). In backward that
 *            convolution's data gradient also computes the norm's sums (CONV_DGRAD_NORM), and the
 *            norm itself is NORM_DX.
 *
 * stats_choose.c chooses the form of each norm. Evaluation uses none of this.
 *
 * Accuracy: in fp32, variance = mean of squares - square of the mean. The prologue of a convolution
 * uses a scale and a shift that are rounded to 16 bits; NORM_APPLY has them in fp32. */
#include <assert.h>

#include "worker/backend/cuda/exec/internal.h"

enum { GAMMA, BETA };

enum cuda_stats cuda_stats_form(const struct cuda *cuda, const struct cuda_layer *norm)
{
    if (!cuda->training || cuda->options.stats == CUDA_STATS_NONE)
        return CUDA_STATS_NONE;
    return (enum cuda_stats)cuda->set->forms[norm->index];
}

/* -- memory -- */

static uint32_t backward_time(const struct cuda *cuda, const struct cuda_layer *layer)
{
    return 2 * cuda->graph->layer_count - 1 - layer->index;
}

uint32_t cuda_stats_grads_birth(const struct cuda *cuda, const struct cuda_layer *norm)
{
    const bool is_early = cuda->set->forms[norm->index] == CUDA_STATS_PROLOGUE;

    return backward_time(cuda, is_early ? cuda_stats_reader(cuda, norm) : norm);
}

enum status cuda_stats_open(struct cuda *cuda, struct cuda_layer *norm, struct err *err)
{
    const enum cuda_stats form = (enum cuda_stats)cuda->set->forms[norm->index];
    const size_t floats = norm->in[0]->channels * sizeof(float);
    const size_t elements = norm->in[0]->channels * (size_t)graph_dtype_bytes(norm->out.dtype);
    const bool is_early = form == CUDA_STATS_PROLOGUE;
    const uint32_t end = backward_time(cuda, norm);
    enum status status;

    assert(norm->graph->op == GRAPH_BATCH_NORM);
    if (form == CUDA_STATS_NONE)
        return STATUS_OK;
    status = cuda_request(cuda, norm, (void **)&norm->channel_sums, 2 * floats,
                          norm->graph->inputs[0], norm->index, err);
    if (status == STATUS_OK)
        status = cuda_request(cuda, norm, &norm->equal, 2 * elements, norm->index,
                              is_early ? end : norm->index, err);
    if (status != STATUS_OK || !is_early)
        return status;
    return cuda_request(cuda, norm, (void **)&norm->factors, 3 * floats,
                        cuda_stats_grads_birth(cuda, norm), end, err);
}

/* -- ports -- */

static void add_sums(const struct cuda_layer *norm, void **pointers)
{
    pointers[PLAN_PORT_SUM] = norm->channel_sums;
    pointers[PLAN_PORT_SQ_SUM] = norm->channel_sums + norm->in[0]->channels;
}

static void add_equal(const struct cuda_layer *norm, void **pointers)
{
    const size_t bytes = norm->in[0]->channels * (size_t)graph_dtype_bytes(norm->out.dtype);

    pointers[PLAN_PORT_EQ_SCALE] = norm->equal;
    pointers[PLAN_PORT_EQ_SHIFT] = (char *)norm->equal + bytes;
}

static void add_statistics(const struct cuda_layer *norm, void **pointers)
{
    const size_t c = norm->in[0]->channels;

    pointers[PLAN_PORT_SCALE] = norm->tensors[GAMMA].param;
    pointers[PLAN_PORT_SHIFT] = norm->tensors[BETA].param;
    pointers[PLAN_PORT_MEAN] = norm->stats + KERNEL_NORM_MEAN * c;
    pointers[PLAN_PORT_INV_STD] = norm->stats + KERNEL_NORM_INV_STD * c;
}

static void add_factors(const struct cuda_layer *norm, void **pointers)
{
    const size_t c = norm->in[0]->channels;

    pointers[PLAN_PORT_DY_FACTOR] = norm->factors;
    pointers[PLAN_PORT_X_FACTOR] = norm->factors + c;
    pointers[PLAN_PORT_TERM] = norm->factors + 2 * c;
}

static void *made(const struct cuda_tensor *tensor)
{
    return tensor->made != NULL ? tensor->made : tensor->grad;
}

/* -- the convolution's side -- */

/* The norm after this convolution that uses its sums in this step; NULL: none. */
static const struct cuda_layer *norm_after(const struct cuda *cuda, const struct cuda_layer *conv)
{
    const uint32_t user = graph_only_user(cuda->graph, conv->index);

    if (user == GRAPH_NONE || cuda->graph->layers[user].inputs[0] != conv->index ||
        cuda_stats_form(cuda, &cuda->layers[user]) == CUDA_STATS_NONE)
        return NULL;
    return &cuda->layers[user];
}

/* The norm before this convolution whose value the convolution computes; NULL: none. */
static const struct cuda_layer *norm_before(const struct cuda *cuda, const struct cuda_layer *conv)
{
    const struct cuda_layer *in = &cuda->layers[conv->graph->inputs[0]];

    return conv->graph->op == GRAPH_CONV2D && cuda_stats_form(cuda, in) == CUDA_STATS_PROLOGUE
               ? in
               : NULL;
}

void cuda_stats_forward(const struct cuda *cuda, const struct cuda_layer *conv,
                        enum plan_kind *kind, void **pointers)
{
    const struct cuda_layer *after = norm_after(cuda, conv), *before = norm_before(cuda, conv);

    if (after == NULL)
        return;
    assert(*kind == PLAN_CONV_FORWARD);
    *kind = before != NULL ? PLAN_CONV_STATS_PROLOGUE : PLAN_CONV_STATS;
    add_sums(after, pointers);
    if (before == NULL)
        return;
    pointers[PLAN_PORT_X] = before->in[0]->data;
    add_equal(before, pointers);
}

void cuda_stats_wgrad(const struct cuda *cuda, const struct cuda_layer *conv, enum plan_kind *kind,
                      void **pointers)
{
    const struct cuda_layer *before = norm_before(cuda, conv);

    if (before == NULL)
        return;
    assert(*kind == PLAN_CONV_WGRAD);
    *kind = PLAN_CONV_WGRAD_PROLOGUE;
    pointers[PLAN_PORT_X] = before->in[0]->data;
    add_equal(before, pointers);
}

void cuda_stats_dgrad(const struct cuda *cuda, const struct cuda_layer *conv, enum plan_kind *kind,
                      void **pointers)
{
    const struct cuda_layer *before = norm_before(cuda, conv);

    if (before == NULL)
        return;
    assert(*kind == PLAN_CONV_DGRAD);
    *kind = PLAN_CONV_DGRAD_NORM;
    pointers[PLAN_PORT_DADD] = pointers[PLAN_PORT_DX];
    pointers[PLAN_PORT_DX] = NULL;
    pointers[PLAN_PORT_X] = before->in[0]->data;
    pointers[PLAN_PORT_DSCALE] = made(&before->tensors[GAMMA]);
    pointers[PLAN_PORT_DSHIFT] = made(&before->tensors[BETA]);
    add_statistics(before, pointers);
    add_factors(before, pointers);
}

/* -- the norm's side -- */

static enum status finalize(struct cuda *cuda, struct cuda_layer *norm, void *const *given,
                            struct err *err)
{
    void *pointers[PLAN_PORTS] = {
        [PLAN_PORT_RUNNING_MEAN] = given[PLAN_PORT_RUNNING_MEAN],
        [PLAN_PORT_RUNNING_VAR] = given[PLAN_PORT_RUNNING_VAR],
    };

    add_sums(norm, pointers);
    add_statistics(norm, pointers);
    add_equal(norm, pointers);
    return cuda_run(cuda, norm, PLAN_STATS_FINALIZE, pointers, err);
}

enum status cuda_stats_norm_forward(struct cuda *cuda, struct cuda_layer *norm, void *const *given,
                                    struct err *err)
{
    void *pointers[PLAN_PORTS] = {
        [PLAN_PORT_X] = given[PLAN_PORT_X],
        [PLAN_PORT_ADD] = given[PLAN_PORT_ADD],
        [PLAN_PORT_Y] = given[PLAN_PORT_Y],
    };
    enum status status = finalize(cuda, norm, given, err);

    if (status != STATUS_OK || cuda_stats_form(cuda, norm) == CUDA_STATS_PROLOGUE)
        return status;
    add_statistics(norm, pointers);
    if (!norm->graph->fused_relu)
        return cuda_run(cuda, norm, PLAN_NORM_EVALUATE, pointers, err);
    pointers[PLAN_PORT_MASK] = given[PLAN_PORT_MASK];
    return cuda_run(cuda, norm, PLAN_NORM_APPLY, pointers, err);
}

enum status cuda_stats_norm_dx(struct cuda *cuda, struct cuda_layer *norm, struct err *err)
{
    void *pointers[PLAN_PORTS] = {
        [PLAN_PORT_DADD] = norm->out.grad,
        [PLAN_PORT_X] = norm->in[0]->data,
        [PLAN_PORT_DX] = norm->dx[0],
    };

    add_factors(norm, pointers);
    return cuda_run(cuda, norm, PLAN_NORM_DX, pointers, err);
}
