/* No convolution uses oneDNN's reference code, which is hundreds of times slower, and every shape
 * can be opened: all corner cases and a few hundred random ones. Run for each instruction set. */
#include "tests/lib/test.h"
#include "worker/backend/cpu/conv.h"
#include "worker/backend/cpu/cpu.h"

enum { BEFORE = 1, MEASURED = 2, DRAWN = 300 };

struct shape {
    uint32_t n, in, out, side, kernel, stride, pad;
};

static uint32_t random_state = 1;

static uint32_t draw(uint32_t from, uint32_t to)
{
    random_state = random_state * 1664525U + 1013904223U;
    return from + (random_state >> 8) % (to - from + 1);
}

/* Draws small and large numbers of channels equally often. */
static uint32_t draw_channels(void)
{
    return draw(1, 1U << draw(0, 8));
}

static struct graph *make_graph(const struct shape *shape)
{
    const struct graph_window one = {1, 1, 0}, window = {shape->kernel, shape->stride, shape->pad};
    struct graph *graph = graph_new();
    uint32_t x;

    CHECK(graph != NULL);
    x = graph_input(graph, 1 + shape->in % 4, shape->side, shape->side);
    x = graph_conv2d(graph, "before", x, shape->in, one, false);
    x = graph_conv2d(graph, "measured", x, shape->out, window, true);
    x = graph_flatten(graph, "flatten", graph_avg_pool(graph, "pool", x));
    (void)graph_cross_entropy(graph, "loss", graph_linear(graph, "fc", x, 2, true));
    return graph;
}

static void check_shape(const struct shape *shape)
{
    const struct net_options options = {.batch_max = shape->n};
    struct graph *graph = make_graph(shape);
    struct err err = {.text = ""};
    void *state;

    CHECK_EQ(graph_check(graph, &err), STATUS_OK);
    if (backend_cpu.open(&state, graph, &options, &err) != STATUS_OK)
        FAIL("%s", err.text);
    for (uint32_t i = BEFORE; i <= MEASURED; i++) {
        const struct cpu_layer *layer = &((const struct cpu *)state)->layers[i];
        const struct cpu_conv *conv = layer->own;

        for (uint32_t d = 0; d < CPU_DIRECTIONS; d++)
            if (conv->product.is_general[d] && !(d == CPU_DIRECTION_WEIGHTS && conv->own_weights))
                FAIL("%s, direction %u: general code: %u x %u -> %u, %u pixels, kernel %u, stride "
                     "%u, pad %u",
                     layer->graph->name, d, shape->n, shape->in, shape->out, shape->side,
                     shape->kernel, shape->stride, shape->pad);
    }
    backend_cpu.close(&state);
    graph_free(&graph);
}

TEST(corners)
{
    static const struct shape shapes[] = {
        {8, 8, 8, 28, 3, 1, 1},    {2, 84, 14, 56, 7, 3, 3},  {8, 1, 167, 32, 3, 2, 1},
        {16, 18, 13, 28, 3, 1, 2}, {32, 4, 322, 4, 7, 2, 3},  {2, 8, 16, 1, 7, 1, 3},
        {1, 1, 1, 1, 1, 1, 0},     {3, 16, 16, 7, 2, 2, 0},   {1, 275, 50, 30, 5, 1, 6},
        {1, 346, 3, 1, 3, 1, 4},   {2, 36, 3, 40, 11, 2, 11}, {1, 7, 1, 28, 5, 1, 2},
        {2, 256, 29, 32, 9, 1, 4}, {1, 51, 1, 20, 9, 1, 0}};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_shape(&shapes[i]);
}

TEST(drawn_shapes)
{
    for (int i = 0; i < DRAWN; i++) {
        const uint32_t kernel = draw(1, 4) * 2 - 1;
        const struct shape shape = {.n = draw(1, 8),
                                    .in = draw_channels(),
                                    .out = draw_channels(),
                                    .side = draw(kernel, 40),
                                    .kernel = kernel,
                                    .stride = draw(1, 4),
                                    .pad = draw(0, kernel)};

        check_shape(&shape);
    }
}

TEST_MAIN
