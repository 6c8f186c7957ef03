/* What happens to gradients between the loss and the update, against PyTorch: label smoothing,
 * clipping, accumulation. */
#include <math.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/net/batch.h"
#include "tests/unit/worker/net/grad_values.h"
#include "worker/graph/amp.h"
#include "worker/net/clip.h"
#include "worker/graph/graph.h"
#include "worker/model/init.h"
#include "worker/net/loss.h"
#include "worker/data/rng.h"
#include "worker/net/state.h"

#define SIDE 6
#define BATCH 12
#define VALUES_MAX 2000

TEST(label_smoothing_is_that_of_torch)
{
    for (size_t c = 0; c < sizeof smooth_cases / sizeof smooth_cases[0]; c++) {
        const struct smooth_case *expected = &smooth_cases[c];
        float probs[SMOOTH_IMAGES * SMOOTH_CLASSES], grads[SMOOTH_IMAGES * SMOOTH_CLASSES];
        struct net_result result, plain;

        loss_forward(smooth_scores, smooth_labels, SMOOTH_IMAGES, SMOOTH_CLASSES, 0.0F, probs,
                     &plain);
        loss_forward(smooth_scores, smooth_labels, SMOOTH_IMAGES, SMOOTH_CLASSES,
                     expected->smoothing, probs, &result);
        CHECK_NEAR(result.loss_sum / (double)SMOOTH_IMAGES, expected->loss, 1e-6);
        CHECK_EQ(result.top1, plain.top1);
        CHECK_EQ(result.top5, plain.top5);
        loss_backward(probs, smooth_labels, SMOOTH_IMAGES, SMOOTH_CLASSES, expected->smoothing,
                      1.0F / (float)SMOOTH_IMAGES, grads);
        for (size_t i = 0; i < sizeof grads / sizeof grads[0]; i++)
            CHECK_NEAR(grads[i], expected->grads[i], 1e-7);
    }
}

TEST(clipping_is_that_of_torch_at_any_loss_scale)
{
    static const float scales[] = {1.0F, 65536.0F, 0.25F};

    for (size_t c = 0; c < sizeof clip_cases / sizeof clip_cases[0]; c++) {
        for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
            float grads[CLIP_COUNT];

            for (int i = 0; i < CLIP_COUNT; i++)
                grads[i] = clip_grads_in[i] * scales[s];
            clip_grads(grads, CLIP_COUNT, &clip_cases[c].clip, scales[s]);
            for (int i = 0; i < CLIP_COUNT; i++)
                CHECK_NEAR(grads[i] / scales[s], clip_cases[c].grads[i],
                           1e-6 * fabs((double)clip_cases[c].grads[i]) + 1e-12);
        }
    }
}

TEST(a_nan_is_not_clipped_away)
{
    const struct net_clip clip = {.value = 1.0F, .norm = 1.0F};
    float grads[3] = {1.0F, NAN, 2.0F};

    clip_grads(grads, 3, &clip, 1.0F);
    for (int i = 0; i < 3; i++)
        CHECK(isnan(grads[i]));
    CHECK(isnan(clip_norm(grads, 3)));
}

/* No batch norm: gradients of a batch are the mean of those of its images. */
static struct net *make_net_of(const struct amp *amp, bool accumulate)
{
    const struct graph_window same = {.kernel = 3, .stride = 1, .pad = 1};
    const struct net_options options = {.batch_max = BATCH,
                                        .bucket_first_bytes = 64,
                                        .bucket_bytes = 256,
                                        .accumulate = accumulate,
                                        .amp = amp};
    struct graph *graph = graph_new();
    struct net *net = NULL;
    struct rng rng;
    uint32_t x = graph_input(graph, 1, SIDE, SIDE);

    x = graph_relu(graph, "relu", graph_conv2d(graph, "conv", x, 5, same, true));
    x = graph_linear(graph, "fc", graph_flatten(graph, "flatten", x), 10, true);
    (void)graph_cross_entropy(graph, "loss", x);
    CHECK_EQ(net_new(&net, graph, &options, NULL), STATUS_OK);
    rng_seed(&rng, 3);
    CHECK_EQ(init_torch_default(net, graph, &rng, NULL), STATUS_OK);
    graph_free(&graph);
    return net;
}

static struct net *make_net(const struct amp *amp)
{
    return make_net_of(amp, true);
}

/* Images first .. first + n of a batch that is the same in every call. */
static void run_images(struct net *net, uint32_t first, uint32_t n, float scale)
{
    static float images[BATCH * SIDE * SIDE];
    int64_t labels[BATCH];
    struct net_result result;

    batch_draw(9, -1.0F, BATCH, SIDE, images, labels);
    CHECK_EQ(net_forward(net, images + (size_t)first * SIDE * SIDE, labels + first, n, true,
                         &result, NULL),
             STATUS_OK);
    CHECK_EQ(net_backward_reduce(net, scale, NULL), STATUS_OK);
}

static void check_same_grads(struct net *a, struct net *b, double tolerance)
{
    static float there[VALUES_MAX], here[VALUES_MAX];

    for (uint32_t i = 0; i < net_tensor_count(a); i++) {
        CHECK(net_tensor(a, i)->count <= VALUES_MAX);
        CHECK_EQ(net_grad_read(a, i, there, NULL), STATUS_OK);
        CHECK_EQ(net_grad_read(b, i, here, NULL), STATUS_OK);
        for (size_t k = 0; k < net_tensor(a, i)->count; k++)
            CHECK_NEAR(here[k], there[k], tolerance);
    }
}

/* A bucket that is handed out has everything in it already. */
struct seen {
    struct net *net;
    double sum;
};

static enum status nothing(void *context, struct err *err)
{
    (void)context;
    (void)err;
    return STATUS_OK;
}

static enum status add_bucket(void *context, uint32_t index, struct err *err)
{
    struct seen *seen = context;
    struct net_view view;

    CHECK_EQ(net_bucket_open(seen->net, index, &view, NULL), STATUS_OK);
    for (size_t i = 0; i < view.count; i++)
        seen->sum += (double)view.values[i];
    return net_bucket_close(seen->net, index, &view, err);
}

static double sum_of_buckets(struct net *net)
{
    struct seen seen = {net, 0};

    for (uint32_t i = 0; i < net_bucket_count(net); i++)
        CHECK_EQ(add_bucket(&seen, i, NULL), STATUS_OK);
    return seen.sum;
}

TEST(accumulated_gradients_are_those_of_the_big_batch)
{
    struct net *whole = make_net(NULL), *parts = make_net(NULL);

    for (int round = 0; round < 3; round++) { /* nothing of a round is left in the next */
        struct seen seen = {parts, 0};
        const struct reducer reducer = {&seen, nothing, add_bucket, nothing, 1.0F, false};

        run_images(whole, 0, BATCH, 1.0F);
        run_images(parts, 0, 5, 5.0F / BATCH);
        net_grads_keep(parts);
        run_images(parts, 5, 5, 5.0F / BATCH);
        net_grads_keep(parts);
        net_grads_join(parts);
        net_set_reducer(parts, &reducer);
        run_images(parts, 10, 2, 2.0F / BATCH); /* a ragged end */
        net_set_reducer(parts, NULL);
        check_same_grads(whole, parts, 1e-6);
        CHECK(seen.sum == sum_of_buckets(parts));
        run_images(parts, 0, BATCH, 1.0F); /* and without accumulation again */
        check_same_grads(whole, parts, 1e-6);
    }
    net_free(&whole);
    net_free(&parts);
}

/* The gradients of batch `first` alone, as 16-bit values, added to `sums`. */
static void add_exact(struct net *net, uint32_t first, double *sums)
{
    static float values[VALUES_MAX];
    size_t at = 0;

    run_images(net, first, 1, 1.0F);
    for (uint32_t i = 0; i < net_tensor_count(net); i++) {
        CHECK_EQ(net_grad_read(net, i, values, NULL), STATUS_OK);
        for (size_t k = 0; k < net_tensor(net, i)->count; k++)
            sums[at++] += (double)values[k];
        CHECK(at <= 2 * VALUES_MAX);
    }
}

/* The worst difference, of the largest sum. */
static double worst_of(struct net *net, const double *sums)
{
    static float values[VALUES_MAX];
    double worst = 0.0, most = 0.0;
    size_t at = 0;

    for (uint32_t i = 0; i < net_tensor_count(net); i++) {
        CHECK_EQ(net_grad_read(net, i, values, NULL), STATUS_OK);
        for (size_t k = 0; k < net_tensor(net, i)->count; k++, at++) {
            worst = fmax(worst, fabs((double)values[k] - sums[at]));
            most = fmax(most, fabs(sums[at]));
        }
    }
    CHECK(most > 0.0 && isfinite(worst));
    return worst / most;
}

static enum status check_fp32(void *context, uint32_t index, struct err *err)
{
    (void)err;
    CHECK_EQ(net_bucket(context, index).dtype, GRAPH_F32);
    return STATUS_OK;
}

/* Against their sum in double. Rounded to the type it would be off by 5e-4 (fp16) or 4e-3 (bf16); a
 * step of a single batch has nothing of the step before. */
TEST(accumulated_16_bit_gradients_are_summed_in_fp32)
{
    static const char *const types[] = {"fp16", "bf16"}, *const levels[] = {"O2", "O3"};
    const struct optim sgd = {.lr = 0.0F};

    for (int t = 0; t < 4; t++) {
        const struct amp_request request = {.level = levels[t / 2], .half_type = types[t % 2]};
        struct net *alone, *net;
        struct amp amp;

        CHECK_EQ(amp_resolve(&amp, &request, NULL), STATUS_OK);
        amp.scaler = amp_none().scaler;
        alone = make_net_of(&amp, false);
        net = make_net_of(&amp, true);
        for (uint32_t batches = 1; batches <= BATCH; batches += BATCH - 1) {
            static double sums[2 * VALUES_MAX];
            const struct reducer reducer = {net, nothing, check_fp32, nothing, 1.0F, false};

            memset(sums, 0, sizeof sums);
            for (uint32_t i = 0; i < batches; i++) {
                add_exact(alone, i, sums);
                if (i + 1 == batches) {
                    net_grads_join(net);
                    net_set_reducer(net, &reducer);
                }
                run_images(net, i, 1, 1.0F);
                if (i + 1 < batches)
                    net_grads_keep(net);
            }
            net_set_reducer(net, NULL);
            net_update(net, &sgd);
            (void)printf("# %s %s, %u batches: off by %.2g\n", levels[t / 2], types[t % 2], batches,
                         worst_of(net, sums));
            CHECK(worst_of(net, sums) < 1e-6);
        }
        net_free(&alone);
        net_free(&net);
    }
}

/* The norm over the arena, padding and all, is the norm over the tensors. */
TEST(the_nets_norm_is_brought_down)
{
    const struct net_clip clip = {.norm = 0.01F};
    struct net *net = make_net(NULL);
    static float values[VALUES_MAX];
    double sum = 0;

    run_images(net, 0, BATCH, 1.0F);
    net_clip(net, &clip);
    for (uint32_t i = 0; i < net_tensor_count(net); i++) {
        CHECK_EQ(net_grad_read(net, i, values, NULL), STATUS_OK);
        for (size_t k = 0; k < net_tensor(net, i)->count; k++)
            sum += (double)values[k] * (double)values[k];
    }
    CHECK_NEAR(sqrt(sum), 0.01, 1e-7);
    net_free(&net);
}

/* Clipping by value must not make a number of an infinity that should skip the step. */
TEST(an_overflow_is_still_skipped_behind_a_clip)
{
    const struct net_clip clip = {.value = 0.1F};
    const struct optim sgd = {.lr = 0.1F};
    struct amp amp = amp_none();
    struct net_view view;
    struct net *net;
    static float before[VALUES_MAX], after[VALUES_MAX];

    amp.scaler.is_dynamic = true;
    amp.scaler.init = 4.0F;
    net = make_net(&amp);
    run_images(net, 0, BATCH, 1.0F);
    CHECK_EQ(net_bucket_open(net, 0, &view, NULL), STATUS_OK);
    view.values[0] = INFINITY;
    CHECK_EQ(net_bucket_close(net, 0, &view, NULL), STATUS_OK);
    CHECK_EQ(net_tensor_read(net, 0, before, NULL), STATUS_OK);
    net_clip(net, &clip);
    net_update(net, &sgd);
    CHECK_EQ(net_tensor_read(net, 0, after, NULL), STATUS_OK);
    CHECK_BYTES(after, before, net_tensor(net, 0)->count * sizeof(float));
    CHECK(net_scaler(net).was_skipped);

    run_images(net, 0, BATCH, 1.0F);
    net_clip(net, &clip);
    net_update(net, &sgd);
    CHECK(!net_scaler(net).was_skipped);
    net_free(&net);
}

TEST_MAIN
