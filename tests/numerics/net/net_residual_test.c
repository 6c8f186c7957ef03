/* Residual networks against double arithmetic (net_reference.h): sums after norms, which the
 * backend merges with them, and other sums; a convolution in the shortcut; average pools; norms of
 * features; smoothed labels. */
#include "tests/lib/test.h"
#include "tests/numerics/net/net_subject.h"

static uint32_t conv_norm(struct graph *graph, const char *conv, const char *norm, uint32_t x,
                          uint32_t channels, struct graph_window window)
{
    return graph_batch_norm(graph, norm, graph_conv2d(graph, conv, x, channels, window, false));
}

/* As torchvision's BasicBlock, the shortcut first or last in the order of work. */
static void build_blocks(struct graph *graph, bool shortcut_first)
{
    const struct graph_window same = {3, 1, 1}, half = {3, 2, 1}, one = {1, 2, 0};
    uint32_t x = graph_input(graph, 3, 13, 9), y, side = GRAPH_NONE;

    x = graph_relu(graph, "r0", conv_norm(graph, "c0", "n0", x, 4, (struct graph_window){7, 2, 3}));
    y = graph_relu(graph, "a.r1", conv_norm(graph, "a.c1", "a.n1", x, 4, same));
    y = conv_norm(graph, "a.c2", "a.n2", y, 4, same);
    x = graph_relu(graph, "a.r2", graph_add(graph, "a.sum", y, x));
    if (shortcut_first)
        side = conv_norm(graph, "b.down.0", "b.down.1", x, 18, one);
    y = graph_relu(graph, "b.r1", conv_norm(graph, "b.c1", "b.n1", x, 18, half));
    y = conv_norm(graph, "b.c2", "b.n2", y, 18, same);
    if (!shortcut_first)
        side = conv_norm(graph, "b.down.0", "b.down.1", x, 18, one);
    x = graph_relu(graph, "b.r2", graph_add(graph, "b.sum", y, side));
    subject_finish(graph, graph_avg_pool(graph, "avg", x));
}

static void build_shortcut_first(struct graph *graph)
{
    build_blocks(graph, true);
}

static void build_shortcut_last(struct graph *graph)
{
    build_blocks(graph, false);
}

/* Sums that are not merged with a norm: of convolutions, of values with a second reader, of a
 * value with itself, and one after the other. */
static void build_bare_sums(struct graph *graph)
{
    const struct graph_window same = {3, 1, 1}, one = {1, 1, 0};
    uint32_t x = graph_input(graph, 2, 6, 5), a, b, c;

    a = graph_conv2d(graph, "a", x, 17, same, true);
    b = graph_conv2d(graph, "b", x, 17, one, false);
    c = graph_add(graph, "sum1", a, b);
    c = graph_add(graph, "sum2", graph_relu(graph, "r", c), a);
    c = graph_add(graph, "twice", c, c);
    c = graph_add(graph, "sum3", graph_conv2d(graph, "d", c, 17, same, false), b);
    c = graph_relu(graph, "r3", c);
    subject_finish(graph, graph_max_pool(graph, "p", c, (struct graph_window){2, 2, 0}));
}

/* A norm whose sum has no ReLU; the sum read by two; an average pool read by two. */
static void build_open_sums(struct graph *graph)
{
    const struct graph_window one = {1, 1, 0};
    uint32_t x = graph_input(graph, 3, 5, 4), a, b;

    a = graph_conv2d(graph, "a", x, 8, (struct graph_window){3, 1, 0}, true);
    b = graph_add(graph, "sum1", conv_norm(graph, "b", "nb", a, 8, one), a);
    b = graph_add(graph, "sum2", conv_norm(graph, "c", "nc", b, 8, one), b);
    a = graph_avg_pool(graph, "avg", b);
    b = graph_add(graph, "sum3", graph_conv2d(graph, "d", a, 8, one, true), a);
    subject_finish(graph, b);
}

static void build_features(struct graph *graph)
{
    uint32_t x = graph_flatten(graph, "f", graph_input(graph, 2, 3, 3)), a, b;

    a = graph_batch_norm(graph, "n0", graph_linear(graph, "l0", x, 19, false));
    a = graph_relu(graph, "r0", a);
    b = graph_linear(graph, "l1", a, 19, true);
    b = graph_batch_norm(graph, "n1", graph_add(graph, "sum", b, a));
    x = graph_linear(graph, "fc", graph_relu(graph, "r1", b), SUBJECT_CLASSES, true);
    (void)graph_cross_entropy(graph, "loss", x);
}

TEST(blocks_with_a_shortcut)
{
    subject_check_seeds(build_shortcut_first);
    subject_check_seeds(build_shortcut_last);
}

TEST(sums_of_anything)
{
    subject_check_seeds(build_bare_sums);
}

TEST(sums_and_average_pools_that_several_read)
{
    subject_check_seeds(build_open_sums);
}

TEST(norms_of_features)
{
    subject_check_seeds(build_features);
}

TEST(smoothed_labels)
{
    subject_check(build_features, 0.1, 1);
    subject_check(build_shortcut_first, 0.3, 2);
    subject_check(build_bare_sums, 1.0, 3);
}

TEST_MAIN
