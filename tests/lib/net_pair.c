#include "tests/lib/net_pair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/model/init.h"
#include "worker/net/state.h"

struct graph *pair_odd_graph(void)
{
    struct graph *graph = graph_new();
    const struct graph_window three = {3, 1, 1}, two = {2, 2, 0}, wide = {3, 2, 1};
    uint32_t at = graph_input(graph, 3, 12, 12), skip;

    at = graph_conv2d(graph, "a", at, 20, three, true);
    at = graph_batch_norm(graph, "b", at);
    skip = at = graph_relu(graph, "c", at);
    at = graph_conv2d(graph, "d", at, 20, three, false);
    at = graph_batch_norm(graph, "e", at);
    at = graph_add(graph, "f", at, skip);
    at = graph_relu(graph, "g", at);
    at = graph_max_pool(graph, "h", at, wide);
    at = graph_add(graph, "i", at, at);
    skip = at = graph_relu(graph, "i2", at);
    at = graph_conv2d(graph, "j", at, 20, three, true);
    at = graph_add(graph, "k", skip, at);
    at = graph_max_pool(graph, "l", at, two);
    at = graph_flatten(graph, "m", at);
    at = graph_linear(graph, "n", at, 30, true);
    at = graph_batch_norm(graph, "o", at);
    at = graph_relu(graph, "p", at);
    at = graph_linear(graph, "q", at, 10, false);
    (void)graph_cross_entropy(graph, "loss", at);
    return graph;
}

struct graph *pair_residual_graph(void)
{
    struct graph *graph = graph_new();
    const struct graph_window one = {1, 1, 0}, three = {3, 1, 1}, half = {1, 2, 0},
                              down = {3, 2, 1};
    uint32_t at = graph_input(graph, 3, 8, 8), skip;

    at = graph_batch_norm(graph, "b", graph_conv2d(graph, "a", at, 64, three, false));
    skip = at = graph_relu(graph, "c", at);
    at = graph_batch_norm(graph, "e", graph_conv2d(graph, "d", at, 64, three, false));
    at = graph_relu(graph, "f", at);
    at = graph_batch_norm(graph, "h", graph_conv2d(graph, "g", at, 64, one, false));
    skip = at = graph_relu(graph, "k", graph_add(graph, "i", at, skip));
    at = graph_batch_norm(graph, "m", graph_conv2d(graph, "l", at, 64, one, false));
    at = graph_relu(graph, "n", at);
    at = graph_batch_norm(graph, "p", graph_conv2d(graph, "o", at, 64, down, false));
    at = graph_relu(graph, "q", at);
    at = graph_batch_norm(graph, "s", graph_conv2d(graph, "r", at, 128, one, false));
    skip = graph_batch_norm(graph, "u", graph_conv2d(graph, "t", skip, 128, half, false));
    skip = at = graph_relu(graph, "w", graph_add(graph, "v", at, skip));
    at = graph_batch_norm(graph, "y", graph_conv2d(graph, "x", at, 128, one, false));
    at = graph_avg_pool(graph, "pool", graph_add(graph, "z", skip, at));
    at = graph_linear(graph, "fc", graph_flatten(graph, "flat", at), 10, true);
    (void)graph_cross_entropy(graph, "loss", at);
    return graph;
}

static struct net *make_net(const struct pair *pair, const struct graph *graph,
                            const struct backend *backend)
{
    const struct pair_options *o = &pair->options;
    const struct net_options options = {.batch_max = o->batch,
                                        .tune_us = NET_TUNE_ALL,
                                        .tunes_cold = true,
                                        .bucket_first_bytes = 4096,
                                        .bucket_bytes = 8192,
                                        .amp = &pair->amp,
                                        .accumulate = o->accumulate,
                                        .deterministic = o->deterministic,
                                        .label_smoothing = o->label_smoothing,
                                        .optim = &o->optim,
                                        .backend = backend};
    struct net *net = NULL;
    struct err err = {.text = ""};

    if (net_new(&net, graph, &options, &err) != STATUS_OK)
        FAIL("%s: %s", backend->name, err.text);
    return net;
}

/* Draws the scales and shifts of batch norms at random, which are otherwise 1 and 0, and copies all
 * tensors to the other net. */
static void draw_weights(struct pair *pair)
{
    struct rng rng;

    rng_seed(&rng, 7);
    for (uint32_t i = 0; i < net_tensor_count(pair->cpu); i++) {
        const struct net_tensor *tensor = net_tensor(pair->cpu, i);
        float *values = calloc(tensor->count, sizeof *values);
        const bool is_norm = tensor->dim_count == 1;

        CHECK(values != NULL);
        CHECK_EQ(net_tensor_read(pair->cpu, i, values, NULL), STATUS_OK);
        if (tensor->trainable && is_norm)
            rng_uniform_f32(&rng, 0.3F, 0.9F, values, tensor->count);
        CHECK_EQ(net_tensor_write(pair->cpu, i, values, NULL), STATUS_OK);
        CHECK_EQ(net_tensor_write(pair->other, i, values, NULL), STATUS_OK);
        free(values);
    }
}

struct pair pair_new(const struct pair_options *options)
{
    static struct backend plain; /* the nets keep a pointer to it */
    struct pair pair = {.options = *options};
    struct amp_request request = {.level = options->level,
                                  .half_type = options->bf16 ? "bf16" : "fp16"};
    struct graph *graph = NULL;
    struct err err = {.text = ""};
    struct rng rng;

    if (pair.options.batch == 0)
        pair.options.batch = 4;
    if (pair.options.shape.height == 0)
        pair.options.shape = (struct model_shape){1, 12, 12, 10};
    if (pair.options.optim.lr == 0.0F)
        pair.options.optim = (struct optim){.lr = 0.01F, .momentum = 0.9F, .weight_decay = 1e-3F};
    if (pair.options.backend == NULL)
        pair.options.backend = &backend_cuda;
    request.loss_scale = options->overflows ? "dynamic" : "128.0";
    CHECK_EQ(amp_resolve(&pair.amp, &request, NULL), STATUS_OK);
    pair.tolerance = strcmp(options->level, "O0") == 0 ? 1e-4 : options->bf16 ? 6e-2 : 1e-2;
    if (options->graph != NULL)
        graph = graph_copy(options->graph);
    else if (model_build(&graph, options->arch, &pair.options.shape, &err) != STATUS_OK)
        FAIL("%s", err.text);
    plain = backend_cpu;
    plain.adds_half = pair.options.backend->adds_half;
    pair.cpu = make_net(&pair, graph, pair.options.plain != NULL ? pair.options.plain : &plain);
    pair.other = make_net(&pair, graph, pair.options.backend);
    rng_seed(&rng, 1);
    CHECK_EQ(init_torch_default(pair.cpu, graph, &rng, NULL), STATUS_OK);
    graph_free(&graph);
    draw_weights(&pair);
    return pair;
}

void pair_free(struct pair *pair)
{
    net_free(&pair->cpu);
    net_free(&pair->other);
}

const struct optim pair_optims[PAIR_OPTIMS] = {
    {.lr = 0.01F, .momentum = 0.9F, .dampening = 0.3F, .weight_decay = 1e-3F},
    {.lr = 0.01F, .momentum = 0.9F, .nesterov = true},
    {.kind = OPTIM_ADAM, .lr = 1e-3F, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-4F},
    {.kind = OPTIM_ADAMW,
     .lr = 1e-3F,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-4F,
     .weight_decay = 0.01F},
    {.kind = OPTIM_LARS, .lr = 0.1F, .momentum = 0.9F, .weight_decay = 1e-4F, .trust = 1e-3F},
    {.kind = OPTIM_LARC,
     .lr = 0.1F,
     .momentum = 0.9F,
     .weight_decay = 1e-4F,
     .trust = 0.02F,
     .eps = 1e-8F},
    {.lr = 0.01F, .momentum = 0.9F, .lookahead = OPTIM_LOOKAHEAD_PAPER, .every = 2, .alpha = 0.5F},
    {.lr = 0.01F, .momentum = 0.9F, .lookahead = OPTIM_LOOKAHEAD_SEED, .every = 2, .alpha = 0.5F},
};

struct batch {
    float *images;
    uint8_t *bytes; /* NULL: none */
    int64_t *labels;
};

static const struct net_normal normal = {{0.485F, 0.456F, 0.406F, 0.0F},
                                         {0.229F, 0.224F, 0.225F, 1.0F}};

/* Images as bytes, channels last, and the same images as planes of normalised floats. */
static void make_bytes(struct batch *batch, const struct model_shape *shape, uint32_t n)
{
    const size_t pixels = (size_t)shape->height * shape->width, channels = shape->channels;

    batch->bytes = malloc(n * channels * pixels);
    CHECK(batch->bytes != NULL && channels <= NET_NORMAL_CHANNELS);
    for (size_t i = 0; i < n * channels * pixels; i++) {
        const size_t image = i / (channels * pixels), c = i / pixels % channels, p = i % pixels;
        const uint8_t byte = (uint8_t)(batch->images[i] * 256.0F);

        batch->bytes[(image * pixels + p) * channels + c] = byte;
        batch->images[i] = ((float)byte / 255.0F - normal.mean[c]) / normal.std[c];
    }
}

static struct batch draw_batch(const struct pair *pair, uint32_t seed)
{
    const struct model_shape *shape = &pair->options.shape;
    const size_t count =
        (size_t)pair->options.batch * shape->channels * shape->height * shape->width;
    struct batch batch = {.images = malloc(count * sizeof *batch.images),
                          .labels = malloc(pair->options.batch * sizeof *batch.labels)};
    struct rng rng;

    CHECK(batch.images != NULL && batch.labels != NULL);
    rng_seed(&rng, seed);
    rng_uniform_f32(&rng, 0.0F, 1.0F, batch.images, count);
    if (pair->options.bytes)
        make_bytes(&batch, shape, pair->options.batch);
    for (uint32_t i = 0; i < pair->options.batch; i++)
        batch.labels[i] = (int64_t)(rng_u32(&rng) % shape->classes);
    return batch;
}

static void batch_free(struct batch *batch)
{
    free(batch->images);
    free(batch->bytes);
    free(batch->labels);
}

static void check(enum status status, const struct err *err)
{
    if (status != STATUS_OK)
        FAIL("%s", err->text);
}

/* If the batch has bytes, the other net gets those. */
static enum status forward(const struct pair *pair, struct net *net, const struct batch *batch,
                           uint32_t n, bool training, struct net_result *result, struct err *err)
{
    const struct net_images bytes = {.bytes = batch->bytes, .normal = &normal};

    if (batch->bytes == NULL || net != pair->other)
        return net_forward(net, batch->images, batch->labels, n, training, result, err);
    return net_forward_images(net, &bytes, batch->labels, n, training, result, err);
}

static void forward_back(struct pair *pair, struct net *net, const struct batch *batch, uint32_t n,
                         float scale, bool reduces)
{
    struct err err = {.text = ""};

    check(forward(pair, net, batch, n, true, NULL, &err), &err);
    check(reduces ? net_backward_reduce(net, scale, &err) : net_backward(net, scale, &err), &err);
}

static double step_net(struct pair *pair, struct net *net, uint32_t n, bool whole)
{
    const struct net_clip clip = {.value = 0.5F, .norm = 0.7F};
    struct batch batch = draw_batch(pair, 100 + pair->step);
    struct net_outcome outcome = {.result = {0}};
    struct err err = {.text = ""};
    bool taken = false;

    if (pair->options.accumulate) {
        forward_back(pair, net, &batch, n, 0.5F, false);
        net_grads_keep(net);
        net_grads_join(net);
    }
    if (whole)
        net_step_graphable(net);
    forward_back(pair, net, &batch, n, pair->options.halves && net == pair->cpu ? 0.5F : 1.0F,
                 true);
    if (pair->options.clips)
        net_clip(net, &clip);
    net_update(net, &pair->options.optim);
    check(net_outcome_take(net, true, &outcome, &taken, &err), &err);
    CHECK(taken);
    CHECK_EQ(outcome.result.images, n);
    CHECK(pair->options.overflows || !outcome.scaler.was_skipped);
    batch_free(&batch);
    return outcome.result.loss_sum / n;
}

void pair_step(struct pair *pair, uint32_t n, bool whole)
{
    const double of_cpu = step_net(pair, pair->cpu, n, false);
    const double of_other = step_net(pair, pair->other, n, whole);

    if (!(fabs(of_cpu - of_other) <= pair->tolerance * fabs(of_cpu)))
        FAIL("%s %s, step %u: loss %.7f, the CPU's is %.7f", pair->options.arch,
             pair->options.level, pair->step, of_other, of_cpu);
    pair->step++;
}

typedef enum status (*read_tensor)(struct net *net, uint32_t index, float *values, struct err *err);

/* `floor`: the error allowed per element where the true value is 0 and only rounding remains, as in
 * the gradient of a bias before a batch norm. */
static void compare(struct pair *pair, uint32_t index, const char *what, read_tensor read,
                    double tolerance, double floor)
{
    const struct net_tensor *tensor = net_tensor(pair->cpu, index);
    float *a = calloc(tensor->count, sizeof *a), *b = calloc(tensor->count, sizeof *b);
    double norm = 0, diff = 0;

    CHECK(a != NULL && b != NULL);
    CHECK_EQ(read(pair->cpu, index, a, NULL), STATUS_OK);
    CHECK_EQ(read(pair->other, index, b, NULL), STATUS_OK);
    for (size_t i = 0; i < tensor->count; i++) {
        norm += (double)a[i] * (double)a[i];
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    free(a);
    free(b);
    if (!(sqrt(diff) <= tolerance * sqrt(norm) + floor * sqrt((double)tensor->count)))
        FAIL("%s %s behind step %u: %s of %s is off by %.3g of %.3g", pair->options.arch,
             pair->options.level, pair->step, what, tensor->name, sqrt(diff), sqrt(norm));
}

void pair_check(struct pair *pair)
{
    for (uint32_t i = 0; i < net_tensor_count(pair->cpu); i++) {
        compare(pair, i, "the value", net_tensor_read, pair->tolerance, 1e-2 * pair->tolerance);
        if (net_tensor(pair->cpu, i)->trainable)
            compare(pair, i, "the gradient", net_grad_read, 20 * pair->tolerance,
                    10 * pair->tolerance);
    }
}

void pair_train(struct pair *pair, uint32_t steps)
{
    for (uint32_t i = 0; i < steps; i++) {
        pair_step(pair, pair->options.batch, false);
        pair_check(pair);
    }
    pair_evaluate(pair, pair->options.batch);
    pair_evaluate(pair, pair->options.batch - 1);
}

static void carry(struct pair *pair, uint32_t index)
{
    const struct net_tensor *tensor = net_tensor(pair->cpu, index);
    float *values = calloc(tensor->count, sizeof *values);

    CHECK(values != NULL);
    CHECK_EQ(net_tensor_read(pair->cpu, index, values, NULL), STATUS_OK);
    CHECK_EQ(net_tensor_write(pair->other, index, values, NULL), STATUS_OK);
    for (int state = 0; tensor->trainable && state < OPTIM_STATES; state++) {
        if (!net_has_state(pair->cpu, (enum optim_state)state))
            continue;
        CHECK_EQ(net_optim_read(pair->cpu, (enum optim_state)state, index, values, NULL),
                 STATUS_OK);
        CHECK_EQ(net_optim_write(pair->other, (enum optim_state)state, index, values, NULL),
                 STATUS_OK);
    }
    free(values);
}

void pair_resume(struct pair *pair, uint32_t steps)
{
    struct scaler scaler;

    for (uint32_t i = 0; i < steps; i++, pair->step++)
        (void)step_net(pair, pair->cpu, pair->options.batch, false);
    for (uint32_t i = 0; i < net_tensor_count(pair->cpu); i++)
        carry(pair, i);
    scaler = net_scaler(pair->cpu);
    net_scaler_write(pair->other, &scaler);
}

void pair_evaluate(struct pair *pair, uint32_t n)
{
    struct batch batch = draw_batch(pair, 5000);
    struct net_result a, b;
    struct err err = {.text = ""};

    check(forward(pair, pair->cpu, &batch, n, false, &a, &err), &err);
    check(forward(pair, pair->other, &batch, n, false, &b, &err), &err);
    CHECK_EQ(b.images, n);
    if (!(fabs(a.loss_sum - b.loss_sum) <= pair->tolerance * fabs(a.loss_sum)))
        FAIL("evaluation: loss %.7f, the CPU's is %.7f", b.loss_sum, a.loss_sum);
    batch_free(&batch);
}

struct pair pair_new_residual(const char *level, bool bf16, const struct backend *plain)
{
    struct graph *graph = pair_residual_graph();
    struct err err = {.text = ""};
    struct pair pair;

    check(graph_check(graph, &err), &err);
    pair = pair_new(&(struct pair_options){.arch = "residual",
                                           .level = level,
                                           .graph = graph,
                                           .shape = {3, 8, 8, 10},
                                           .bf16 = bf16,
                                           .plain = plain});
    graph_free(&graph);
    return pair;
}
