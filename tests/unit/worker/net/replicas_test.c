/* Replicas: how a batch is cut, and a step beside the same nets driven one after the other. */
#include "worker/net/replicas.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/net/batch.h"
#include "worker/model/model.h"
#include "worker/net/state.h"

#define SIDE 28
#define BATCH 10

static float images[BATCH * SIDE * SIDE];
static int64_t labels[BATCH];

/* The sizes of torch.arange(n).chunk(count). */
TEST(parts_are_those_of_torch_chunk)
{
    static const struct {
        uint32_t n, count, sizes[5];
    } cases[] = {
        {10, 3, {4, 4, 2}},      {5, 4, {2, 2, 1, 0}},    {4, 4, {1, 1, 1, 1}},
        {1, 2, {1, 0}},          {100, 3, {34, 34, 32}},  {9, 2, {5, 4}},
        {6, 5, {2, 2, 2, 0, 0}}, {2, 5, {1, 1, 0, 0, 0}},
    };

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uint32_t first, begin = 0;

        for (uint32_t i = 0; i < cases[c].count; i++) {
            CHECK_EQ(replicas_part(cases[c].n, cases[c].count, i, &first), cases[c].sizes[i]);
            CHECK_EQ(first, begin);
            begin += cases[c].sizes[i];
        }
        CHECK_EQ(begin, cases[c].n);
    }
    CHECK_EQ(replicas_part(UINT32_MAX, 2, 1, &(uint32_t){0}), UINT32_MAX / 2);
}

struct subject {
    struct net *net;
    struct replicas *replicas;
};

static struct subject open_subject(uint32_t count, bool evaluate)
{
    const struct model_shape shape = {1, SIDE, SIDE, 10};
    const struct net_options options = {.batch_max = (BATCH + count - 1) / count,
                                        .bucket_first_bytes = 4096,
                                        .bucket_bytes = 8192,
                                        .accumulate = true,
                                        .evaluate_only = evaluate};
    const struct replicas_options replicas = {.count = count, .image_elements = SIDE * SIDE};
    struct subject subject = {.net = batch_net(&options, SIDE, 10)};
    struct graph *graph = NULL;

    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(replicas_new(&subject.replicas, subject.net, graph, &options, &replicas, NULL),
             STATUS_OK);
    graph_free(&graph);
    batch_draw(11, 0.0F, BATCH, SIDE, images, labels);
    return subject;
}

static void close_subject(struct subject *subject)
{
    replicas_free(&subject->replicas);
    CHECK(subject->replicas == NULL);
    net_free(&subject->net);
}

static float *values_of(struct net *net, uint32_t index, bool grad)
{
    float *values = calloc(net_tensor(net, index)->count, sizeof *values);

    CHECK(values != NULL);
    CHECK_EQ(grad ? net_grad_read(net, index, values, NULL)
                  : net_tensor_read(net, index, values, NULL),
             STATUS_OK);
    return values;
}

/* The gradients of `parts`, nets that each had one part, summed in doubles; buffers of the first. */
static void check_sums(struct net *net, struct net *const *parts, uint32_t count)
{
    for (uint32_t t = 0; t < net_tensor_count(net); t++) {
        const struct net_tensor *tensor = net_tensor(net, t);
        float *have = values_of(net, t, tensor->trainable), *one[BATCH];

        for (uint32_t i = 0; i < count; i++)
            one[i] = values_of(parts[i], t, tensor->trainable);
        for (size_t k = 0; k < tensor->count; k++) {
            double sum = (double)one[0][k];

            for (uint32_t i = 1; tensor->trainable && i < count; i++)
                sum += (double)one[i][k];
            CHECK_NEAR(have[k], sum, 1e-6);
        }
        for (uint32_t i = 0; i < count; i++)
            free(one[i]);
        free(have);
    }
}

static void check_step(uint32_t count)
{
    const struct net_options alone = {.batch_max = BATCH};
    const struct net_images all = {.floats = images};
    struct subject s = open_subject(count, false);
    struct net_result result, sums = {0};
    struct net *parts[BATCH];

    CHECK_EQ(replicas_forward(s.replicas, &all, labels, BATCH, true, &result, NULL), STATUS_OK);
    CHECK_EQ(replicas_backward(s.replicas, 1.0F, NULL), STATUS_OK);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first, n = replicas_part(BATCH, count, i, &first);
        struct net_result part;

        parts[i] = batch_net(&alone, SIDE, 10);
        CHECK_EQ(net_forward(parts[i], images + (size_t)first * SIDE * SIDE, labels + first, n,
                             true, &part, NULL),
                 STATUS_OK);
        CHECK_EQ(net_backward(parts[i], (float)n / BATCH, NULL), STATUS_OK);
        sums.loss_sum += part.loss_sum;
        sums.images += part.images;
        sums.top1 += part.top1;
        sums.top5 += part.top5;
    }
    CHECK_NEAR(result.loss_sum, sums.loss_sum, 1e-4);
    CHECK_EQ(result.images, BATCH);
    CHECK_EQ(result.top1, sums.top1);
    CHECK_EQ(result.top5, sums.top5);
    check_sums(s.net, parts, count);
    for (uint32_t i = 0; i < count; i++)
        net_free(&parts[i]);
    close_subject(&s);
}

TEST(a_step_is_the_sum_of_its_parts)
{
    check_step(2);
    check_step(3);
}

/* Two steps: the second one of the replicas must begin with what the first has made of the net. */
TEST(replicas_follow_the_net)
{
    const struct optim optim = {.kind = OPTIM_SGD, .lr = 0.05F};
    const struct net_images all = {.floats = images};
    struct subject a = open_subject(2, false), b = open_subject(2, false);
    struct net_result first, second, again;

    CHECK_EQ(replicas_forward(a.replicas, &all, labels, BATCH, true, &first, NULL), STATUS_OK);
    CHECK_EQ(replicas_backward(a.replicas, 1.0F, NULL), STATUS_OK);
    net_update(a.net, &optim);
    CHECK_EQ(replicas_forward(a.replicas, &all, labels, BATCH, true, &second, NULL), STATUS_OK);
    CHECK(second.loss_sum != first.loss_sum);
    for (uint32_t t = 0; t < net_tensor_count(a.net); t++) {
        float *values = values_of(a.net, t, false);

        CHECK_EQ(net_tensor_write(b.net, t, values, NULL), STATUS_OK);
        free(values);
    }
    CHECK_EQ(replicas_forward(b.replicas, &all, labels, BATCH, true, &again, NULL), STATUS_OK);
    CHECK(again.loss_sum == second.loss_sum);
    close_subject(&a);
    close_subject(&b);
}

/* A batch of fewer images than replicas, and an evaluation. */
TEST(some_replicas_may_have_nothing)
{
    const struct net_images all = {.floats = images};
    struct subject s = open_subject(5, false), e = open_subject(5, true);
    struct net_result result;

    CHECK_EQ(replicas_forward(s.replicas, &all, labels, 3, true, &result, NULL), STATUS_OK);
    CHECK_EQ(result.images, 3);
    CHECK_EQ(replicas_backward(s.replicas, 1.0F, NULL), STATUS_OK);
    CHECK_EQ(replicas_forward(e.replicas, &all, labels, 6, false, &result, NULL), STATUS_OK);
    CHECK_EQ(result.images, 6);
    close_subject(&s);
    close_subject(&e);
}

TEST(a_failure_names_its_replica)
{
    const struct net_images all = {.floats = images};
    struct subject s = open_subject(2, false);
    struct net_result result;
    struct err err = {.text = ""};

    labels[7] = 99;
    CHECK_EQ(replicas_forward(s.replicas, &all, labels, BATCH, true, &result, &err),
             STATUS_BAD_INPUT);
    CHECK_STR(err.text, "replica 1: image 2 of the batch: label 99 is not one of the 10 classes");
    labels[7] = 1;
    CHECK_EQ(replicas_forward(s.replicas, &all, labels, BATCH, true, &result, &err), STATUS_OK);
    close_subject(&s);
}

static uint32_t chosen[4], chosen_count;

static void choose(uint32_t index)
{
    chosen[chosen_count++] = index;
}

TEST(each_replica_has_a_device)
{
    const struct model_shape shape = {1, SIDE, SIDE, 10};
    const struct net_options options = {.batch_max = 4};
    const struct replicas_options asked = {
        .count = 3, .image_elements = SIDE * SIDE, .choose_device = choose};
    struct net *net = batch_net(&options, SIDE, 10);
    struct replicas *replicas = NULL;
    struct graph *graph = NULL;
    struct err err = {.text = ""};

    CHECK_EQ(model_build(&graph, "convnet", &shape, NULL), STATUS_OK);
    CHECK_EQ(replicas_new(&replicas, net, graph, &options, &asked, NULL), STATUS_OK);
    CHECK_EQ(chosen_count, 2);
    CHECK_EQ(chosen[0], 1);
    CHECK_EQ(chosen[1], 2);
    replicas_free(&replicas);
    graph_free(&graph);
    CHECK_EQ(model_build(&graph, "toynet", &shape, NULL), STATUS_OK); /* another net */
    CHECK_EQ(replicas_new(&replicas, net, graph, &options, &asked, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "replica 1: it keeps tensors in another layout") != NULL);
    CHECK(replicas == NULL);
    graph_free(&graph);
    net_free(&net);
}

TEST_MAIN
