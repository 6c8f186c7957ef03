/* Loss, gradients and running statistics of small networks against double arithmetic
 * (net_reference.h): every layer type, fused and not, one and several channel blocks, full and
 * partial batches, training and evaluation. */
#include "tests/lib/test.h"
#include "tests/numerics/net/net_subject.h"

/* The shape of the ConvNet in small: all fused. */
static void build_fused(struct graph *graph)
{
    uint32_t x = graph_input(graph, 1, 8, 8);

    x = graph_conv2d(graph, "a.0", x, 3, (struct graph_window){5, 1, 2}, true);
    x = graph_batch_norm(graph, "a.1", x);
    x = graph_relu(graph, "a.2", x);
    x = graph_max_pool(graph, "a.3", x, (struct graph_window){2, 2, 0});
    x = graph_conv2d(graph, "b.0", x, 5, (struct graph_window){3, 1, 1}, true);
    x = graph_batch_norm(graph, "b.1", x);
    x = graph_relu(graph, "b.2", x);
    subject_finish(graph, graph_max_pool(graph, "b.3", x, (struct graph_window){2, 2, 0}));
}

/* Nothing to fuse; overlapping windows; strides; channels over one block; an input of more than
 * three channels. */
static void build_apart(struct graph *graph)
{
    uint32_t x = graph_input(graph, 5, 9, 7);

    x = graph_conv2d(graph, "c0", x, 19, (struct graph_window){3, 2, 1}, false);
    x = graph_relu(graph, "r0", x);
    x = graph_max_pool(graph, "p0", x, (struct graph_window){3, 2, 1});
    x = graph_batch_norm(graph, "n0", x);
    x = graph_conv2d(graph, "c1", x, 4, (struct graph_window){2, 1, 0}, true);
    x = graph_batch_norm(graph, "n1", x);
    subject_finish(graph, graph_relu(graph, "r1", graph_flatten(graph, "f", x)));
}

/* Norm and ReLU without a pool, the convolution's output read by another layer than a norm. */
static void build_plain(struct graph *graph)
{
    uint32_t x = graph_input(graph, 3, 6, 6);

    x = graph_conv2d(graph, "c0", x, 16, (struct graph_window){1, 1, 0}, true);
    x = graph_batch_norm(graph, "n0", x);
    x = graph_relu(graph, "r0", x);
    x = graph_conv2d(graph, "c1", x, 32, (struct graph_window){3, 1, 1}, true);
    subject_finish(graph, graph_max_pool(graph, "p1", x, (struct graph_window){6, 6, 0}));
}

static void build_linear(struct graph *graph)
{
    uint32_t x = graph_flatten(graph, "f", graph_input(graph, 2, 3, 3));

    x = graph_relu(graph, "r", graph_linear(graph, "l0", x, 11, true));
    x = graph_linear(graph, "fc", x, SUBJECT_CLASSES, false);
    (void)graph_cross_entropy(graph, "loss", x);
}

/* Shapes for which oneDNN has no fast code over blocks of channels: large strides, borders wider
 * than the window needs, large windows over few channels. */
static void build_odd(struct graph *graph)
{
    uint32_t x = graph_input(graph, 4, 11, 10);

    x = graph_conv2d(graph, "c0", x, 3, (struct graph_window){5, 1, 4}, false);
    x = graph_batch_norm(graph, "n0", x);
    x = graph_conv2d(graph, "c1", x, 18, (struct graph_window){3, 3, 2}, true);
    x = graph_relu(graph, "r1", x);
    subject_finish(graph, graph_conv2d(graph, "c2", x, 2, (struct graph_window){7, 1, 3}, false));
}

/* The first layer too; two readers of one value. */
static void build_odd_first(struct graph *graph)
{
    uint32_t x = graph_input(graph, 1, 9, 9), y;

    x = graph_conv2d(graph, "c0", x, 17, (struct graph_window){7, 3, 6}, true);
    y = graph_conv2d(graph, "c1", x, 2, (struct graph_window){5, 1, 2}, true);
    x = graph_conv2d(graph, "c2", x, 2, (struct graph_window){3, 1, 1}, true);
    subject_finish(graph, graph_add(graph, "a", x, y));
}

static void build_pixel(struct graph *graph)
{
    uint32_t x = graph_input(graph, 2, 1, 1);

    x = graph_conv2d(graph, "c0", x, 9, (struct graph_window){1, 1, 0}, true);
    subject_finish(graph, graph_conv2d(graph, "c1", x, 20, (struct graph_window){7, 1, 3}, true));
}

/* Borders wider than the window: for these shapes oneDNN has fast code neither over blocks nor
 * with channels last, in one direction or in two. */
static void build_borders(struct graph *graph, struct graph_window window)
{
    uint32_t x = graph_input(graph, 2, 3, 3);

    x = graph_conv2d(graph, "c0", x, 17, (struct graph_window){1, 1, 0}, true);
    x = graph_conv2d(graph, "c1", x, 2, window, true);
    subject_finish(graph, graph_max_pool(graph, "p1", x, (struct graph_window){3, 2, 1}));
}

static void build_wide_borders(struct graph *graph)
{
    build_borders(graph, (struct graph_window){5, 2, 10});
}

static void build_wider_borders(struct graph *graph)
{
    build_borders(graph, (struct graph_window){4, 1, 8});
}

TEST(fused_net)
{
    subject_check_seeds(build_fused);
}

TEST(net_with_nothing_to_fuse)
{
    subject_check_seeds(build_apart);
}

TEST(net_of_plain_convolutions)
{
    subject_check_seeds(build_plain);
}

TEST(net_of_odd_convolutions)
{
    subject_check_seeds(build_odd);
}

TEST(net_that_begins_with_an_odd_convolution)
{
    subject_check_seeds(build_odd_first);
}

TEST(net_over_one_pixel)
{
    subject_check_seeds(build_pixel);
}

TEST(net_with_wide_borders)
{
    subject_check_seeds(build_wide_borders);
}

TEST(net_with_wider_borders)
{
    subject_check_seeds(build_wider_borders);
}

TEST(net_of_linear_layers)
{
    subject_check_seeds(build_linear);
}

TEST_MAIN
