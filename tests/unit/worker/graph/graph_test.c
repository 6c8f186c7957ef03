/* Builders, shape errors, passes and models. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/graph/graph.h"
#include "worker/model/model.h"
#include "worker/graph/pass.h"
#include "worker/data/rng.h"

static const struct graph_window same3 = {3, 1, 1};
static const struct graph_window half = {2, 2, 0};

static void expect_error(struct graph *graph, const char *text)
{
    struct err err = {0};

    CHECK(graph_check(graph, &err) != STATUS_OK);
    CHECK_STR(err.text, text);
    graph_free(&graph);
}

TEST(shapes_are_inferred)
{
    struct graph *graph = graph_new();
    uint32_t x = graph_input(graph, 3, 15, 17);

    x = graph_conv2d(graph, "c", x, 8, (struct graph_window){5, 2, 1}, true);
    CHECK_EQ(graph->layers[x].out.dims[0], 8);
    CHECK_EQ(graph->layers[x].out.dims[1], 7);
    CHECK_EQ(graph->layers[x].out.dims[2], 8);
    x = graph_max_pool(graph, "p", x, (struct graph_window){3, 2, 1});
    CHECK_EQ(graph->layers[x].out.dims[1], 4);
    CHECK_EQ(graph->layers[x].out.dims[2], 4);
    x = graph_flatten(graph, "f", x);
    CHECK_EQ(graph->layers[x].out.dim_count, 1);
    CHECK_EQ(graph->layers[x].out.dims[0], 128);
    x = graph_linear(graph, "l", x, 10, false);
    CHECK_EQ(graph_value_count(&graph->layers[x].out), 10);
    (void)graph_cross_entropy(graph, "loss", x);
    CHECK_EQ(graph_check(graph, NULL), STATUS_OK);
    CHECK_EQ(graph->tensor_count, 3);
    CHECK_STR(graph->tensors[0].name, "c.weight");
    CHECK_EQ(graph->tensors[0].count, 8 * 3 * 25);
    CHECK_STR(graph->tensors[2].name, "l.weight");
    graph_free(&graph);
}

TEST(errors_name_the_layer)
{
    struct graph *graph = graph_new();
    uint32_t x = graph_input(graph, 1, 4, 4);

    x = graph_conv2d(graph, "layer9.0", x, 4, (struct graph_window){7, 1, 0}, true);
    CHECK_EQ(x, GRAPH_NONE);
    (void)graph_relu(graph, "later", x); /* the first error is the one that is told */
    expect_error(graph, "layer layer9.0: a kernel of 7 does not fit into 4x4 with padding 0");

    graph = graph_new();
    x = graph_input(graph, 1, 4, 4);
    (void)graph_linear(graph, "fc", x, 10, true);
    expect_error(graph, "layer fc: linear reads [features]; put a flatten before it");

    graph = graph_new();
    x = graph_flatten(graph, "f", graph_input(graph, 1, 4, 4));
    (void)graph_avg_pool(graph, "avg", x);
    expect_error(graph, "layer avg: avg_pool reads [channels][height][width], not [features]");

    graph = graph_new();
    x = graph_relu(graph, "twin", graph_input(graph, 1, 4, 4));
    (void)graph_relu(graph, "twin", x);
    expect_error(graph, "layer twin: the name is used twice");

    graph = graph_new();
    x = graph_input(graph, 4, 8, 8);
    (void)graph_add(graph, "sum", graph_max_pool(graph, "small", x, half), x);
    expect_error(graph, "layer sum: adds small and input, whose shapes differ");

    graph = graph_new();
    x = graph_input(graph, 4, 8, 8);
    (void)graph_add(graph, "sum", x, x + 1); /* itself */
    expect_error(graph, "layer sum: its second input is not a layer of this graph");

    graph = graph_new();
    x = graph_input(graph, 4, 8, 8);
    (void)graph_add(graph, "sum", graph_flatten(graph, "f", x), x);
    expect_error(graph, "layer sum: adds f and input, whose shapes differ");

    graph = graph_new();
    (void)graph_input(graph, 0, 8, 8);
    expect_error(graph, "layer input: channels, height and width are 1 to 65536");
}

TEST(the_whole_graph_is_checked)
{
    struct graph *graph = graph_new();
    uint32_t x = graph_flatten(graph, "f", graph_input(graph, 1, 4, 4));

    (void)graph_linear(graph, "unread", x, 3, true);
    x = graph_linear(graph, "fc", x, 3, true);
    (void)graph_cross_entropy(graph, "loss", x);
    expect_error(graph, "layer unread: no other layer reads it");

    graph = graph_new();
    (void)graph_flatten(graph, "f", graph_input(graph, 1, 4, 4));
    expect_error(graph, "layer f: the last layer must be cross_entropy");

    expect_error(graph_new(), "graph: it has no input or no layers after it");
}

TEST(models_are_found_by_name)
{
    const struct model_shape shape = {1, 28, 28, 10}, tiny = {1, 1, 1, 10};
    struct graph *graph = NULL;
    struct err err = {0};

    CHECK_EQ(model_build(&graph, "convnet", &shape, &err), STATUS_OK);
    CHECK_EQ(graph->tensor_count, 14);
    CHECK_STR(graph->tensors[9].name, "layer2.1.bias");
    CHECK_STR(graph->tensors[13].name, "fc.bias");
    graph_free(&graph);
    CHECK_EQ(model_build(&graph, "resnet0", &shape, &err), STATUS_NOT_FOUND);
    CHECK(graph == NULL && strstr(err.text, "\"resnet0\"") != NULL);
    CHECK_EQ(model_build(&graph, "convnet", &tiny, &err), STATUS_BAD_INPUT);
    CHECK(graph == NULL && strstr(err.text, "layer1.3") != NULL);
}

TEST(fuse_merges_norm_relu_and_pool)
{
    const struct model_shape shape = {1, 28, 28, 10};
    struct graph *graph = NULL, *fused = NULL;

    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(pass_fuse(graph, false, &fused, NULL), STATUS_OK);
    CHECK_EQ(graph->layer_count, 12);
    CHECK_EQ(fused->layer_count, 8);
    CHECK_STR(fused->layers[2].name, "layer1.1");
    CHECK(fused->layers[2].fused_relu && fused->layers[2].fused_pool);
    CHECK_EQ(fused->layers[2].out.dims[1], 14);
    CHECK_EQ(fused->layers[3].inputs[0], 2);
    CHECK_EQ(graph_check(fused, NULL), STATUS_OK);
    for (uint32_t i = 0; i < fused->tensor_count; i++) {
        const char *layer = fused->layers[fused->tensors[i].layer].name;

        CHECK_STR(fused->tensors[i].name, graph->tensors[i].name);
        CHECK(strncmp(fused->tensors[i].name, layer, strlen(layer)) == 0);
    }
    graph_free(&graph);
    graph_free(&fused);
}

/* Any window and type, behind a norm with a ReLU that nobody else reads. */
TEST(fuse_pools_of_any_window)
{
    const struct model_shape shape = {3, 64, 64, 10};
    const struct amp amp = {.level = 2, .half = GRAPH_F16, .norm_is_fp32 = true};
    struct graph *graph = NULL, *typed = NULL, *fused = NULL;
    uint32_t layers, pooled = 0;

    CHECK_EQ(model_build(&graph, "resnet18", &shape, NULL), STATUS_OK);
    CHECK_EQ(pass_amp(graph, &amp, &typed, NULL), STATUS_OK);
    CHECK_EQ(pass_fuse(typed, true, &fused, NULL), STATUS_OK);
    layers = fused->layer_count;
    pass_fuse_pools(fused);
    CHECK_EQ(fused->layer_count, layers - 1);
    CHECK_EQ(graph_check(fused, NULL), STATUS_OK);
    for (uint32_t i = 0; i < fused->layer_count; i++) {
        CHECK(fused->layers[i].op != GRAPH_MAX_POOL);
        if (!fused->layers[i].fused_pool)
            continue;
        pooled++;
        CHECK_STR(fused->layers[i].name, "bn1");
        CHECK_EQ(fused->layers[i].window.kernel, 3);
        CHECK_EQ(fused->layers[i].out.dims[1], 16);
        CHECK_EQ(fused->layers[i].out.dtype, GRAPH_F16);
    }
    CHECK_EQ(pooled, 1);
    graph_free(&graph);
    graph_free(&typed);
    graph_free(&fused);
}

TEST(fuse_leaves_what_others_read)
{
    struct graph *graph = graph_new(), *fused = NULL;
    uint32_t x = graph_input(graph, 4, 7, 7), norm, relu;

    x = graph_conv2d(graph, "c", x, 4, same3, false);
    norm = graph_batch_norm(graph, "bn", x);
    relu = graph_relu(graph, "r", norm);
    x = graph_add(graph, "sum", relu, norm); /* reads the norm too */
    x = graph_relu(graph, "r2", x);
    x = graph_batch_norm(graph, "bn2", x);
    x = graph_relu(graph, "r3", x);
    x = graph_max_pool(graph, "p", x, half); /* 7x7 is odd */
    x = graph_linear(graph, "fc", graph_flatten(graph, "f", x), 2, true);
    (void)graph_cross_entropy(graph, "loss", x);
    CHECK_EQ(graph_check(graph, NULL), STATUS_OK);
    CHECK_EQ(pass_fuse(graph, false, &fused, NULL), STATUS_OK);
    CHECK_EQ(graph_check(fused, NULL), STATUS_OK);
    CHECK_EQ(fused->layer_count, graph->layer_count - 2); /* r2 into sum, r3 into bn2 */
    CHECK(!fused->layers[2].fused_relu);
    CHECK(fused->layers[4].op == GRAPH_ADD && fused->layers[4].fused_relu);
    CHECK(fused->layers[5].fused_relu && !fused->layers[5].fused_pool);
    CHECK_EQ(fused->layers[6].op, GRAPH_MAX_POOL);
    graph_free(&graph);
    graph_free(&fused);
}

static uint32_t count_adds(const struct graph *graph, uint32_t *inside)
{
    uint32_t alone = 0;

    *inside = 0;
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        alone += graph->layers[i].op == GRAPH_ADD;
        *inside += graph->layers[i].fused_add;
    }
    return alone;
}

/* ResNet-18 has 8 residuals: in fp32 always inside a batch norm, in fp16 where that is wished. */
TEST(fuse_takes_additions_in_16_bit_where_asked)
{
    const struct model_shape shape = {3, 32, 32, 10};
    struct graph *graph = NULL;

    CHECK_EQ(model_build(&graph, "resnet18", &shape, NULL), STATUS_OK);
    for (uint32_t level = 0; level <= 3; level++)
        for (int adds_half = 0; adds_half < 2; adds_half++) {
            const struct amp amp = {.level = level, .half = GRAPH_F16, .norm_is_fp32 = level < 3};
            const bool fuses = level == 0 || adds_half != 0;
            struct graph *typed = NULL, *fused = NULL;
            uint32_t inside;

            CHECK_EQ(pass_amp(graph, &amp, &typed, NULL), STATUS_OK);
            CHECK_EQ(pass_fuse(typed, adds_half != 0, &fused, NULL), STATUS_OK);
            CHECK_EQ(graph_check(fused, NULL), STATUS_OK);
            CHECK_EQ(count_adds(fused, &inside), fuses ? 0 : 8);
            CHECK_EQ(inside, fuses ? 8 : 0);
            pass_fuse_adds(fused);
            CHECK_EQ(graph_check(fused, NULL), STATUS_OK);
            CHECK_EQ(count_adds(fused, &inside), 0);
            CHECK_EQ(inside, 8);
            for (uint32_t i = 0; i < fused->layer_count; i++)
                if (fused->layers[i].fused_add) {
                    CHECK(fused->layers[i].fused_relu);
                    CHECK_EQ(fused->layers[i].rounds_norm, !fuses);
                }
            graph_free(&typed);
            graph_free(&fused);
        }
    graph_free(&graph);
}

/* An addition of two types is one in fp32 of a cast value: not the norm's. */
TEST(fuse_leaves_an_addition_of_two_types)
{
    const struct amp amp = {.level = 1, .half = GRAPH_F16, .norm_is_fp32 = true};
    struct graph *graph = graph_new(), *typed = NULL, *fused = NULL;
    uint32_t x = graph_input(graph, 4, 8, 8), y, inside;

    y = graph_conv2d(graph, "c", x, 4, same3, false);
    y = graph_add(graph, "sum", graph_batch_norm(graph, "bn", y), x);
    y = graph_linear(graph, "fc", graph_flatten(graph, "f", y), 2, true);
    (void)graph_cross_entropy(graph, "loss", y);
    CHECK_EQ(pass_amp(graph, &amp, &typed, NULL), STATUS_OK);
    CHECK_EQ(pass_fuse(typed, true, &fused, NULL), STATUS_OK);
    CHECK_EQ(graph_check(fused, NULL), STATUS_OK);
    CHECK_EQ(count_adds(fused, &inside), 1);
    CHECK_EQ(inside, 0);
    graph_free(&graph);
    graph_free(&typed);
    graph_free(&fused);
}

/* Linear layers of random sizes: their tensors are what the buckets are cut from. */
static struct graph *random_graph(struct rng *rng)
{
    struct graph *graph = graph_new();
    uint32_t x = graph_flatten(graph, "f", graph_input(graph, 1, 1, 1 + rng_u32(rng) % 40));
    uint32_t layers = 1 + rng_u32(rng) % 12;
    char name[] = "l0";

    for (uint32_t i = 0; i < layers; i++) {
        name[1] = (char)('a' + i);
        x = graph_linear(graph, name, x, 1 + rng_u32(rng) % 40, rng_u32(rng) % 2 == 0);
    }
    (void)graph_cross_entropy(graph, "loss", x);
    return graph;
}

/* PyTorch's rule, said differently: every bucket but the last reaches its limit, and would not
 * without its last tensor. */
static void check_buckets(const struct graph *graph, uint64_t first_bytes, uint64_t bytes)
{
    uint32_t next = 0;

    for (uint32_t i = 0; i < graph->grad_count; i++)
        CHECK_EQ(graph->grad_order[i], graph->tensor_count - 1 - i);
    for (uint32_t b = 0; b < graph->bucket_count; b++) {
        const struct graph_bucket *bucket = &graph->buckets[b];
        const uint64_t limit = b == 0 ? first_bytes : bytes;
        uint64_t before = 0, last = 0;

        CHECK_EQ(bucket->order_first, next);
        CHECK(bucket->order_count > 0);
        for (uint32_t i = 0; i < bucket->order_count; i++) {
            before += last;
            last = 4 * graph->tensors[graph->grad_order[next + i]].count;
        }
        next += bucket->order_count;
        CHECK(before < limit);
        CHECK(before + last >= limit || b + 1 == graph->bucket_count);
    }
    CHECK_EQ(next, graph->grad_count);
}

TEST(buckets_cover_gradients_in_reverse)
{
    struct rng rng;

    rng_seed(&rng, 7);
    for (int round = 0; round < 200; round++) {
        const uint64_t first = 1 + rng_u32(&rng) % 4000, bytes = 1 + rng_u32(&rng) % 20000;
        struct graph *graph = random_graph(&rng), *cut = NULL;

        CHECK_EQ(graph_check(graph, NULL), STATUS_OK);
        CHECK_EQ(pass_buckets(graph, first, bytes, &cut, NULL), STATUS_OK);
        check_buckets(cut, first, bytes);
        graph_free(&graph);
        graph_free(&cut);
    }
}

TEST_MAIN
