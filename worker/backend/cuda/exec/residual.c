/* A block adds its input to its last norm's value and applies a ReLU. The input's gradient is the sum of the output's
 * gradient, where the ReLU let the value through, and of the data gradient of the block's first convolution. The norm
 * would store the first for the second to add it. Instead the data gradient may take gradient and mask where they are:
 * a value is written and read less, at the price of a plan that cuDNN compiles. So it is made only by --tune, as those
 * of norms are, and used where it is faster. */
#include "common/log.h"
#include "worker/backend/cuda/exec/internal.h"

static bool is_read_by(const struct graph_layer *layer, uint32_t index)
{
    return layer->inputs[0] == index || layer->inputs[1] == index;
}

/* The norm that adds the convolution's input, if nobody but these two reads it; else NULL. In 16 bits alone: there our
 * own kernels and cuDNN have the same masks. */
static const struct cuda_layer *find_norm(const struct cuda *cuda, const struct cuda_layer *conv)
{
    const uint32_t input = conv->graph->inputs[0];
    const struct cuda_layer *norm = NULL;

    if (cuda->layers[input].is_view || conv->out.dtype == GRAPH_F32)
        return NULL;
    for (uint32_t i = input + 1; i < cuda->graph->layer_count; i++) {
        if (i == conv->index || !is_read_by(&cuda->graph->layers[i], input))
            continue;
        if (norm != NULL)
            return NULL;
        norm = &cuda->layers[i];
    }
    return norm != NULL && norm->graph->op == GRAPH_BATCH_NORM && norm->graph->fused_add &&
                   norm->graph->fused_relu && !norm->graph->fused_pool &&
                   norm->graph->inputs[0] != input && norm->out.dtype == conv->out.dtype
               ? norm
               : NULL;
}

void cuda_residuals_find(struct cuda *cuda)
{
    if (cuda->evaluate_only || cuda->deterministic || !cuda_norms_compare(cuda))
        return;
    for (uint32_t i = 0; i < cuda->graph->layer_count; i++) {
        struct cuda_layer *conv = &cuda->layers[i];

        if (conv->graph->op == GRAPH_CONV2D && conv->adds[0])
            conv->masked_by = find_norm(cuda, conv);
    }
}

/* Microseconds that the block needs now, with what it takes to store the gradient: an addition reads two values and
 * writes one, at the memory's rate, so a third of it. 0: not known. */
static float stored_us(const struct cuda *cuda, const struct cuda_layer *conv)
{
    const float one = cuda_plan_time_us(cuda, conv, PLAN_CONV_DGRAD_ADD);
    const float apart = cuda_plan_time_us(cuda, conv, PLAN_CONV_DGRAD);

    if (conv->add_us <= 0.0F || one <= 0.0F || apart <= 0.0F)
        return 0.0F;
    return (one < apart + conv->add_us ? one : apart + conv->add_us) + conv->add_us / 3.0F;
}

void cuda_residuals_choose(struct cuda *cuda)
{
    uint32_t known = 0, kept = 0;

    for (uint32_t i = 0; i < cuda->graph->layer_count; i++) {
        struct cuda_layer *conv = &cuda->layers[i], *norm;
        float masked, stored;

        if (conv->masked_by == NULL)
            continue;
        norm = &cuda->layers[conv->masked_by->index];
        masked = cuda_plan_time_us(cuda, conv, PLAN_CONV_DGRAD_MASKED);
        stored = stored_us(cuda, conv);
        conv->masked_by = NULL;
        if (norm->uses_plans || masked <= 0.0F || stored <= 0.0F ||
            !cuda_has_plan(cuda, conv, PLAN_CONV_DGRAD_MASKED))
            continue;
        known++;
        if (masked >= stored)
            continue;
        kept++;
        conv->masked_by = norm;
        norm->masks_for = conv;
    }
    if (known > 0)
        log_line(LOG_INFO, LOG_ABOUT_NONE,
                 "%u of %u shortcuts' gradients are not stored: the data gradient reads them under "
                 "their mask",
                 kept, known);
}

bool cuda_residual_by_plan(const struct cuda *cuda, const struct cuda_layer *conv)
{
    return conv->masked_by != NULL && conv->masked_by->masks_for == conv &&
           cuda_has_plan(cuda, conv, PLAN_CONV_DGRAD_MASKED);
}
