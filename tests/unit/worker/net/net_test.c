/* The executor's public functions: steps, buckets, hashes, optimizer state, resume. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/net/batch.h"
#include "worker/net/net.h"
#include "worker/net/state.h"

#define BATCH 4
#define SIDE 8
#define VALUES_MAX 13000 /* of the largest tensor */

static const struct optim nesterov = {
    .lr = 0.05F, .momentum = 0.9F, .weight_decay = 0.01F, .nesterov = true};

static struct net *make_net(uint32_t classes)
{
    const struct net_options options = {
        .batch_max = BATCH, .bucket_first_bytes = 256, .bucket_bytes = 4096};

    return batch_net(&options, SIDE, classes);
}

/* One forward and backward over images drawn from `seed`. */
static double run_batch(struct net *net, uint32_t seed)
{
    float images[BATCH * SIDE * SIDE];
    int64_t labels[BATCH];
    struct net_result result;

    batch_draw(seed, 0.0F, BATCH, SIDE, images, labels);
    CHECK_EQ(net_forward(net, images, labels, BATCH, true, &result, NULL), STATUS_OK);
    CHECK_EQ(net_backward(net, 1.0F, NULL), STATUS_OK);
    return result.loss_sum;
}

static void check_same(struct net *a, struct net *b)
{
    struct net_view of_a, of_b;

    CHECK_EQ(net_state_open(a, NET_PARAMS, &of_a, NULL), STATUS_OK);
    CHECK_EQ(net_state_open(b, NET_PARAMS, &of_b, NULL), STATUS_OK);
    CHECK_EQ(of_b.count, of_a.count);
    CHECK_BYTES(of_b.values, of_a.values, of_a.count * sizeof(float));
    CHECK_EQ(net_state_close(a, NET_PARAMS, &of_a, NULL), STATUS_OK);
    CHECK_EQ(net_state_close(b, NET_PARAMS, &of_b, NULL), STATUS_OK);
}

TEST(equal_runs_are_equal_to_the_bit)
{
    struct net *a = make_net(10), *b = make_net(10);

    for (uint32_t step = 0; step < 4; step++) {
        double loss = run_batch(a, step);

        CHECK(loss == run_batch(b, step));
        net_update(a, &nesterov);
        net_update(b, &nesterov);
        check_same(a, b);
    }
    net_free(&a);
    net_free(&b);
}

TEST(resumed_runs_are_equal_to_the_bit)
{
    struct net *a = make_net(10), *b = make_net(10);
    static float values[VALUES_MAX];

    for (uint32_t step = 0; step < 3; step++) {
        (void)run_batch(a, step);
        net_update(a, &nesterov);
    }
    CHECK(net_has_state(a, OPTIM_MOMENTUM) && !net_has_state(b, OPTIM_MOMENTUM));
    for (uint32_t i = 0; i < net_tensor_count(a); i++) {
        CHECK_EQ(net_tensor_read(a, i, values, NULL), STATUS_OK);
        CHECK_EQ(net_tensor_write(b, i, values, NULL), STATUS_OK);
        if (!net_tensor(a, i)->trainable)
            continue;
        CHECK_EQ(net_optim_read(a, OPTIM_MOMENTUM, i, values, NULL), STATUS_OK);
        CHECK_EQ(net_optim_write(b, OPTIM_MOMENTUM, i, values, NULL), STATUS_OK);
    }
    for (uint32_t step = 3; step < 6; step++) {
        CHECK(run_batch(a, step) == run_batch(b, step));
        net_update(a, &nesterov);
        net_update(b, &nesterov);
    }
    check_same(a, b);
    net_free(&a);
    net_free(&b);
}

/* The update on the blocked arena against the formula on row-major values, for every tensor. */
TEST(updates_follow_the_formula)
{
    struct net *net = make_net(10);
    static float before[VALUES_MAX], grad[VALUES_MAX], after[VALUES_MAX], buf[VALUES_MAX];

    for (uint32_t i = 0; i < net_tensor_count(net); i++) {
        const struct net_tensor *tensor = net_tensor(net, i);

        CHECK(tensor->count <= VALUES_MAX);
        if (!tensor->trainable)
            continue;
        (void)run_batch(net, i);
        CHECK_EQ(net_tensor_read(net, i, before, NULL), STATUS_OK);
        CHECK_EQ(net_grad_read(net, i, grad, NULL), STATUS_OK);
        CHECK_EQ(net_optim_read(net, OPTIM_MOMENTUM, i, buf, NULL), STATUS_OK);
        net_update(net, &nesterov);
        CHECK_EQ(net_tensor_read(net, i, after, NULL), STATUS_OK);
        for (size_t k = 0; k < tensor->count; k++) {
            double g = (double)grad[k] + 0.01 * (double)before[k];
            double b = (i == 0 ? 0.0 : 0.9 * (double)buf[k]) + g;

            CHECK_NEAR(after[k], (double)before[k] - 0.05 * (g + 0.9 * b), 2e-6);
        }
    }
    net_free(&net);
}

TEST(buckets_lie_end_to_end)
{
    struct net *net = make_net(10);

    CHECK(net_bucket_count(net) >= 3);
    for (uint32_t i = 1; i < net_bucket_count(net); i++) {
        const struct net_bucket before = net_bucket(net, i - 1);

        CHECK_EQ(net_bucket(net, i).at, before.at + before.count);
    }
    net_free(&net);
}

TEST(hashes_tell_nets_apart)
{
    struct net *a = make_net(10), *b = make_net(10), *c = make_net(12);
    uint8_t hash[3][32];

    (void)run_batch(a, 1);
    net_update(a, &nesterov); /* values do not count */
    net_hash(a, UINT32_MAX, hash[0]);
    net_hash(b, UINT32_MAX, hash[1]);
    net_hash(c, UINT32_MAX, hash[2]);
    CHECK_BYTES(hash[0], hash[1], 32);
    CHECK(memcmp(hash[0], hash[2], 32) != 0);
    net_hash(a, 0, hash[0]);
    net_hash(c, 0, hash[2]);
    CHECK_BYTES(hash[0], hash[2], 32); /* layer1.0.weight is the same in both */
    net_free(&a);
    net_free(&b);
    net_free(&c);
}

TEST(a_wrong_label_is_named)
{
    struct net *net = make_net(10);
    const float images[BATCH * SIDE * SIDE] = {0};
    const int64_t labels[BATCH] = {0, 9, 10, 0};
    struct net_result result;
    struct err err = {0};

    CHECK_EQ(net_forward(net, images, labels, BATCH, true, &result, &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "image 2 of the batch: label 10 is not one of the 10 classes");
    net_free(&net);
}

TEST_MAIN
