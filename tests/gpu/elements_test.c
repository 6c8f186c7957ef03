/* kernels/elements.h on a device. */
#include "kernels/elements.h"

#include "tests/gpu/mirror.h"

/* Around the pack, the warp, the block's pass, and more than the largest grid's one pass of
 * f32. */
static const size_t counts[] = {0,  1,  3,   4,    5,    7,    8,    9,
                                31, 33, 255, 1023, 2048, 2049, 8193, 100003};
#define COUNT_KINDS (sizeof counts / sizeof counts[0])

/* Off a 16-byte address: 0 half of the time. */
static size_t skew_of(enum kernel_type type)
{
    return draw_below(2) * draw_below(8) * type_bytes(type);
}

static struct mirror random_of(enum kernel_type type, size_t count)
{
    return mirror_random(type, count, skew_of(type), 100.0F);
}

static struct mirror poison_of(enum kernel_type type, size_t count)
{
    return mirror_new(count * type_bytes(type), skew_of(type));
}

#define ALL_TYPES(type) for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++)

TEST(cast)
{
    mirror_need_device();
    for (size_t k = 0; k < COUNT_KINDS; k++)
        ALL_TYPES(to)
    ALL_TYPES(from)
    {
        struct mirror x = random_of(from, counts[k]), y = poison_of(to, counts[k]);

        kernel_cast_ref(y.host, to, x.host, from, counts[k]);
        RUN(cast, y.device, to, x.device, from, counts[k]);
        mirror_compare(&y, "y");
        mirror_compare(&x, "x");
        mirror_free(&x);
        mirror_free(&y);
    }
}

TEST(scale)
{
    mirror_need_device();
    for (size_t k = 0; k < COUNT_KINDS; k++)
        ALL_TYPES(to)
    ALL_TYPES(from)
    {
        struct mirror x = random_of(from, counts[k]), y = poison_of(to, counts[k]);
        const float factor = 0.5F + draw();

        kernel_scale_ref(y.host, to, x.host, from, factor, counts[k]);
        RUN(scale, y.device, to, x.device, from, factor, counts[k]);
        mirror_compare(&y, "y");
        kernel_scale_ref(x.host, from, x.host, from, factor, counts[k]); /* in place */
        RUN(scale, x.device, from, x.device, from, factor, counts[k]);
        mirror_compare(&x, "x");
        mirror_free(&x);
        mirror_free(&y);
    }
}

TEST(add)
{
    mirror_need_device();
    for (size_t k = 0; k < COUNT_KINDS; k++)
        ALL_TYPES(type)
    for (int relu = 0; relu < 2; relu++) {
        struct mirror a = random_of(type, counts[k]), b = random_of(type, counts[k]);
        struct mirror y = poison_of(type, counts[k]);

        kernel_add_ref(y.host, a.host, b.host, type, relu, counts[k]);
        RUN(add, y.device, a.device, b.device, type, relu, counts[k]);
        mirror_compare(&y, "y");
        kernel_add_ref(a.host, a.host, b.host, type, relu, counts[k]); /* in place */
        RUN(add, a.device, a.device, b.device, type, relu, counts[k]);
        mirror_compare(&a, "a");
        mirror_compare(&b, "b");
        mirror_free(&a);
        mirror_free(&b);
        mirror_free(&y);
    }
}

TEST(accumulate)
{
    mirror_need_device();
    for (size_t k = 0; k < COUNT_KINDS; k++)
        ALL_TYPES(to)
    ALL_TYPES(from)
    {
        struct mirror x = random_of(from, counts[k]), y = random_of(to, counts[k]);
        const float scale = draw_below(2) ? 1.0F : draw();

        for (int clear = 0; clear < 2; clear++) {
            kernel_accumulate_ref(y.host, to, x.host, from, scale, clear, counts[k]);
            RUN(accumulate, y.device, to, x.device, from, scale, clear, counts[k]);
            mirror_compare(&y, "to");
            mirror_compare(&x, "from");
        }
        mirror_free(&x);
        mirror_free(&y);
    }
}

TEST(relu_both_ways)
{
    mirror_need_device();
    for (size_t k = 0; k < COUNT_KINDS; k++)
        ALL_TYPES(type)
        {
            struct mirror x = random_of(type, counts[k]), dy = random_of(type, counts[k]);
            struct mirror y = poison_of(type, counts[k]), dx = poison_of(type, counts[k]);

            kernel_relu_ref(y.host, x.host, type, counts[k]);
            RUN(relu, y.device, x.device, type, counts[k]);
            mirror_compare(&y, "y");
            kernel_relu_backward_ref(dx.host, y.host, dy.host, type, counts[k]);
            RUN(relu_backward, dx.device, y.device, dy.device, type, counts[k]);
            mirror_compare(&dx, "dx");
            kernel_relu_backward_ref(dy.host, y.host, dy.host, type, counts[k]); /* in place */
            RUN(relu_backward, dy.device, y.device, dy.device, type, counts[k]);
            mirror_compare(&dy, "dy");
            mirror_free(&x);
            mirror_free(&dy);
            mirror_free(&y);
            mirror_free(&dx);
        }
}
