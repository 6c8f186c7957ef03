/* Which form each batch norm has for its statistics and its value: chosen once for every set of
 * plans. A norm whose plans are missing uses CUDA_STATS_NONE; with DDP_CUDA_STATS=auto so does a
 * norm for which no other form was measured to be faster. */
#include "common/log.h"
#include "worker/backend/cuda/exec/internal.h"

static const struct cuda_layer *maker(const struct cuda *cuda, const struct cuda_layer *norm)
{
    return &cuda->layers[norm->graph->inputs[0]];
}

const struct cuda_layer *cuda_stats_reader(const struct cuda *cuda, const struct cuda_layer *norm)
{
    const uint32_t user = graph_only_user(cuda->graph, norm->index);

    return user != GRAPH_NONE && cuda->graph->layers[user].op == GRAPH_CONV2D ? &cuda->layers[user]
                                                                              : NULL;
}

bool cuda_stats_requested(const struct cuda *cuda)
{
    return cuda->options.stats != CUDA_STATS_NONE && !cuda->evaluate_only && cuda->norm_sum == NULL;
}

/* -- which plans exist -- */

/* The plan that computes the norm's value from given statistics. */
static enum plan_kind apply_kind(const struct cuda_layer *norm)
{
    return norm->graph->fused_relu ? PLAN_NORM_APPLY : PLAN_NORM_EVALUATE;
}

static bool can_apply(const struct cuda *cuda, const struct cuda_layer *norm)
{
    return cuda_has_plan(cuda, maker(cuda, norm), PLAN_CONV_STATS) &&
           cuda_has_plan(cuda, norm, PLAN_STATS_FINALIZE) &&
           cuda_has_plan(cuda, norm, PLAN_NORM_FORWARD) &&
           cuda_has_plan(cuda, norm, PLAN_NORM_BACKWARD) &&
           cuda_has_plan(cuda, norm, apply_kind(norm));
}

/* The norm after that convolution is later in the graph, and forms are chosen from the last norm to
 * the first, so its form is known. */
static bool can_prologue(const struct cuda *cuda, const struct cuda_layer *norm)
{
    const struct cuda_layer *conv = cuda_stats_reader(cuda, norm);

    return conv != NULL && cuda_has_plan(cuda, norm, PLAN_NORM_DX) &&
           cuda_has_plan(cuda, conv, PLAN_CONV_STATS_PROLOGUE) &&
           cuda_has_plan(cuda, conv, PLAN_CONV_WGRAD_PROLOGUE) &&
           cuda_has_plan(cuda, conv, PLAN_CONV_DGRAD_NORM) &&
           cuda->set->forms[graph_only_user(cuda->graph, conv->index)] != CUDA_STATS_NONE;
}

/* Buffers were laid out for the forms of the first set of plans. */
static bool is_laid_out(const struct cuda *cuda, const struct cuda_layer *layer,
                        enum cuda_stats form)
{
    return cuda->set == cuda->sets ||
           (layer->uses_plans && cuda->sets[0].forms[layer->index] >= (uint8_t)form);
}

/* -- measured times -- */

/* The sum of times in microseconds; NO_TIME where one of them was not measured. */
#define NO_TIME 1e30F

static float sum_times(const float *times, size_t count)
{
    float sum = 0;

    for (size_t i = 0; i < count; i++) {
        if (times[i] == 0.0F)
            return NO_TIME;
        sum += times[i];
    }
    return sum;
}

/* The convolution and the norm both ways, without statistics from the convolution: by plans or by our own kernels. */
static float unfused_time(struct cuda *cuda, const struct cuda_layer *norm)
{
    const float plans[] = {cuda_plan_time_us(cuda, norm, PLAN_NORM_FORWARD),
                           cuda_plan_time_us(cuda, norm, PLAN_NORM_BACKWARD)};
    const float by_plans = sum_times(plans, 2);
    const float own = cuda_norms_compare(cuda) ? cuda_norm_own_us(cuda, norm) : 0.0F;
    const float times[] = {cuda_plan_time_us(cuda, maker(cuda, norm), PLAN_CONV_FORWARD),
                           own > 0.0F && own < by_plans ? own : by_plans};

    return sum_times(times, 2);
}

/* The same with them; the norm's value is a pass of its own. */
static float apply_time(const struct cuda *cuda, const struct cuda_layer *norm)
{
    const float times[] = {
        cuda_plan_time_us(cuda, maker(cuda, norm), PLAN_CONV_STATS),
        cuda_plan_time_us(cuda, norm, PLAN_STATS_FINALIZE),
        cuda_plan_time_us(cuda, norm, apply_kind(norm)),
        cuda_plan_time_us(cuda, norm, PLAN_NORM_BACKWARD),
    };

    return sum_times(times, sizeof times / sizeof times[0]);
}

/* The same with the value made on the way into the next convolution, which is included. */
static float prologue_time(const struct cuda *cuda, const struct cuda_layer *norm)
{
    const struct cuda_layer *conv = cuda_stats_reader(cuda, norm);
    const float times[] = {
        cuda_plan_time_us(cuda, maker(cuda, norm), PLAN_CONV_STATS),
        cuda_plan_time_us(cuda, norm, PLAN_STATS_FINALIZE),
        cuda_plan_time_us(cuda, conv, PLAN_CONV_STATS_PROLOGUE),
        cuda_plan_time_us(cuda, conv, PLAN_CONV_WGRAD_PROLOGUE),
        cuda_plan_time_us(cuda, conv, PLAN_CONV_DGRAD_NORM),
        cuda_plan_time_us(cuda, norm, PLAN_NORM_DX),
    };

    return sum_times(times, sizeof times / sizeof times[0]);
}

/* The convolution after the norm, whose own norm takes its statistics from it. */
static float reader_time(const struct cuda *cuda, const struct cuda_layer *norm)
{
    const struct cuda_layer *conv = cuda_stats_reader(cuda, norm);
    const float times[] = {
        cuda_plan_time_us(cuda, conv, PLAN_CONV_STATS),
        cuda_plan_time_us(cuda, conv, PLAN_CONV_WGRAD),
        cuda_plan_time_us(cuda, conv, PLAN_CONV_DGRAD),
    };

    return sum_times(times, sizeof times / sizeof times[0]);
}

/* -- the choice -- */

/* The fastest form. Not timed: CUDA_STATS_NONE, the unfused form. */
static enum cuda_stats choose_measured(struct cuda *cuda, const struct cuda_layer *norm,
                                       bool may_prologue)
{
    const float none = unfused_time(cuda, norm), apply = apply_time(cuda, norm);
    const enum cuda_stats best =
        apply < none && none < NO_TIME ? CUDA_STATS_APPLY : CUDA_STATS_NONE;
    float best_time;

    if (!may_prologue)
        return best;
    best_time = (best == CUDA_STATS_APPLY ? apply : none) + reader_time(cuda, norm);
    return prologue_time(cuda, norm) < best_time && best_time < NO_TIME ? CUDA_STATS_PROLOGUE
                                                                        : best;
}

static enum cuda_stats choose(struct cuda *cuda, const struct cuda_layer *norm)
{
    const bool may_prologue = cuda->options.stats >= CUDA_STATS_PROLOGUE &&
                              can_prologue(cuda, norm) &&
                              is_laid_out(cuda, norm, CUDA_STATS_PROLOGUE);

    if (!can_apply(cuda, norm) || !is_laid_out(cuda, norm, CUDA_STATS_APPLY))
        return CUDA_STATS_NONE;
    if (cuda->options.stats == CUDA_STATS_MEASURED)
        return choose_measured(cuda, norm, may_prologue);
    return may_prologue ? CUDA_STATS_PROLOGUE : CUDA_STATS_APPLY;
}

/* Logs how many norms have which form, once for a net: nothing else shows a missing plan. */
static void log_forms(const struct cuda *cuda)
{
    static const char *const requests[] = {"0", "1", "2", "auto"};
    uint32_t counts[CUDA_STATS_PROLOGUE + 1] = {0};

    for (uint32_t i = 0; i < cuda->graph->layer_count; i++)
        if (cuda->graph->layers[i].op == GRAPH_BATCH_NORM)
            counts[cuda->set->forms[i]]++;
    log_line(LOG_INFO, LOG_ABOUT_NONE,
             "DDP_CUDA_STATS=%s: of %u batch norms %u take statistics from the convolution before, "
             "%u more are made on the way into the next one too",
             requests[cuda->options.stats], counts[0] + counts[1] + counts[2],
             counts[CUDA_STATS_APPLY], counts[CUDA_STATS_PROLOGUE]);
}

void cuda_stats_choose(struct cuda *cuda)
{
    if (!cuda_stats_requested(cuda))
        return;
    for (uint32_t i = cuda->graph->layer_count; i-- > 0;)
        if (cuda->graph->layers[i].op == GRAPH_BATCH_NORM)
            cuda->set->forms[i] = (uint8_t)choose(cuda, &cuda->layers[i]);
    if (cuda->set == cuda->sets)
        log_forms(cuda);
}
