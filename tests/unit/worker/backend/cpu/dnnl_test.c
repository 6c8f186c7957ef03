/* oneDNN behind our own calls against plain loops: the same results, whichever version is built in.
 * Values are small integers, so sums are exact in any order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/backend/cpu/dnnl.h"

#define FLOATS 16384 /* room for each tensor, with padding */

/* A convolution with square images; a matrix product where kernel is 0. */
struct shape_case {
    int64_t n, in, out, side, kernel, stride, pad;
    enum cpu_order in_order, out_order;
    bool has_bias;
};

/* Input, weights, bias and output of a case, or their gradients, row-major. */
struct values {
    float at[CPU_MEMORIES][FLOATS];
};

static struct values given, made, expected;

static void fill(struct values *values)
{
    uint32_t seed = 7;

    for (uint32_t k = 0; k < CPU_MEMORIES; k++)
        for (size_t i = 0; i < FLOATS; i++) {
            seed = seed * 1664525U + 1013904223U;
            values->at[k][i] = (float)(seed >> 29) - 3.0F;
        }
}

static struct cpu_shape shape4(int64_t a, int64_t b, int64_t c, int64_t d, enum cpu_order order)
{
    return (struct cpu_shape){.dim_count = 4, .dims = {a, b, c, d}, .order = order};
}

static struct cpu_shape shape2(int64_t a, int64_t b)
{
    return (struct cpu_shape){.dim_count = 2, .dims = {a, b}};
}

static size_t count_of(const struct cpu_shape *shape)
{
    size_t count = 1;

    for (int i = 0; i < shape->dim_count; i++)
        count *= (size_t)shape->dims[i];
    return count;
}

static int64_t out_side(const struct shape_case *c)
{
    return (c->side + 2 * c->pad - c->kernel) / c->stride + 1;
}

static struct cpu_operation operation_of(const struct shape_case *c)
{
    struct cpu_operation operation = {.layer = "made", .has_bias = c->has_bias};

    if (c->kernel == 0) {
        operation.in = shape2(c->n, c->in);
        operation.out = shape2(c->n, c->out);
        return operation;
    }
    operation.is_conv = true;
    operation.stride = c->stride;
    operation.pad = c->pad;
    operation.in = shape4(c->n, c->in, c->side, c->side, c->in_order);
    operation.out = shape4(c->n, c->out, out_side(c), out_side(c), c->out_order);
    return operation;
}

static struct cpu_shape weights_of(const struct shape_case *c)
{
    return c->kernel == 0 ? shape2(c->out, c->in)
                          : shape4(c->out, c->in, c->kernel, c->kernel, CPU_ROW_MAJOR);
}

/* -- plain loops -- */

/* Adds the products that connect one output with its inputs and weights. */
static void add_products(const struct shape_case *c, size_t y, int64_t n, int64_t o, int64_t row,
                         int64_t column)
{
    for (int64_t k = 0; k < c->in * c->kernel * c->kernel; k++) {
        const int64_t from_row = row * c->stride - c->pad + k / c->kernel % c->kernel;
        const int64_t from_column = column * c->stride - c->pad + k % c->kernel;
        const int64_t plane = n * c->in + k / c->kernel / c->kernel;
        const size_t w = (size_t)(o * c->in * c->kernel * c->kernel + k);
        const size_t x = (size_t)((plane * c->side + from_row) * c->side + from_column);

        if (from_row < 0 || from_row >= c->side || from_column < 0 || from_column >= c->side)
            continue;
        expected.at[CPU_OUT][y] += given.at[CPU_IN][x] * given.at[CPU_WEIGHTS][w];
        expected.at[CPU_IN][x] += given.at[CPU_OUT][y] * given.at[CPU_WEIGHTS][w];
        expected.at[CPU_WEIGHTS][w] += given.at[CPU_OUT][y] * given.at[CPU_IN][x];
    }
}

/* From `given`: the output, and the gradients of input, weights and bias. A matrix product is a
 * convolution of images of one pixel. */
static void expect(const struct shape_case *c)
{
    const int64_t side = out_side(c);

    memset(&expected, 0, sizeof expected);
    for (int64_t y = 0; y < c->n * c->out * side * side; y++) {
        const int64_t o = y / side / side % c->out;

        add_products(c, (size_t)y, y / side / side / c->out, o, y / side % side, y % side);
        if (c->has_bias)
            expected.at[CPU_OUT][y] += given.at[CPU_BIAS][o];
        expected.at[CPU_BIAS][o] += given.at[CPU_OUT][y];
    }
}

/* -- oneDNN -- */

static void convert(struct cpu_dnnl *dnnl, const struct cpu_layout *from, const float *source,
                    const struct cpu_layout *to, float *target)
{
    const void *const memory[CPU_MEMORIES] = {[CPU_IN] = source, [CPU_OUT] = target};
    struct cpu_prim *prim;
    struct err err = {.text = ""};

    if (cpu_prim_new_convert(&prim, dnnl, from, to, "made", &err) != STATUS_OK ||
        cpu_prim_run(dnnl, prim, memory, &err) != STATUS_OK)
        FAIL("%s", err.text);
    cpu_prim_free(&prim);
}

/* A tensor of `given` in its layout; NaNs if it is an output. */
static void bring(struct cpu_dnnl *dnnl, const struct cpu_shape *shape,
                  const struct cpu_layout *layout, enum cpu_memory memory, bool is_written,
                  float *stored)
{
    struct cpu_shape plain_shape = *shape;
    struct cpu_layout *plain;

    plain_shape.order = CPU_ROW_MAJOR;
    CHECK(cpu_layout_bytes(layout) <= FLOATS * sizeof *stored);
    CHECK_EQ(cpu_layout_new(&plain, &plain_shape, "made", NULL), STATUS_OK);
    if (is_written)
        for (size_t i = 0; i < FLOATS; i++)
            stored[i] = NAN;
    else
        convert(dnnl, plain, given.at[memory], layout, stored);
    cpu_layout_free(&plain);
}

/* Compares the output with `expected`; padding must be zero. */
static void check_written(struct cpu_dnnl *dnnl, const struct cpu_shape *shape,
                          const struct cpu_layout *layout, enum cpu_memory memory, float *stored)
{
    struct cpu_shape plain_shape = *shape;
    struct cpu_layout *plain;
    double sum = 0, sum_with_padding = 0;

    plain_shape.order = CPU_ROW_MAJOR;
    CHECK_EQ(cpu_layout_new(&plain, &plain_shape, "made", NULL), STATUS_OK);
    convert(dnnl, layout, stored, plain, made.at[memory]);
    cpu_layout_free(&plain);
    for (size_t i = 0; i < count_of(shape); i++) {
        const double value = (double)made.at[memory][i];

        if (!(fabs(value - (double)expected.at[memory][i]) <= 0))
            FAIL("memory %d: value %zu is %g, not %g", (int)memory, i, value,
                 (double)expected.at[memory][i]);
        sum += fabs(value);
    }
    for (size_t i = 0; i < cpu_layout_bytes(layout) / sizeof *stored; i++)
        sum_with_padding += fabs((double)stored[i]);
    CHECK_NEAR(sum_with_padding, sum, 0);
}

/* Runs one direction on `given` and compares what it writes. */
static void check_direction(struct cpu_dnnl *dnnl, const struct shape_case *c,
                            enum cpu_direction direction, const struct cpu_descriptor *descriptor)
{
    static const enum cpu_memory written[CPU_DIRECTIONS] = {CPU_OUT, CPU_IN, CPU_WEIGHTS};
    static float stored[CPU_MEMORIES][FLOATS];
    const struct cpu_operation operation = operation_of(c);
    const struct cpu_shape weights = weights_of(c);
    const struct cpu_shape *const shapes[CPU_MEMORIES] = {
        [CPU_IN] = &operation.in, [CPU_WEIGHTS] = &weights, [CPU_OUT] = &operation.out};
    const void *const memory[CPU_MEMORIES] = {stored[0], stored[1], stored[2], stored[3]};
    struct cpu_layout *layouts[CPU_MEMORIES] = {NULL};
    struct cpu_prim *prim;

    memcpy(stored[CPU_BIAS], given.at[CPU_BIAS], sizeof stored[CPU_BIAS]);
    for (uint32_t k = 0; k < CPU_MEMORIES; k++) {
        if (k == CPU_BIAS)
            continue;
        CHECK_EQ(k == CPU_WEIGHTS ? cpu_descriptor_weights(&layouts[k], descriptor, NULL)
                                  : cpu_layout_new(&layouts[k], shapes[k], "made", NULL),
                 STATUS_OK);
        bring(dnnl, shapes[k], layouts[k], k, k == written[direction], stored[k]);
    }
    CHECK_EQ(cpu_prim_new(&prim, dnnl, descriptor, NULL), STATUS_OK);
    CHECK_EQ(cpu_prim_run(dnnl, prim, memory, NULL), STATUS_OK);
    cpu_prim_free(&prim);
    check_written(dnnl, shapes[written[direction]], layouts[written[direction]], written[direction],
                  stored[written[direction]]);
    if (direction == CPU_DIRECTION_WEIGHTS && c->has_bias)
        CHECK_BYTES(stored[CPU_BIAS], expected.at[CPU_BIAS], (size_t)c->out * sizeof(float));
    for (uint32_t k = 0; k < CPU_MEMORIES; k++)
        cpu_layout_free(&layouts[k]);
}

static void check_case(const struct shape_case *c)
{
    const struct cpu_operation operation = operation_of(c);
    struct cpu_shape weights = weights_of(c);
    struct cpu_descriptor *descriptors[CPU_DIRECTIONS] = {NULL};
    struct cpu_layout *any;
    struct cpu_dnnl *dnnl;
    struct err err = {.text = ""};

    weights.order = CPU_ORDER_ANY;
    CHECK_EQ(cpu_dnnl_open(&dnnl, &err), STATUS_OK);
    CHECK_EQ(cpu_layout_new(&any, &weights, "made", &err), STATUS_OK);
    for (uint32_t d = 0; d < CPU_DIRECTIONS; d++) {
        if (cpu_descriptor_new(&descriptors[d], dnnl, &operation, d, any, descriptors[0], &err) !=
            STATUS_OK)
            FAIL("%s", err.text);
        check_direction(dnnl, c, d, descriptors[d]);
    }
    for (uint32_t d = 0; d < CPU_DIRECTIONS; d++)
        cpu_descriptor_free(&descriptors[d]);
    cpu_layout_free(&any);
    cpu_dnnl_close(&dnnl);
}

TEST(convolutions_equal_plain_loops)
{
    static const struct shape_case cases[] = {
        {2, 16, 32, 6, 3, 1, 1, CPU_BLOCKS_16, CPU_BLOCKS_16, true},
        {2, 16, 32, 6, 3, 1, 1, CPU_BLOCKS_8, CPU_BLOCKS_8, true},
        {3, 3, 20, 7, 3, 2, 1, CPU_ROW_MAJOR, CPU_BLOCKS_16, false},
        {1, 20, 9, 5, 3, 2, 0, CPU_BLOCKS_8, CPU_BLOCKS_8, true},
        {2, 20, 33, 4, 1, 1, 0, CPU_BLOCKS_16, CPU_BLOCKS_16, false},
        {2, 24, 16, 5, 1, 2, 0, CPU_BLOCKS_8, CPU_BLOCKS_8, true},
        {2, 5, 7, 5, 3, 1, 1, CPU_CHANNELS_LAST, CPU_CHANNELS_LAST, true},
    };

    fill(&given);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect(&cases[i]);
        check_case(&cases[i]);
    }
}

TEST(matrix_products_equal_plain_loops)
{
    static const struct shape_case shapes[] = {
        {.n = 5, .in = 48, .out = 64, .has_bias = true},
        {.n = 1, .in = 7, .out = 3},
    };

    fill(&given);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct shape_case one_pixel = shapes[i];

        one_pixel.side = one_pixel.kernel = one_pixel.stride = 1;
        expect(&one_pixel);
        check_case(&shapes[i]);
    }
}

static uint32_t numbers_of(enum cpu_order order, int64_t channels, enum cpu_type type,
                           uint64_t numbers[CPU_LAYOUT_NUMBERS_MAX])
{
    struct cpu_shape shape = shape4(8, channels, 3, 3, order);
    struct cpu_layout *layout, *copy;
    uint64_t again[CPU_LAYOUT_NUMBERS_MAX] = {0};
    uint32_t count;

    shape.type = type;
    CHECK_EQ(cpu_layout_new(&layout, &shape, "made", NULL), STATUS_OK);
    CHECK_EQ(cpu_layout_copy(&copy, layout, "made", NULL), STATUS_OK);
    CHECK(cpu_layout_equal(layout, copy));
    count = cpu_layout_numbers(layout, numbers);
    cpu_layout_free(&layout);
    CHECK_EQ(cpu_layout_numbers(copy, again), count);
    CHECK_BYTES(again, numbers, count * sizeof *numbers);
    cpu_layout_free(&copy);
    return count;
}

/* Ranks whose layouts have different numbers do not train together, so different layouts must never
 * have the same numbers. */
TEST(layouts_differ_in_their_numbers)
{
    static const struct {
        enum cpu_order order;
        int64_t channels;
        enum cpu_type type;
    } layouts[] = {{CPU_ROW_MAJOR, 32, CPU_F32},     {CPU_BLOCKS_8, 32, CPU_F32},
                   {CPU_BLOCKS_16, 32, CPU_F32},     {CPU_BLOCKS_16, 16, CPU_F32},
                   {CPU_CHANNELS_LAST, 32, CPU_F32}, {CPU_CHANNELS_LAST, 32, CPU_BF16}};
    enum { COUNT = sizeof layouts / sizeof layouts[0] };
    uint64_t numbers[COUNT][CPU_LAYOUT_NUMBERS_MAX] = {{0}};

    for (size_t i = 0; i < COUNT; i++) {
        CHECK(numbers_of(layouts[i].order, layouts[i].channels, layouts[i].type, numbers[i]) <=
              CPU_LAYOUT_NUMBERS_MAX);
        for (size_t j = 0; j < i; j++)
            CHECK(memcmp(numbers[i], numbers[j], sizeof numbers[i]) != 0);
    }
    CHECK_EQ(numbers[2][0], 3); /* oneDNN's number of f32 */
    CHECK_EQ(numbers[2][9], 16);
}

TEST(an_error_names_layer_and_direction)
{
    const struct cpu_operation operation = {.layer = "stem",
                                            .is_conv = true,
                                            .stride = 1,
                                            .in = shape4(1, 8, 4, 4, CPU_BLOCKS_8),
                                            .out = shape4(1, 8, 4, 4, CPU_BLOCKS_8)};
    const struct cpu_shape shape = shape4(8, 8, 3, 3, CPU_ORDER_ANY); /* would make 2x2 */
    struct cpu_descriptor *descriptor;
    struct cpu_layout *weights;
    struct cpu_dnnl *dnnl;
    struct err err = {.text = ""};

    CHECK_EQ(cpu_dnnl_open(&dnnl, &err), STATUS_OK);
    CHECK_EQ(cpu_layout_new(&weights, &shape, "stem", &err), STATUS_OK);
    CHECK_EQ(cpu_descriptor_new(&descriptor, dnnl, &operation, CPU_DIRECTION_FORWARD, weights, NULL,
                                &err),
             STATUS_LIBRARY);
    CHECK_STR(err.text, "layer stem: forward: oneDNN status 2");
    CHECK(descriptor == NULL);
    cpu_layout_free(&weights);
    cpu_dnnl_close(&dnnl);
}

TEST_MAIN
