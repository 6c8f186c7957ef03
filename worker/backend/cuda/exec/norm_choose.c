/* Which batch norms run as plans and which as our own kernels: chosen once for a net, with its
 * first set of plans. If both are possible, the faster one is chosen. One log line at the start
 * reports the choice, since nothing else shows that a norm has no plans.
 *
 * A norm runs by its plan where both were timed and the plan is faster, else by our kernels, which need no compilation: on
 * an H100 all norms of ResNet-50 took 18.4 ms by them, 18.0 by the faster of both. With --deterministic (times differ from
 * run to run) all run by our kernels. With DDP_CUDA_STATS=1 or 2 and DDP_CUDA_NORMS=plans nothing
 * is compared, and plans are used; with DDP_CUDA_STATS=auto where stats_choose.c found a form to be faster. */
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "worker/backend/cuda/exec/internal.h"

enum { GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR, TENSORS };

/* One allocation for everything that a pass of the norm reads and writes. */
struct layout {
    char *memory; /* NULL: only count */
    size_t bytes;
};

static void *take(struct layout *layout, size_t bytes)
{
    void *at = layout->memory != NULL ? layout->memory + layout->bytes : NULL;

    layout->bytes += (bytes + 255) / 256 * 256;
    return at;
}

/* Sets all pointers of the layer into that memory, as memory.c does later for training. */
static void point(const struct cuda *cuda, struct cuda_layer *layer, struct cuda_value in[2],
                  struct cuda_tensor tensors[TENSORS], struct layout *layout)
{
    const struct cuda_norm_needs needs = cuda_norm_needs(cuda, layer);
    const size_t value = cuda_value_bytes(cuda, layer->in[0]);

    for (uint32_t i = GAMMA; i < TENSORS; i++) {
        tensors[i] = layer->tensors[i];
        tensors[i].param = take(layout, needs.floats);
        tensors[i].grad = take(layout, needs.floats);
        tensors[i].half = NULL;
    }
    layer->tensors = tensors;
    layer->given_by = layer->gives_to = NULL;
    for (uint32_t k = 0; k < 2; k++) {
        if (layer->in[k] == NULL)
            continue;
        in[k] = *layer->in[k];
        in[k].data = take(layout, value);
        layer->in[k] = &in[k];
        layer->dx[k] = take(layout, value);
    }
    layer->out.data = take(layout, value);
    layer->out.grad = take(layout, value);
    layer->inside = take(layout, value);
    layer->inside_grad = take(layout, value);
    layer->kept = take(layout, value);
    layer->place = take(layout, value);
    layer->stats = take(layout, needs.floats);
    layer->coefs = take(layout, needs.floats);
    layer->mask = layer->graph->fused_relu ? take(layout, needs.mask) : NULL;
    layer->sums = take(layout, needs.sums);
    layer->own_sums = take(layout, needs.sums);
    layer->scratch = take(layout, needs.scratch);
}

static enum status own_pass(struct cuda *cuda, void *user, struct err *err)
{
    return cuda_norm_own_pass(cuda, user, err);
}

static enum status pool_pass(struct cuda *cuda, void *user, struct err *err)
{
    return cuda_norm_pool_pass(cuda, user, err);
}

float cuda_norm_time_us(struct cuda *cuda, const struct cuda_layer *norm, cuda_measured prepare,
                        cuda_measured pass)
{
    struct cuda_tensor tensors[TENSORS];
    struct cuda_layer layer = *norm;
    struct layout layout = {NULL, 0};
    struct cuda_value in[2];
    const bool was_training = cuda->training;
    void *memory = NULL;
    struct err ignored;
    float us;

    point(cuda, &layer, in, tensors, &layout);
    if (cuda_measure_memory(cuda, norm->in[0]->dtype, layout.bytes, &memory, &ignored) != STATUS_OK)
        return 0.0F;
    layer = *norm;
    layout = (struct layout){memory, 0};
    point(cuda, &layer, in, tensors, &layout);
    cuda->training = true;
    us = prepare == NULL || prepare(cuda, &layer, &ignored) == STATUS_OK
             ? cuda_measure_us(cuda, pass, &layer)
             : 0.0F;
    cuda->training = was_training;
    cuda->runtime->memory_free(&memory);
    return us;
}

bool cuda_norms_compare(const struct cuda *cuda)
{
    return (cuda->options.stats == CUDA_STATS_NONE || cuda->options.stats == CUDA_STATS_MEASURED) &&
           !cuda->options.norm_plans;
}

bool cuda_norm_same_work(const struct cuda_layer *a, const struct cuda_layer *b)
{
    return a->graph->op == GRAPH_BATCH_NORM && a->in[0]->image_size == b->in[0]->image_size &&
           a->in[0]->channels == b->in[0]->channels && a->in[0]->dtype == b->in[0]->dtype &&
           a->graph->fused_add == b->graph->fused_add &&
           a->graph->fused_relu == b->graph->fused_relu &&
           a->graph->fused_pool == b->graph->fused_pool;
}

struct timed {
    const struct cuda_layer *norm;
    cuda_measured pass;
};

static float time_now(struct cuda *cuda, void *user)
{
    const struct timed *timed = user;

    return cuda_norm_time_us(cuda, timed->norm, NULL, timed->pass);
}

/* Norms that do the same work have one name. `what` changes with the kernels, so that no time of
 * older ones is taken from the cache. */
static float time_once(struct cuda *cuda, const struct cuda_layer *norm, cuda_measured pass,
                       const char *what)
{
    struct timed timed = {norm, pass};
    char name[192];

    (void)snprintf(name, sizeof name, "%s %s n%u c%u h%u w%u to %ux%u%s%s%s", what,
                   plan_type_name(norm->in[0]->dtype), cuda->rows, norm->in[0]->channels,
                   norm->in[0]->h, norm->in[0]->w, norm->out.h, norm->out.w,
                   norm->graph->fused_add ? " add" : "", norm->graph->fused_relu ? " relu" : "",
                   norm->graph->fused_pool ? " pool" : "");
    return cuda_time_once(cuda, name, time_now, &timed);
}

/* The time of the plans, and of the pool after them; 0: not known. */
static float plan_time(struct cuda *cuda, const struct cuda_layer *norm)
{
    const float forward = cuda_plan_time_us(cuda, norm, PLAN_NORM_FORWARD);
    const float backward = cuda_plan_time_us(cuda, norm, PLAN_NORM_BACKWARD);
    float pool = 0.0F;

    if (forward <= 0.0F || backward <= 0.0F)
        return 0.0F;
    if (norm->graph->fused_pool)
        pool = time_once(cuda, norm, pool_pass, "pool");
    return !norm->graph->fused_pool || pool > 0.0F ? forward + backward + pool : 0.0F;
}

struct choice {
    uint32_t norms, slower;  /* all norms; those whose plans are slower than our kernels */
    uint32_t without;        /* norms that have no plans */
    uint32_t untimed;        /* norms whose plans have no time yet, so by our kernels */
    char reason[240];        /* the first of these, and why it has none */
    double plans_us, own_us; /* of a step: the norms for which both times are known */
};

/* Why a norm has no plan, and what there is instead. */
static void keep_reason(const struct cuda *cuda, const struct cuda_layer *norm,
                        const struct err *why, struct choice *choice)
{
    char instead[80] = "";

    if (cuda->norm_sum == NULL)
        (void)snprintf(instead, sizeof instead, "; our own kernels take over (%s%s, with%s ReLU)",
                       plan_type_name(norm->in[0]->dtype),
                       norm->graph->fused_add ? ", with an addition" : "",
                       norm->graph->fused_relu ? "" : "out");
    (void)snprintf(choice->reason, sizeof choice->reason, "%.159s%s", why->text, instead);
}

static void report(const struct cuda *cuda, const struct choice *choice)
{
    const uint32_t own = choice->slower + choice->without + choice->untimed;
    char faster[64] = "", beside[64] = "", times[96] = "", untimed[96] = "";

    if (choice->slower > 0)
        (void)snprintf(faster, sizeof faster, "; %u of them faster than their plans",
                       choice->slower);
    if (cuda->collective_sms > 0 && choice->norms > own)
        (void)snprintf(beside, sizeof beside, "; plans leave %u multiprocessors to NCCL",
                       cuda->collective_sms);
    if (choice->plans_us > 0.0 && choice->own_us > 0.0)
        (void)snprintf(times, sizeof times,
                       "; a step's norms take %.3f ms by plans, %.3f ms by own kernels (%.2f x)",
                       choice->plans_us * 1e-3, choice->own_us * 1e-3,
                       choice->own_us / choice->plans_us);
    if (choice->untimed > 0 && !cuda->deterministic)
        (void)snprintf(untimed, sizeof untimed, "; plans of %u are not timed yet (--tune)",
                       choice->untimed);
    /* a warning where nothing but our kernels is left: cuDNN or the driver may be at fault */
    log_line(choice->without == choice->norms && cuda->norm_sum == NULL ? LOG_WARNING : LOG_INFO,
             LOG_ABOUT_NONE, "%u of %u batch norms by plans, %u by own kernels%s%s%s%s%s%s",
             choice->norms - own, choice->norms, own, choice->reason[0] != '\0' ? ": " : "",
             choice->reason, faster, beside, times, untimed);
}

float cuda_norm_own_us(struct cuda *cuda, const struct cuda_layer *norm)
{
    return time_once(cuda, norm, own_pass, "own batch norm, a launch a part");
}

/* Whether the plans are there and were not slower than our kernels. */
static bool is_faster_by_plans(struct cuda *cuda, struct cuda_layer *norm, struct choice *choice)
{
    const float plans = plan_time(cuda, norm);
    const float own = plans > 0.0F ? cuda_norm_own_us(cuda, norm) : 0.0F;

    if (own <= 0.0F) {
        choice->untimed++;
        return false;
    }
    choice->plans_us += (double)plans;
    choice->own_us += (double)own;
    choice->slower += own < plans;
    return own >= plans;
}

/* Sets uses_plans; keeps the reason if there is no plan. */
static void choose(struct cuda *cuda, struct cuda_layer *norm, struct choice *choice)
{
    struct err why = {.text = ""};

    choice->norms++;
    norm->uses_plans = cuda_norm_has_plans(cuda, norm, &why);
    if (!norm->uses_plans && cuda->norm_sum == NULL && cuda_norm_put_off(cuda, norm))
        choice->untimed++;
    else if (!norm->uses_plans && choice->without++ == 0)
        keep_reason(cuda, norm, &why, choice);
    else if (norm->uses_plans && cuda_norms_compare(cuda) &&
             cuda->set->forms[norm->index] == CUDA_STATS_NONE)
        norm->uses_plans = is_faster_by_plans(cuda, norm, choice);
}

void cuda_norms_choose(struct cuda *cuda)
{
    struct choice choice = {.reason = ""};

    if (cuda->evaluate_only)
        return; /* all norms use our own kernels */
    for (uint32_t i = 0; i < cuda->graph->layer_count; i++)
        if (cuda->layers[i].graph->op == GRAPH_BATCH_NORM)
            choose(cuda, &cuda->layers[i], &choice);
    if (choice.norms > 0)
        report(cuda, &choice);
}

static bool is_read_by_others(const struct cuda *cuda, uint32_t index, uint32_t user)
{
    for (uint32_t i = index + 1; i < cuda->graph->layer_count; i++)
        for (uint32_t k = 0; k < 2 && i != user; k++)
            if (cuda->graph->layers[i].inputs[k] == index)
                return true;
    return false;
}

void cuda_norms_share(struct cuda *cuda)
{
    for (uint32_t i = 0; i < cuda->graph->layer_count && !cuda->evaluate_only; i++) {
        struct cuda_layer *norm = &cuda->layers[i], *other;

        if (norm->graph->op != GRAPH_BATCH_NORM || !norm->graph->fused_add || norm->uses_plans)
            continue;
        other = &cuda->layers[norm->graph->inputs[1]];
        if (other->graph->op != GRAPH_BATCH_NORM || other->uses_plans || other->graph->fused_relu ||
            other->graph->fused_add || other->graph->fused_pool || !other->out.needs_grad ||
            norm->graph->inputs[0] == other->index || norm->gives_to != NULL ||
            is_read_by_others(cuda, other->index, i))
            continue;
        norm->gives_to = other;
        other->given_by = norm;
    }
}
