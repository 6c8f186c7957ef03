/* bf16 computed by the machine (AMX or AVX512_BF16) against bf16 rounded: the same nets, seeds and images
 * side by side. The two differ in the order of sums alone, which moves the last of bf16's 8 bits
 * here and there. Where the machine has neither, or ONEDNN_MAX_CPU_ISA hides it, both are the
 * rounded path and must be equal to the bit.
 *
 * Deep nets with batch norm over a few pixels carry one moved bit far: there both are held against
 * fp32 instead, from which the computed gradient must not be further than the rounded one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/made_net.h"
#include "tests/lib/test.h"
#include "worker/graph/amp.h"
#include "worker/model/model.h"
#include "worker/net/net.h"
#include "worker/data/rng.h"
#include "worker/net/profile.h"
#include "worker/net/state.h"

#define STEPS 5
#define BATCH 6U
#define SIZE 64U
#define CLASSES 40U /* a linear layer that is worth the unit */
#define TOLERANCE_LOSS 1e-4
#define TOLERANCE_GRAD 2e-3 /* of all gradients as one vector, relative, in every step */
#define FURTHER_MAX 1.1

static float images[BATCH * 3 * SIZE * SIZE];
static int64_t labels[BATCH];

static void fill_batch(void)
{
    struct rng rng;

    rng_seed(&rng, 7);
    rng_uniform_f32(&rng, -1.0F, 1.0F, images, sizeof images / sizeof images[0]);
    for (size_t i = 0; i < BATCH; i++)
        labels[i] = (int64_t)(i * 5 % CLASSES);
}

/* Every kind of product without batch norm: strides, 1x1, channels that fill no block, biases, a
 * value that two convolutions read, and one convolution (conv6) for which oneDNN has no fast bf16. */
static struct graph *build_plain(void)
{
    struct graph *graph = graph_new();
    const struct graph_window three = {3, 1, 1}, half = {3, 2, 1}, one = {1, 1, 0},
                              skip = {1, 2, 0}, far = {7, 4, 6};
    uint32_t x, main, side;

    CHECK(graph != NULL);
    x = graph_relu(graph, "relu1",
                   graph_conv2d(graph, "conv1", graph_input(graph, 3, SIZE, SIZE), 24, half, true));
    main = graph_relu(graph, "relu2", graph_conv2d(graph, "conv2", x, 48, skip, true));
    main = graph_conv2d(graph, "conv3", main, 40, three, false);
    side = graph_conv2d(graph, "conv4", x, 40, half, true);
    x = graph_relu(graph, "relu3", graph_add(graph, "add", main, side));
    x = graph_relu(graph, "relu4", graph_conv2d(graph, "conv5", x, 64, one, true));
    x = graph_relu(graph, "relu5", graph_conv2d(graph, "conv6", x, 19, far, true));
    x = graph_flatten(graph, "flatten", graph_avg_pool(graph, "pool", x));
    x = graph_linear(graph, "fc", x, CLASSES, true);
    (void)graph_cross_entropy(graph, "loss", x);
    return graph;
}

/* A ResNet gets the weights of torch.nn's defaults alone, as the other nets do. */
static struct net *make_net(const char *arch, const char *level, uint32_t channels, bool emulate)
{
    const uint32_t size = channels == 1 ? 28 : SIZE;
    const struct model_shape shape = {channels, size, size, CLASSES};
    const struct amp_request request = {.level = level, .half_type = "bf16"};
    const struct amp amp = made_amp(&request);
    const struct net_options options = {.batch_max = BATCH, .emulate_half = emulate, .amp = &amp};
    struct graph *graph = arch == NULL ? build_plain() : NULL;
    struct err err = {0};

    if (arch != NULL && model_build(&graph, arch, &shape, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return made_net(graph, &options, 0);
}

/* The mean loss of n images; their gradients are in the net afterwards. */
static double run_step(struct net *net, uint32_t n)
{
    struct net_result result;
    struct err err = {0};

    if (net_forward(net, images, labels, n, true, &result, &err) != STATUS_OK ||
        net_backward(net, 1.0F, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return result.loss_sum / n;
}

static void update(struct net *net)
{
    const struct optim sgd = {.lr = 0.01F, .momentum = 0.9F};

    net_update(net, &sgd);
}

static uint32_t computed_count(const struct net *net)
{
    struct net_half_layer half = {0};
    uint32_t computed = 0;

    for (uint32_t i = 0; net_half_layer(net, i, &half); i++)
        computed += half.is_computed;
    return computed;
}

/* Of all gradients of `a` from those of `b`, relative. */
static double grad_distance(struct net *a, struct net *b)
{
    double off = 0.0, size = 0.0;

    for (uint32_t i = 0; i < net_tensor_count(a); i++) {
        const struct net_tensor *tensor = net_tensor(a, i);
        float *of_a = calloc(tensor->count, sizeof *of_a);
        float *of_b = calloc(tensor->count, sizeof *of_b);

        CHECK(of_a != NULL && of_b != NULL);
        if (tensor->trainable) {
            CHECK_EQ(net_grad_read(a, i, of_a, NULL), STATUS_OK);
            CHECK_EQ(net_grad_read(b, i, of_b, NULL), STATUS_OK);
        }
        for (size_t k = 0; k < tensor->count; k++) {
            off += ((double)of_a[k] - of_b[k]) * ((double)of_a[k] - of_b[k]);
            size += (double)of_b[k] * of_b[k];
        }
        free(of_a);
        free(of_b);
    }
    return sqrt(off / size);
}

static void compare(const char *arch, const char *level, uint32_t channels)
{
    static const uint32_t counts[STEPS] = {BATCH, BATCH, 1, 3, BATCH}; /* also short last batches */
    struct net *hard = make_net(arch, level, channels, false);
    struct net *soft = make_net(arch, level, channels, true);
    const bool is_computed = computed_count(hard) > 0;
    double loss_off = 0.0, grad_off = 0.0;

    CHECK_EQ(computed_count(soft), 0);
    if (arch == NULL && is_computed)
        CHECK_EQ(computed_count(hard), 6); /* all but conv6 */
    for (size_t step = 0; step < STEPS; step++) {
        const double a = run_step(hard, counts[step]), b = run_step(soft, counts[step]);
        const double grads = grad_distance(hard, soft);

        CHECK_NEAR(a, b, is_computed ? TOLERANCE_LOSS : 0.0);
        CHECK(grads <= (is_computed ? TOLERANCE_GRAD : 0.0));
        loss_off = fmax(loss_off, fabs(a - b));
        grad_off = fmax(grad_off, grads);
        update(hard);
        update(soft);
    }
    (void)printf("%s %s: %u computed; losses within %.1e, gradients within %.1e\n",
                 arch != NULL ? arch : "plain", level, computed_count(hard), loss_off, grad_off);
    net_free(&hard);
    net_free(&soft);
}

TEST(computed_as_rounded)
{
    static const char *const levels[] = {"O1", "O2", "O3"};

    fill_batch();
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        compare("convnet", levels[i], 1);
        compare(NULL, levels[i], 3);
    }
}

static void compare_to_fp32(const char *arch)
{
    struct net *full = make_net(arch, "O0", 3, false);
    struct net *hard = make_net(arch, "O1", 3, false);
    struct net *soft = make_net(arch, "O1", 3, true);
    double hard_off, soft_off;

    (void)run_step(full, BATCH);
    (void)run_step(hard, BATCH);
    (void)run_step(soft, BATCH);
    hard_off = grad_distance(hard, full);
    soft_off = grad_distance(soft, full);
    (void)printf("%s: gradients off fp32: computed %.3f, rounded %.3f\n", arch, hard_off, soft_off);
    CHECK(hard_off <= FURTHER_MAX * soft_off);
    net_free(&full);
    net_free(&hard);
    net_free(&soft);
}

TEST(computed_as_near_to_fp32)
{
    fill_batch();
    compare_to_fp32("resnet18");
}

/* What a checkpoint keeps. */
static void carry_over(struct net *from, struct net *to)
{
    for (uint32_t i = 0; i < net_tensor_count(from); i++) {
        const struct net_tensor *tensor = net_tensor(from, i);
        float *values = calloc(tensor->count, sizeof *values);

        CHECK(values != NULL);
        CHECK_EQ(net_tensor_read(from, i, values, NULL), STATUS_OK);
        CHECK_EQ(net_tensor_write(to, i, values, NULL), STATUS_OK);
        if (tensor->trainable) {
            CHECK_EQ(net_optim_read(from, OPTIM_MOMENTUM, i, values, NULL), STATUS_OK);
            CHECK_EQ(net_optim_write(to, OPTIM_MOMENTUM, i, values, NULL), STATUS_OK);
        }
        free(values);
    }
}

static void resume(const char *level)
{
    struct net *whole = make_net("resnet18", level, 3, false);
    struct net *again = make_net("resnet18", level, 3, false);
    struct net *resumed = make_net("resnet18", level, 3, false);

    for (size_t step = 0; step < STEPS; step++) {
        const double loss = run_step(whole, BATCH);

        CHECK(run_step(again, BATCH) == loss);
        if (step >= 2)
            CHECK(run_step(resumed, BATCH) == loss);
        update(whole);
        update(again);
        if (step >= 2)
            update(resumed);
        else
            carry_over(whole, resumed);
    }
    net_free(&whole);
    net_free(&again);
    net_free(&resumed);
}

TEST(the_same_bits_again_and_resumed)
{
    fill_batch();
    resume("O1");
    resume("O2");
    resume("O3");
}

/* Whether the kernel lists instructions for bf16 that are worth it on this CPU. */
static bool cpu_lists_bf16(void)
{
    char line[8192];
    bool is_amd = false, has_dots = false, has_amx = false;
    FILE *file = fopen("/proc/cpuinfo", "re");

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        is_amd = is_amd || strstr(line, "AuthenticAMD") != NULL;
        has_dots = has_dots || strstr(line, " avx512_bf16") != NULL;
        has_amx = has_amx || strstr(line, " amx_bf16") != NULL;
    }
    if (file != NULL)
        (void)fclose(file);
    return has_amx || (is_amd && has_dots);
}

/* Instructions that are hidden are not used; those that are there are. */
TEST(the_unit_is_used_where_it_is)
{
    struct net *net = make_net("resnet18", "O1", 3, false);
    const uint32_t computed = computed_count(net);

    net_free(&net);
    if (getenv("ONEDNN_MAX_CPU_ISA") != NULL)
        CHECK_EQ(computed, 0);
    else if (!cpu_lists_bf16())
        SKIP("neither AMX nor AMD's AVX512_BF16 on this machine");
    else
        CHECK_EQ(computed, 21); /* 20 convolutions and the linear layer */
}

TEST_MAIN
