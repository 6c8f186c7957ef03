/* Loss, gradients and running statistics of small networks against double arithmetic
 * (net_reference.h): every layer type, fused and not, one and several channel blocks, full and
 * partial batches, training and evaluation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/numerics/net/net_reference.h"
#include "worker/init.h"
#include "worker/net.h"
#include "worker/rng.h"

#define CLASSES 5
#define BATCH 6
#define TENSORS_MAX 32
#define STEP 1e-7 /* of the central difference, in double */
#define GRAD_TOLERANCE                                                                             \
    2e-4 /* of the largest gradient of its tensor, or of 0.01 if that is more: f32 sums */

struct subject {
    struct graph *graph;
    struct net *net;
    double *tensors[TENSORS_MAX];
    float *images;
    int64_t labels[BATCH];
    uint32_t image_floats;
};

static void finish(struct graph *graph, uint32_t x)
{
    x = graph_flatten(graph, "flatten", x);
    x = graph_linear(graph, "fc", x, CLASSES, true);
    (void)graph_cross_entropy(graph, "loss", x);
}

/* The shape of the ConvNet in small: all fused. */
static void build_fused(struct graph *graph)
{
    uint32_t x = graph_input(graph, 1, 8, 8);

    x = graph_conv2d(graph, "a.0", x, 3, (struct graph_window){5, 1, 2}, true);
    x = graph_batch_norm(graph, "a.1", x);
    x = graph_relu(graph, "a.2", x);
    x = graph_max_pool(graph, "a.3", x, (struct graph_window){2, 2, 0});
    x = graph_conv2d(graph, "b.0", x, 5, (struct graph_window){3, 1, 1}, true);
    x = graph_batch_norm(graph, "b.1", x);
    x = graph_relu(graph, "b.2", x);
    finish(graph, graph_max_pool(graph, "b.3", x, (struct graph_window){2, 2, 0}));
}

/* Nothing to fuse; overlapping windows; strides; channels over one block; an input of more than
 * three channels. */
static void build_apart(struct graph *graph)
{
    uint32_t x = graph_input(graph, 5, 9, 7);

    x = graph_conv2d(graph, "c0", x, 19, (struct graph_window){3, 2, 1}, false);
    x = graph_relu(graph, "r0", x);
    x = graph_max_pool(graph, "p0", x, (struct graph_window){3, 2, 1});
    x = graph_batch_norm(graph, "n0", x);
    x = graph_conv2d(graph, "c1", x, 4, (struct graph_window){2, 1, 0}, true);
    x = graph_batch_norm(graph, "n1", x);
    finish(graph, graph_relu(graph, "r1", graph_flatten(graph, "f", x)));
}

/* Norm and ReLU without a pool, the convolution's output read by another layer than a norm. */
static void build_plain(struct graph *graph)
{
    uint32_t x = graph_input(graph, 3, 6, 6);

    x = graph_conv2d(graph, "c0", x, 16, (struct graph_window){1, 1, 0}, true);
    x = graph_batch_norm(graph, "n0", x);
    x = graph_relu(graph, "r0", x);
    x = graph_conv2d(graph, "c1", x, 32, (struct graph_window){3, 1, 1}, true);
    finish(graph, graph_max_pool(graph, "p1", x, (struct graph_window){6, 6, 0}));
}

static void build_linear(struct graph *graph)
{
    uint32_t x = graph_flatten(graph, "f", graph_input(graph, 2, 3, 3));

    x = graph_relu(graph, "r", graph_linear(graph, "l0", x, 11, true));
    x = graph_linear(graph, "fc", x, CLASSES, false);
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

static void subject_new(struct subject *s, void (*build)(struct graph *), uint32_t seed)
{
    const struct net_options options = {
        .batch_max = BATCH, .bucket_first_bytes = 64, .bucket_bytes = 512};
    struct err err = {0};
    struct rng rng;

    *s = (struct subject){.graph = graph_new()};
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
        s->labels[i] = (int64_t)(rng_u32(&rng) % CLASSES);
}

static void subject_free(struct subject *s)
{
    for (uint32_t i = 0; i < s->graph->tensor_count; i++)
        free(s->tensors[i]);
    free(s->images);
    net_free(&s->net);
    graph_free(&s->graph);
}

static double difference(struct subject *s, double *value, uint32_t n)
{
    const double kept = *value;
    double up, down;

    *value = kept + STEP;
    up = reference_loss(s->graph, s->tensors, s->images, s->labels, n, true, false);
    *value = kept - STEP;
    down = reference_loss(s->graph, s->tensors, s->images, s->labels, n, true, false);
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
    CHECK_NEAR(result.loss_sum / n,
               reference_loss(s->graph, s->tensors, s->images, s->labels, n, true, true), 2e-5);
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
static void check_net(void (*build)(struct graph *), uint32_t seed)
{
    struct net_result result;
    struct subject s;

    subject_new(&s, build, seed);
    check_training(&s, BATCH);
    check_training(&s, BATCH - 2);
    check_training(&s, BATCH);
    check_buffers(&s);
    for (uint32_t n = BATCH; n > 0; n -= 5) {
        CHECK_EQ(net_forward(s.net, s.images, s.labels, n, false, &result, NULL), STATUS_OK);
        CHECK_EQ(result.images, n);
        CHECK_NEAR(result.loss_sum / n,
                   reference_loss(s.graph, s.tensors, s.images, s.labels, n, false, false), 2e-5);
        if (n < 5)
            break;
    }
    check_buffers(&s); /* evaluation moves nothing */
    subject_free(&s);
}

TEST(fused_net)
{
    for (uint32_t seed = 1; seed <= 4; seed++)
        check_net(build_fused, seed);
}

TEST(net_with_nothing_to_fuse)
{
    for (uint32_t seed = 1; seed <= 4; seed++)
        check_net(build_apart, seed);
}

TEST(net_of_plain_convolutions)
{
    for (uint32_t seed = 1; seed <= 4; seed++)
        check_net(build_plain, seed);
}

TEST(net_of_linear_layers)
{
    for (uint32_t seed = 1; seed <= 4; seed++)
        check_net(build_linear, seed);
}

TEST_MAIN
