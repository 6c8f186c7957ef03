/* kernels/layers.h on a device. */
#include "kernels/layers.h"

#include "tests/gpu/mirror.h"

#define ALL_TYPES(type) for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++)

static struct mirror values_of(enum kernel_type type, size_t count, float scale)
{
    return mirror_random(type, count, 0, scale);
}

static struct mirror poison_of(enum kernel_type type, size_t count)
{
    return mirror_new(count * type_bytes(type), 0);
}

static void images_once(struct kernel_images images)
{
    const size_t pixels = (size_t)images.images * images.height * images.width;
    const size_t count = pixels * images.in_channels;
    struct mirror x = images.from_bytes ? mirror_new(count, draw_below(4))
                                        : mirror_random(KERNEL_F32, count, 0, 1.0F);
    struct mirror y = poison_of(images.type, pixels * images.stored_channels);

    for (size_t i = 0; images.from_bytes && i < count; i++)
        ((uint8_t *)x.host)[i] = (uint8_t)draw_u64();
    mirror_upload(&x);
    for (uint32_t c = 0; c < KERNEL_IMAGE_CHANNELS; c++) {
        images.mean[c] = draw_below(3) ? draw() : 0.0F;
        images.std[c] = draw_below(3) ? 1.5F + draw() : 1.0F;
    }
    kernel_images_ref(&images, x.host, y.host);
    RUN(images, &images, x.device, y.device);
    mirror_compare(&y, "y");
    mirror_compare(&x, "x");
    mirror_free(&x);
    mirror_free(&y);
}

TEST(images)
{
    static const uint32_t channels[][2] = {{1, 1}, {1, 3}, {3, 3}, {2, 2}, {4, 4}};
    static const uint32_t sides[][3] = {{1, 1, 1}, {2, 28, 28}, {3, 7, 5}, {2, 33, 17}};

    mirror_need_device();
    for (size_t c = 0; c < sizeof channels / sizeof channels[0]; c++)
        for (size_t s = 0; s < sizeof sides / sizeof sides[0]; s++)
            for (int form = 0; form < 8; form++)
                ALL_TYPES(type)
    images_once((struct kernel_images){.images = sides[s][0],
                                       .height = sides[s][1],
                                       .width = sides[s][2],
                                       .in_channels = channels[c][0],
                                       .out_channels = channels[c][1],
                                       .from_bytes = form % 2 != 0,
                                       .stored_channels = form / 4 != 0 ? 8 : 4,
                                       .is_planar = form / 2 % 2 != 0,
                                       .type = type});
}

/* Few different values, so that windows have several equal ones. */
static void max_pool_once(const struct kernel_pool *pool)
{
    const size_t in = (size_t)pool->images * pool->height * pool->width * pool->channels;
    const size_t out = (size_t)pool->images * pool->out_height * pool->out_width * pool->channels;
    struct mirror x = values_of(pool->type, in, 1.0F), y = poison_of(pool->type, out);
    struct mirror best = mirror_new(out, 0), dy = values_of(pool->type, out, 3.0F);
    struct mirror dx = poison_of(pool->type, in);

    kernel_max_pool_ref(pool, x.host, y.host, NULL);
    RUN(max_pool, pool, x.device, y.device, (uint8_t *)NULL);
    mirror_compare(&y, "y, without places");
    for (size_t i = 0; i < in; i++)
        if (pool->type == KERNEL_F32)
            ((float *)x.host)[i] = (float)(int32_t)draw_below(4) - 2.0F;
        else
            ((uint16_t *)x.host)[i] = (uint16_t)(draw_below(4) << 12);
    mirror_upload(&x);
    kernel_max_pool_ref(pool, x.host, y.host, best.host);
    RUN(max_pool, pool, x.device, y.device, best.device);
    mirror_compare(&y, "y");
    mirror_compare(&best, "best");
    kernel_max_pool_backward_ref(pool, dy.host, best.host, dx.host);
    RUN(max_pool_backward, pool, dy.device, best.device, dx.device);
    mirror_compare(&dx, "dx");
    mirror_free(&x);
    mirror_free(&y);
    mirror_free(&best);
    mirror_free(&dy);
    mirror_free(&dx);
}

TEST(max_pools)
{
    /* kernel, stride, pad: of ResNet, of the ConvNet, overlapping, with gaps, one */
    static const uint32_t windows[][3] = {{3, 2, 1}, {2, 2, 0}, {3, 1, 1},
                                          {2, 3, 1}, {5, 2, 2}, {1, 1, 0}};
    static const uint32_t sides[][4] = {
        {2, 8, 8, 8}, {1, 5, 7, 12}, {3, 9, 6, 24}, {2, 13, 13, 64}};

    mirror_need_device();
    for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++)
        for (size_t s = 0; s < sizeof sides / sizeof sides[0]; s++)
            ALL_TYPES(type)
            {
                struct kernel_pool pool = {.images = sides[s][0],
                                           .height = sides[s][1],
                                           .width = sides[s][2],
                                           .channels = sides[s][3],
                                           .kernel = windows[w][0],
                                           .stride = windows[w][1],
                                           .pad = windows[w][2],
                                           .type = type};

                pool.out_height = (pool.height + 2 * pool.pad - pool.kernel) / pool.stride + 1;
                pool.out_width = (pool.width + 2 * pool.pad - pool.kernel) / pool.stride + 1;
                max_pool_once(&pool);
            }
}

TEST(avg_pools)
{
    static const uint32_t sides[][3] = {
        {1, 1, 4}, {2, 49, 64}, {3, 17, 12}, {5, 64, 8}, {2, 9, 1000}};

    mirror_need_device();
    for (size_t s = 0; s < sizeof sides / sizeof sides[0]; s++)
        ALL_TYPES(type)
        {
            const uint32_t n = sides[s][0], pixels = sides[s][1], channels = sides[s][2];
            struct mirror x = values_of(type, (size_t)n * pixels * channels, 2.0F);
            struct mirror y = poison_of(type, (size_t)n * channels);
            struct mirror dx = poison_of(type, (size_t)n * pixels * channels);

            kernel_avg_pool_ref(x.host, y.host, type, n, pixels, channels);
            RUN(avg_pool, x.device, y.device, type, n, pixels, channels);
            mirror_compare(&y, "y");
            kernel_avg_pool_backward_ref(y.host, dx.host, type, n, pixels, channels);
            RUN(avg_pool_backward, y.device, dx.device, type, n, pixels, channels);
            mirror_compare(&dx, "dx");
            mirror_free(&x);
            mirror_free(&y);
            mirror_free(&dx);
        }
}

struct loss_case {
    struct mirror logits, labels, scale, grads, rows, result;
};

/* Some labels out of range; both widths. */
static void draw_labels(const struct kernel_loss *loss, struct mirror *labels)
{
    *labels = mirror_new((size_t)loss->rows * (loss->labels_are_i64 ? 8 : 4), 0);
    for (uint32_t i = 0; i < loss->rows; i++) {
        const int64_t label = draw_below(20) == 0 ? (int64_t)loss->classes -
                                                        (int64_t)draw_below(2) * 2 * loss->classes
                                                  : draw_below(loss->classes);

        if (loss->labels_are_i64)
            ((int64_t *)labels->host)[i] = label;
        else
            ((int32_t *)labels->host)[i] = (int32_t)label;
    }
    mirror_upload(labels);
}

/* f32 gradients of a bad label are NaNs, whose bits may differ: compared elsewhere. */
static void loss_once(const struct kernel_loss *loss, bool in_place)
{
    const size_t count = (size_t)loss->rows * loss->stride;
    const float scale = (float)(1U << draw_below(17));
    struct loss_case c = {.logits = values_of(loss->type, count, 8.0F),
                          .scale = mirror_of(&scale, sizeof scale),
                          .grads = poison_of(loss->grad_type, count),
                          .rows = mirror_zeros(loss->rows * sizeof(struct kernel_loss_row)),
                          .result = mirror_new(sizeof(struct kernel_loss_result), 0)};
    struct mirror *grads = in_place ? &c.logits : &c.grads;

    draw_labels(loss, &c.labels);
    kernel_loss_ref(loss, c.logits.host, c.labels.host, c.scale.host, NULL, c.rows.host,
                    c.result.host);
    RUN(loss, loss, c.logits.device, c.labels.device, c.scale.device, NULL, c.rows.device,
        c.result.device);
    mirror_compare(&c.rows, "rows, evaluation");
    mirror_compare(&c.result, "result, evaluation");
    kernel_loss_ref(loss, c.logits.host, c.labels.host, c.scale.host, grads->host, c.rows.host,
                    c.result.host);
    RUN(loss, loss, c.logits.device, c.labels.device, c.scale.device, grads->device, c.rows.device,
        c.result.device);
    mirror_compare(&c.rows, "rows");
    mirror_compare(&c.result, "result");
    mirror_compare(grads, "grads");
    mirror_compare(&c.logits, "logits");
    mirror_free(&c.logits);
    mirror_free(&c.labels);
    mirror_free(&c.scale);
    mirror_free(&c.grads);
    mirror_free(&c.rows);
    mirror_free(&c.result);
}

TEST(loss)
{
    static const uint32_t shapes[][3] = {{1, 1, 1},     {3, 2, 8},     {7, 10, 16},
                                         {100, 10, 10}, {5, 257, 260}, {3, 1000, 1000}};

    mirror_need_device();
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        ALL_TYPES(type)
    ALL_TYPES(grad_type)
    loss_once(&(struct kernel_loss){.rows = shapes[s][0],
                                    .classes = shapes[s][1],
                                    .stride = shapes[s][2],
                                    .type = type,
                                    .grad_type = grad_type,
                                    .labels_are_i64 = draw_below(2),
                                    .smoothing = draw_below(2) ? 0.1F : 0.0F,
                                    .grad_scale = draw_below(2) ? 1.0F : 0.25F},
              type == grad_type && draw_below(2));
}

TEST(columns)
{
    static const uint32_t shapes[][2] = {{0, 8},   {1, 4},     {33, 12},    {100, 64},
                                         {513, 8}, {3000, 40}, {20000, 16}, {70, 1000}};

    mirror_need_device();
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        ALL_TYPES(type)
    ALL_TYPES(sums_type)
    {
        const uint32_t rows = shapes[s][0], channels = shapes[s][1];
        struct mirror x = values_of(type, (size_t)rows * channels, 2.0F);
        struct mirror sums = poison_of(sums_type, channels);
        struct mirror scratch = mirror_new(kernel_columns_bytes(type, rows, channels, 1), 0);
        struct mirror counters = mirror_zeros(KERNEL_COLUMNS_COUNTERS * sizeof(uint32_t));

        kernel_columns_ref(x.host, type, rows, channels, sums.host, sums_type);
        RUN(columns, x.device, type, rows, channels, sums.device, sums_type, scratch.device,
            counters.device);
        mirror_compare(&sums, "sums");
        mirror_compare(&counters, "counters");
        mirror_compare(&x, "x");
        mirror_free(&x);
        mirror_free(&sums);
        mirror_free(&scratch);
        mirror_free(&counters);
    }
}
