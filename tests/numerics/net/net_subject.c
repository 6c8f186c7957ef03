#include "tests/numerics/net/net_subject.h"

#include <math.h>
#include <stdlib.h>

#include "tests/lib/test.h"
#include "tests/numerics/net/net_reference.h"
#include "worker/net.h"
#include "worker/rng.h"

#define BATCH 6
#define TENSORS_MAX 64
#define STEP 1e-7 /* of the central difference, in double */
#define GRAD_TOLERANCE                                                                             \
    2e-4 /* of the largest gradient of its tensor, or of 0.01 if that is more: f32 sums */

struct subject {
    struct graph *graph;
    struct net *net;
    double *tensors[TENSORS_MAX];
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

    *s = (struct subject){.graph = graph_new(), .smoothing = smoothing};
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
    free(s->images);
    net_free(&s->net);
    graph_free(&s->graph);
}

static double loss_of(const struct subject *s, uint32_t n, bool training, bool update)
{
    return reference_loss(s->graph, s->tensors, s->images, s->labels, n, s->smoothing, training,
                          update);
}

static double difference(struct subject *s, double *value, uint32_t n)
{
    const double kept = *value;
    double up, down;

    *value = kept + STEP;
    up = loss_of(s, n, true, false);
    *value = kept - STEP;
    down = loss_of(s, n, true, false);
    *value = kept;
    return (up - down) / (2 * STEP);
}

/* Up to 24 elements of one tensor, spread over it. */
static void check_gradient(struct subject *s, uint32_t index, uint32_t n)
{
    const struct graph_tensor *tensor = &s->graph->tensors[index];
    const size_t stride = tensor->count / 24 + 1;
    float *grads = calloc(tensor->count, sizeof *grads);
    double most = 0.01;

    CHECK_EQ(net_grad_read(s->net, index, grads, NULL), STATUS_OK);
    for (size_t k = 0; k < tensor->count; k++)
        most = fmax(most, fabs((double)grads[k]));
    for (size_t k = 0; k < tensor->count; k += stride) {
        const double expected = difference(s, &s->tensors[index][k], n);

        if (!(fabs((double)grads[k] - expected) <= GRAD_TOLERANCE * most))
            FAIL("%s[%zu], %u images: %.7g, by differences %.7g", tensor->name, k, n,
                 (double)grads[k], expected);
    }
    free(grads);
}

static void check_training(struct subject *s, uint32_t n)
{
    struct net_result result;

    CHECK_EQ(net_forward(s->net, s->images, s->labels, n, true, &result, NULL), STATUS_OK);
    CHECK_NEAR(result.loss_sum / n, loss_of(s, n, true, true), 2e-5);
    CHECK_EQ(net_backward(s->net, 1.0F, NULL, NULL, NULL), STATUS_OK);
    for (uint32_t i = 0; i < s->graph->tensor_count; i++)
        if (s->graph->tensors[i].trainable)
            check_gradient(s, i, n);
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
    check_training(&s, BATCH - 2);
    check_training(&s, BATCH);
    check_buffers(&s);
    for (uint32_t n = BATCH; n > 0; n -= 5) {
        const double expected = loss_of(&s, n, false, false);

        CHECK_EQ(net_forward(s.net, s.images, s.labels, n, false, &result, NULL), STATUS_OK);
        CHECK_EQ(result.images, n);
        CHECK_NEAR(result.loss_sum / n, expected, 2e-5 + 2e-6 * expected);
        if (n < 5)
            break;
    }
    check_buffers(&s); /* evaluation moves nothing */
    subject_free(&s);
}
