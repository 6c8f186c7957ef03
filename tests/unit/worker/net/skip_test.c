/* Overflow in a real net: the step is skipped to the bit, at each level that has a dynamic scale;
 * resume at each level goes on to the bit; what is non-finite is named. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/net/batch.h"
#include "worker/net/net.h"
#include "worker/net/state.h"

#define BATCH 4
#define SIDE 8
#define VALUES_MAX 13000

/* Between them every state, and turns of Lookahead in the steps below. */
static const struct optim optims[] = {
    {.lr = 0.05F, .momentum = 0.9F, .weight_decay = 0.01F},
    {.lr = 0.01F,
     .weight_decay = 0.01F,
     .kind = OPTIM_ADAMW,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .eps = 1e-3F,
     .lookahead = OPTIM_LOOKAHEAD_PAPER,
     .every = 2,
     .alpha = 0.5F},
    {.lr = 1.0F,
     .momentum = 0.9F,
     .kind = OPTIM_LARS,
     .trust = 0.01F,
     .lookahead = OPTIM_LOOKAHEAD_SEED,
     .every = 3,
     .alpha = 0.8F},
};
#define OPTIMS (sizeof optims / sizeof optims[0])
static const struct optim *optim = &optims[0]; /* of the nets being made */

static const struct amp_request requests[] = {
    {.level = "O1"},
    {.level = "O2"},
    {.level = "O2", .keep_batchnorm_fp32 = "False"},
    {.level = "O3", .loss_scale = "dynamic"},
    {.level = "O0", .loss_scale = "dynamic"},
    {.level = "O2", .half_type = "bf16", .loss_scale = "dynamic"},
};
#define REQUESTS (sizeof requests / sizeof requests[0])

static struct net *make_net(const struct amp_request *request)
{
    struct net_options options = {.batch_max = BATCH};
    struct amp amp;

    CHECK_EQ(amp_resolve(&amp, request, NULL), STATUS_OK);
    options.amp = &amp;
    options.optim = optim;
    return batch_net(&options, SIDE, 10);
}

/* `poison`: one pixel that is infinite. */
static double step(struct net *net, uint32_t seed, bool poison)
{
    float images[BATCH * SIDE * SIDE];
    int64_t labels[BATCH];
    struct net_result result;

    batch_draw(seed, 0.0F, BATCH, SIDE, images, labels);
    if (poison)
        images[70] = INFINITY;
    CHECK_EQ(net_forward(net, images, labels, BATCH, true, &result, NULL), STATUS_OK);
    CHECK_EQ(net_backward(net, 1.0F, NULL), STATUS_OK);
    net_update(net, optim);
    return result.loss_sum;
}

/* Trainable tensors and their states, row-major, one after the other. */
static float *copy_state(struct net *net, size_t *count)
{
    const size_t count_max = (size_t)2 * (OPTIM_STATES + 1) * VALUES_MAX;
    float *values = malloc(sizeof *values * count_max);

    CHECK(values != NULL);
    *count = 0;
    for (uint32_t i = 0; i < net_tensor_count(net); i++) {
        const size_t more = net_tensor(net, i)->count;

        if (!net_tensor(net, i)->trainable)
            continue;
        CHECK(*count + (OPTIM_STATES + 1) * more <= count_max);
        CHECK_EQ(net_tensor_read(net, i, values + *count, NULL), STATUS_OK);
        *count += more;
        for (enum optim_state state = 0; state < OPTIM_STATES; state++) {
            if (!optim_uses(optim, state))
                continue;
            CHECK_EQ(net_optim_read(net, state, i, values + *count, NULL), STATUS_OK);
            *count += more;
        }
    }
    return values;
}

static void force_overflow(struct net *net)
{
    struct scaler scaler = net_scaler(net);

    scaler.scale = 0x1p127F;
    net_scaler_write(net, &scaler);
}

static void overflow(void)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        struct net *net = make_net(&requests[i]);
        size_t count;
        float *before, *after;

        for (uint32_t s = 0; s < 3; s++)
            (void)step(net, s, false);
        CHECK_EQ(net_scaler(net).was_skipped, 0);
        before = copy_state(net, &count);
        force_overflow(net);
        for (uint32_t s = 3; s < 5; s++)
            (void)step(net, s, true); /* for fp32, where the scale alone would not do */
        CHECK_EQ(net_scaler(net).was_skipped, 1);
        CHECK_EQ(net_scaler(net).skipped_in_a_row, 2);
        CHECK(net_scaler(net).scale == 0x1p125F);
        after = copy_state(net, &count);
        CHECK_BYTES(after, before, count * sizeof *after);
        free(before);
        free(after);
        net_free(&net);
    }
}

TEST(an_overflow_changes_nothing_but_the_scale)
{
    for (optim = optims; optim < optims + OPTIMS; optim++)
        overflow();
    optim = &optims[0];
}

/* The first step's rule for momentum waits for the first step that is taken. */
static void skip_first(void)
{
    for (size_t i = 0; i < REQUESTS; i++) {
        struct net *a = make_net(&requests[i]), *b = make_net(&requests[i]);
        struct scaler scaler;
        size_t count;
        float *left, *right;

        force_overflow(a);
        (void)step(a, 7, true);
        for (enum optim_state state = 0; state < OPTIM_STATES; state++)
            CHECK(!net_has_state(a, state));
        scaler = net_scaler(b);
        net_scaler_write(a, &scaler);
        for (uint32_t s = 0; s < 3; s++)
            CHECK(step(a, s, false) == step(b, s, false));
        left = copy_state(a, &count);
        right = copy_state(b, &count);
        CHECK_BYTES(left, right, count * sizeof *left);
        free(left);
        free(right);
        net_free(&a);
        net_free(&b);
    }
}

TEST(a_skipped_first_step_leaves_no_trace)
{
    for (optim = optims; optim < optims + OPTIMS; optim++)
        skip_first();
    optim = &optims[0];
}

static void resume(void)
{
    static float values[VALUES_MAX];

    for (size_t r = 0; r < REQUESTS; r++) {
        struct net *a = make_net(&requests[r]), *b = make_net(&requests[r]);
        struct scaler scaler;

        for (uint32_t s = 0; s < 3; s++)
            (void)step(a, s, false);
        for (uint32_t i = 0; i < net_tensor_count(a); i++) {
            CHECK_EQ(net_tensor_read(a, i, values, NULL), STATUS_OK);
            CHECK_EQ(net_tensor_write(b, i, values, NULL), STATUS_OK);
            if (!net_tensor(a, i)->trainable)
                continue;
            for (enum optim_state state = 0; state < OPTIM_STATES; state++) {
                CHECK_EQ(net_has_state(a, state), optim_uses(optim, state));
                if (!optim_uses(optim, state))
                    continue;
                CHECK_EQ(net_optim_read(a, state, i, values, NULL), STATUS_OK);
                CHECK_EQ(net_optim_write(b, state, i, values, NULL), STATUS_OK);
            }
        }
        scaler = net_scaler(a);
        net_scaler_write(b, &scaler);
        for (uint32_t s = 3; s < 8; s++)
            CHECK(step(a, s, false) == step(b, s, false));
        CHECK_EQ(net_scaler(a).unskipped, net_scaler(b).unskipped);
        net_free(&a);
        net_free(&b);
    }
}

TEST(resume_goes_on_to_the_bit)
{
    for (optim = optims; optim < optims + OPTIMS; optim++)
        resume();
    optim = &optims[0];
}

static uint32_t count_unrounded(const float *values, size_t count)
{
    uint32_t unrounded = 0;

    for (size_t i = 0; i < count; i++)
        unrounded += fmodf(values[i], 0x1p-24F) != 0.0F;
    return unrounded;
}

/* O2's masters and states keep what fp16 cannot hold; O3 has nothing but fp16. */
TEST(masters_are_unrounded_and_pure_fp16_is_rounded)
{
    const struct amp_request both[] = {{.level = "O2"}, {.level = "O3"}};

    for (optim = optims; optim < optims + OPTIMS; optim++)
        for (int k = 0; k < 2; k++) {
            struct net *net = make_net(&both[k]);
            size_t count;
            float *values;

            for (uint32_t s = 0; s < 4; s++)
                (void)step(net, s, false);
            values = copy_state(net, &count);
            CHECK((count_unrounded(values, count) > 0) == (k == 0));
            free(values);
            net_free(&net);
        }
    optim = &optims[0];
}

TEST(the_first_bad_layer_is_named)
{
    struct net *net = make_net(&requests[1]);
    char text[128];

    (void)step(net, 0, false);
    net_describe_nonfinite(net, text, sizeof text);
    CHECK_STR(text, "");
    force_overflow(net);
    (void)step(net, 1, false);
    net_describe_nonfinite(net, text, sizeof text);
    CHECK_STR(text, "the gradient of fc.bias");
    (void)step(net, 2, true);
    CHECK_EQ(net_scaler(net).was_skipped, 1);
    net_describe_nonfinite(net, text, sizeof text);
    CHECK_STR(text, "the output of layer input");
    net_free(&net);
}

TEST_MAIN
