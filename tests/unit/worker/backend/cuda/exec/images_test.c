/* Channels that are stored of the images: 8 where a convolution of bf16 reads them, else 4. What is stored beyond the
 * images' own is 0 in the images, in the weights of the layer that reads them and in all that an optimizer keeps for
 * them, and no copy of the state has it. Over the stand-in, beside the CPU backend. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/net_pair.h"
#include "tests/lib/test.h"
#include "tests/standin/cuda/standin.h"
#include "worker/backend/cuda/exec/backend.h"
#include "worker/backend/cuda/exec/internal.h"
#include "worker/net/internal.h"

enum { STEPS = 3 };

static void use_standin(void)
{
    cuda_backend_use(&standin_runtime, &standin_kernels, &standin_plans, 0);
}

/* `grey` chooses the ConvNet, else pair_odd_graph with images of 3 channels. */
static struct pair_options options_of(const char *level, bool bf16, bool grey, struct graph *odd)
{
    return (struct pair_options){
        .arch = grey ? "convnet" : "odd",
        .graph = grey ? NULL : odd,
        .shape = grey ? (struct model_shape){0} : (struct model_shape){3, 12, 12, 10},
        .level = level,
        .bf16 = bf16,
    };
}

static float *read_floats(struct net *net, const float *at, size_t count)
{
    float *values = malloc(count * sizeof *values);

    CHECK(values != NULL);
    CHECK_EQ(net->backend->memory_read(net->state, at, values, count * sizeof *values, NULL),
             STATUS_OK);
    return values;
}

/* Weights [out][kh][kw][stored]: fails where one of a channel that the images lack is not 0. The first `outs` must
 * have others: a check of nothing but zeros would be none. */
static void check_padding(struct net *net, const float *at, size_t size, uint32_t stored,
                          uint32_t channels)
{
    float *values = read_floats(net, at, size);
    size_t others = 0;

    for (size_t i = 0; i < size; i++) {
        others += values[i] != 0.0F;
        if (i % stored >= channels && values[i] != 0.0F)
            FAIL("element %zu of %zu, channel %zu of %u: %g", i, size, i % stored, channels,
                 (double)values[i]);
    }
    CHECK(others > 0);
    free(values);
}

/* The half copies, gradients in 16 bits and the images: by their bits. */
static void check_halves(struct net *net, const void *at, size_t size, uint32_t stored,
                         uint32_t channels)
{
    uint16_t *values = malloc(size * sizeof *values);

    CHECK(values != NULL);
    CHECK_EQ(net->backend->memory_read(net->state, at, values, size * sizeof *values, NULL),
             STATUS_OK);
    for (size_t i = 0; i < size; i++)
        if (i % stored >= channels && (values[i] & 0x7fffU) != 0)
            FAIL("element %zu of %zu: 0x%04x", i, size, values[i]);
    free(values);
}

/* After steps: tensor 0 is the first convolution's weight. */
static void check_first_weight(struct net *net, uint32_t stored, uint32_t channels)
{
    const struct cuda *cuda = net->state;
    const struct slot *slot = &net->slots[0];
    const struct net_tensor *tensor = net_tensor(net, 0);

    CHECK_EQ(tensor->dims[1], channels); /* a checkpoint has PyTorch's shape */
    CHECK_EQ(tensor->count, (size_t)tensor->dims[0] * channels * tensor->dims[2] * tensor->dims[3]);
    CHECK_EQ(slot->size % stored, 0);
    CHECK_EQ(slot->size,
             (size_t)cuda->layers[2].out.channels * tensor->dims[2] * tensor->dims[3] * stored);
    check_padding(net, net->params + slot->param_at, slot->size, stored, channels);
    for (int state = 0; state < OPTIM_STATES; state++)
        if (net->states[state] != NULL && net_has_state(net, (enum optim_state)state))
            check_padding(net, net->states[state] + slot->grad_at, slot->size, stored, channels);
    if (cuda->tensors[0].half != NULL)
        check_halves(net, cuda->tensors[0].half, slot->size, stored, channels);
    if (cuda->tensors[0].graph->grad_dtype != GRAPH_F32)
        check_halves(net, cuda->tensors[0].grad, slot->size, stored, channels);
}

static void check_stored(const struct net *net, uint32_t stored, enum graph_dtype type)
{
    const struct cuda *cuda = net->state;
    const struct cuda_value *images = &cuda->layers[0].out;

    CHECK_EQ(images->channels, stored);
    CHECK_EQ(images->dtype, type);
    CHECK_EQ(images->image_size, (size_t)stored * images->h * images->w);
}

TEST(eight_channels_in_bf16_four_in_other_types)
{
    static const struct {
        const char *level;
        bool bf16;
        uint32_t stored;
        enum graph_dtype type;
    } cases[] = {
        {"O0", false, 4, GRAPH_F32}, {"O1", false, 4, GRAPH_F16}, {"O2", false, 4, GRAPH_F16},
        {"O3", false, 4, GRAPH_F16}, {"O0", true, 4, GRAPH_F32},  {"O1", true, 8, GRAPH_BF16},
        {"O2", true, 8, GRAPH_BF16}, {"O3", true, 8, GRAPH_BF16},
    };
    struct graph *odd = pair_odd_graph();

    use_standin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int grey = 0; grey < 2; grey++) {
            const struct pair_options options =
                options_of(cases[i].level, cases[i].bf16, grey != 0, odd);
            struct pair pair = pair_new(&options);

            check_stored(pair.other, cases[i].stored, cases[i].type);
            pair_train(&pair, STEPS); /* the CPU's losses, gradients and parameters */
            check_first_weight(pair.other, cases[i].stored, grey ? 1 : 3);
            pair_evaluate(&pair, 3);
            pair_free(&pair);
        }
    graph_free(&odd);
}

TEST(every_optimizer_leaves_the_padding_at_zero)
{
    struct graph *odd = pair_odd_graph();

    use_standin();
    for (size_t i = 0; i < PAIR_OPTIMS; i++) {
        struct pair_options options = options_of("O2", true, false, odd);
        struct pair pair;

        options.optim = pair_optims[i];
        pair = pair_new(&options);
        pair_train(&pair, STEPS);
        check_first_weight(pair.other, 8, 3);
        pair_free(&pair);
    }
    graph_free(&odd);
}

TEST(bytes_become_eight_channels)
{
    struct graph *odd = pair_odd_graph();
    struct pair_options options = options_of("O2", true, false, odd);
    struct pair pair;
    const struct cuda *cuda;

    use_standin();
    options.bytes = true;
    pair = pair_new(&options);
    pair_train(&pair, STEPS);
    cuda = pair.other->state;
    check_halves(pair.other, cuda->layers[0].out.data, 4 * cuda->layers[0].out.image_size, 8, 3);
    pair_free(&pair);
    graph_free(&odd);
}

/* The CPU's state, where nothing is padded, goes on in bf16 with 8 channels. */
TEST(a_state_without_padding_is_taken_over)
{
    struct graph *odd = pair_odd_graph();
    const struct pair_options options = options_of("O2", true, false, odd);
    struct pair pair;

    use_standin();
    pair = pair_new(&options);
    pair_resume(&pair, 2);
    pair_train(&pair, 2);
    check_first_weight(pair.other, 8, 3);
    pair_free(&pair);
    graph_free(&odd);
}

/* A linear layer has engines for any width, and with 8 channels it would read twice as much. */
TEST(a_linear_layer_reads_four_channels)
{
    struct graph *graph = graph_new();
    uint32_t at = graph_flatten(graph, "flat", graph_input(graph, 1, 5, 5));
    struct pair pair;

    use_standin();
    at = graph_linear(graph, "fc", at, 10, true);
    (void)graph_cross_entropy(graph, "loss", at);
    CHECK_EQ(graph_check(graph, NULL), STATUS_OK);
    pair = pair_new(&(struct pair_options){
        .arch = "flat", .level = "O2", .bf16 = true, .graph = graph, .shape = {1, 5, 5, 10}});
    check_stored(pair.other, 4, GRAPH_BF16);
    CHECK_EQ(pair.other->slots[0].size, 16 * 5 * 5 * 4);
    pair_train(&pair, STEPS);
    pair_free(&pair);
    graph_free(&graph);
}

TEST_MAIN
