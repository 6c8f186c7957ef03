#include "tests/numerics/net/net_subject.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/net/net_reference.h"
#include "worker/net/net.h"
#include "worker/data/rng.h"
#include "worker/net/state.h"

#define BATCH 6
#define TENSORS_MAX 64
#define ELEMENTS 12 /* of each tensor are compared; each costs two forward passes in double */
#define STEP 1e-7   /* of the central difference, in double */
/* Of the largest gradient of its tensor, or of 0.01 if that is more: f32 sums. */
#define GRAD_TOLERANCE 2e-4

struct subject {
    struct graph *graph;
    struct net *net;
    uint32_t seed;
    double *tensors[TENSORS_MAX];
    float *grads[TENSORS_MAX]; /* of the first full batch; NULL where the tensor has none */
    float *images;
    double smoothing;
    int64_t labels[BATCH];
    uint32_t image_floats;
};

void subject_finish(struct graph *graph, uint32_t x)
{
    x = graph_flatten(graph, "flatten", x);
    x = graph_linear(graph, "fc", x, SUBJECT_CLASSES, true);
    (void)graph_cross_entropy(graph, "loss", x);
}

static void draw_parameters(struct subject *s, struct rng *rng)
{
    for (uint32_t i = 0; i < s->graph->tensor_count; i++) {
        const struct graph_tensor *tensor = &s->graph->tensors[i];
        const bool positive = tensor->role == GRAPH_RUNNING_VAR;
        float *values = calloc(tensor->count, sizeof *values);

        CHECK(values != NULL);
        rng_uniform_f32(rng, positive ? 0.5F : -0.6F, positive ? 1.5F : 0.6F, values,
                        tensor->count);
        CHECK_EQ(net_tensor_write(s->net, i, values, NULL), STATUS_OK);
        s->tensors[i] = calloc(tensor->count, sizeof *s->tensors[i]);
        for (size_t k = 0; k < tensor->count; k++)
            s->tensors[i][k] = (double)values[k];
        free(values);
    }
}

static void subject_new(struct subject *s, void (*build)(struct graph *), double smoothing,
                        uint32_t seed)
{
    const struct net_options options = {.batch_max = BATCH,
                                        .bucket_first_bytes = 64,
                                        .bucket_bytes = 512,
                                        .label_smoothing = (float)smoothing};
    struct err err = {0};
    struct rng rng;

    *s = (struct subject){.graph = graph_new(), .seed = seed, .smoothing = smoothing};
    build(s->graph);
    if (graph_check(s->graph, &err) != STATUS_OK ||
        net_new(&s->net, s->graph, &options, &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK(s->graph->tensor_count <= TENSORS_MAX);
    rng_seed(&rng, seed);
    draw_parameters(s, &rng);
    s->image_floats = (uint32_t)graph_value_count(&s->graph->layers[0].out);
    s->images = calloc((size_t)BATCH * s->image_floats, sizeof *s->images);
    rng_uniform_f32(&rng, -1.0F, 1.0F, s->images, (size_t)BATCH * s->image_floats);
    for (int i = 0; i < BATCH; i++)
        s->labels[i] = (int64_t)(rng_u32(&rng) % SUBJECT_CLASSES);
}

static void subject_free(struct subject *s)
{
    for (uint32_t i = 0; i < s->graph->tensor_count; i++)
        free(s->tensors[i]);
    for (uint32_t i = 0; i < s->graph->tensor_count; i++)
        free(s->grads[i]);
    free(s->images);
    net_free(&s->net);
    graph_free(&s->graph);
}

static struct reference reference_new(const struct subject *s, uint32_t n, bool training)
{
    return (struct reference){.graph = s->graph,
                              .tensors = s->tensors,
                              .labels = s->labels,
                              .n = n,
                              .smoothing = s->smoothing,
                              .training = training,
                              .values = reference_values_new(s->graph, s->images, n)};
}

static double loss_of(const struct subject *s, uint32_t n, bool training)
{
    struct reference r = reference_new(s, n, training);
    double loss;

    r.update = training;
    loss = reference_loss(&r, 1);
    reference_values_free(s->graph, r.values);
    return loss;
}

/* The derivative of the loss by *value, which belongs to `layer`. */
static double difference(const struct reference *r, double *value, uint32_t layer)
{
    const double kept = *value;
    double up, down;

    *value = kept + STEP;
    up = reference_loss(r, layer);
    *value = kept - STEP;
    down = reference_loss(r, layer);
    *value = kept;
    return (up - down) / (2 * STEP);
}

/* The gradient of tensor `index` after net_backward; the caller frees it. */
static float *read_gradient(const struct subject *s, uint32_t index)
{
    float *grads = calloc(s->graph->tensors[index].count, sizeof *grads);

    CHECK(grads != NULL);
    CHECK_EQ(net_grad_read(s->net, index, grads, NULL), STATUS_OK);
    return grads;
}

/* Up to ELEMENTS elements of one tensor, spread over it; other ones with another seed. */
static void check_gradient(const struct subject *s, const struct reference *r, uint32_t index)
{
    const struct graph_tensor *tensor = &s->graph->tensors[index];
    const size_t stride = tensor->count / ELEMENTS + 1;
    float *grads = read_gradient(s, index);
    double most = 0.01;

    for (size_t k = 0; k < tensor->count; k++)
        most = fmax(most, fabs((double)grads[k]));
    for (size_t k = s->seed * 7 % stride; k < tensor->count; k += stride) {
        const double expected = difference(r, &s->tensors[index][k], tensor->layer);

        if (!(fabs((double)grads[k] - expected) <= GRAD_TOLERANCE * most))
            FAIL("%s[%zu], %u images: %.7g, by differences %.7g", tensor->name, k, r->n,
                 (double)grads[k], expected);
    }
    free(grads);
}

static void step(struct subject *s, uint32_t n)
{
    struct net_result result;

    CHECK_EQ(net_forward(s->net, s->images, s->labels, n, true, &result, NULL), STATUS_OK);
    CHECK_NEAR(result.loss_sum / n, loss_of(s, n, true), 2e-5);
    CHECK_EQ(net_backward(s->net, 1.0F, NULL), STATUS_OK);
}

static void check_training(struct subject *s, uint32_t n)
{
    struct reference r = reference_new(s, n, true);

    step(s, n);
    (void)reference_loss(&r, 1);
    /* From the last layer back: the layers before a tensor's own are then as the undisturbed pass
     * left them. */
    for (uint32_t i = s->graph->tensor_count; i-- > 0;) {
        CHECK(i == 0 || s->graph->tensors[i - 1].layer <= s->graph->tensors[i].layer);
        if (s->graph->tensors[i].trainable)
            check_gradient(s, &r, i);
    }
    reference_values_free(s->graph, r.values);
}

static void keep_gradients(struct subject *s)
{
    for (uint32_t i = 0; i < s->graph->tensor_count; i++)
        if (s->graph->tensors[i].trainable)
            s->grads[i] = read_gradient(s, i);
}

/* A full batch after a smaller one: the same gradients as the first time, to the bit. */
static void check_training_again(struct subject *s)
{
    step(s, BATCH);
    for (uint32_t i = 0; i < s->graph->tensor_count; i++) {
        float *grads;

        if (s->grads[i] == NULL)
            continue;
        grads = read_gradient(s, i);
        if (memcmp(grads, s->grads[i], s->graph->tensors[i].count * sizeof *grads) != 0)
            FAIL("%s: other gradients after a smaller batch", s->graph->tensors[i].name);
        free(grads);
    }
}

static void check_buffers(struct subject *s)
{
    for (uint32_t i = 0; i < s->graph->tensor_count; i++) {
        float values[64];

        if (s->graph->tensors[i].trainable)
            continue;
        CHECK_EQ(net_tensor_read(s->net, i, values, NULL), STATUS_OK);
        for (size_t k = 0; k < s->graph->tensors[i].count; k++)
            CHECK_NEAR(values[k], s->tensors[i][k], 2e-6);
    }
}

/* A full batch, a smaller one, the full one again, then evaluation with the statistics that came of
 * it. */
void subject_check(void (*build)(struct graph *), double smoothing, uint32_t seed)
{
    struct net_result result;
    struct subject s;

    subject_new(&s, build, smoothing, seed);
    check_training(&s, BATCH);
    keep_gradients(&s);
    check_training(&s, BATCH - 2);
    check_training_again(&s);
    check_buffers(&s);
    for (uint32_t n = BATCH; n > 0; n -= 5) {
        const double expected = loss_of(&s, n, false);

        CHECK_EQ(net_forward(s.net, s.images, s.labels, n, false, &result, NULL), STATUS_OK);
        CHECK_EQ(result.images, n);
        CHECK_NEAR(result.loss_sum / n, expected, 2e-5 + 2e-6 * expected);
        if (n < 5)
            break;
    }
    check_buffers(&s); /* evaluation moves nothing */
    subject_free(&s);
}

void subject_check_seeds(void (*build)(struct graph *))
{
    for (uint32_t seed = 1; seed <= 2; seed++)
        subject_check(build, 0.0, seed);
}
