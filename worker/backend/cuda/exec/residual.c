/* A block adds its input to its last norm's value and applies a ReLU. The input's gradient is the sum of the output's
 * gradient, where the ReLU let the value through, and of the data gradient of the block's first convolution. The norm
 * would store the first for the second to add it. Instead the data gradient may take gradient and mask where they are:
 * a value is written and read less, at the price of a plan that cuDNN compiles. No card has run such a plan
 * yet, so it is off. With DDP_CUDA_SHORTCUTS=auto it is made by --tune, as those of norms are, and used where it is
 * faster; 1 makes and uses it in any case. */
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
    if (cuda->evaluate_only || cuda->deterministic || cuda->options.no_masked_plans ||
        !cuda_norms_compare(cuda))
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

struct choice {
    uint32_t known,
        kept; /* shortcuts for which both ways were timed; those whose gradients are not stored */
};

static bool is_faster(const struct cuda *cuda, const struct cuda_layer *conv, struct choice *choice)
{
    const float masked = cuda_plan_time_us(cuda, conv, PLAN_CONV_DGRAD_MASKED);
    const float stored = stored_us(cuda, conv);

    if (!cuda->options.masked_plans && (masked <= 0.0F || stored <= 0.0F))
        return false;
    choice->known++;
    return cuda->options.masked_plans || masked < stored;
}

void cuda_residuals_choose(struct cuda *cuda)
{
    struct choice choice = {0};

    for (uint32_t i = 0; i < cuda->graph->layer_count; i++) {
        struct cuda_layer *conv = &cuda->layers[i], *norm;

        if (conv->masked_by == NULL)
            continue;
        norm = &cuda->layers[conv->masked_by->index];
        conv->masked_by = NULL;
        if (norm->uses_plans || !cuda_has_plan(cuda, conv, PLAN_CONV_DGRAD_MASKED) ||
            !is_faster(cuda, conv, &choice))
            continue;
        choice.kept++;
        conv->masked_by = norm;
        norm->masks_for = conv;
    }
    if (choice.known > 0)
        log_line(LOG_INFO, LOG_ABOUT_NONE,
                 "%u of %u shortcuts' gradients are not stored: the data gradient reads them under "
                 "their mask",
                 choice.kept, choice.known);
}

bool cuda_residual_by_plan(const struct cuda *cuda, const struct cuda_layer *conv)
{
    return conv->masked_by != NULL && conv->masked_by->masks_for == conv &&
           cuda_has_plan(cuda, conv, PLAN_CONV_DGRAD_MASKED);
}
