/* sgd and finite on a device: odd and edge sizes, one tensor and many, aligned and not. The
 * program's other tests are in the files beside this one. */
#include <string.h>

#include "kernels/values.h"
#include "tests/gpu/mirror.h"

#define TENSORS_MAX 70

/* Sizes around the pack (4), the warp, the block's pass (1024) and the chunk (4096), and one of
 * many chunks. */
static const size_t counts[] = {0,   1,   2,    3,    4,    5,    7,    31,   32,   33,    127,
                                255, 257, 1023, 1024, 1025, 4095, 4096, 4097, 8191, 12289, 100003};

struct layout {
    size_t at[TENSORS_MAX], count[TENSORS_MAX]; /* elements */
    size_t end;
    uint32_t tensor_count;
};

/* `n` tensors of random sizes, each at a random offset from the last: aligned or not. The same for
 * all arrays. */
static void layout_draw(struct layout *layout, uint32_t n, size_t alignment)
{
    const size_t kinds = sizeof counts / sizeof counts[0];

    layout->end = 16;
    layout->tensor_count = n;
    for (uint32_t t = 0; t < n; t++) {
        size_t kind = n == 1 ? draw_u64() % kinds : draw_u64() % (kinds - 1);

        layout->at[t] = (layout->end + draw_u64() % 9 + alignment - 1) / alignment * alignment;
        layout->count[t] = counts[kind];
        layout->end = layout->at[t] + layout->count[t];
    }
    layout->end += 16;
}

static void fill(const struct mirror *mirror, enum kernel_type type, const struct layout *layout,
                 float scale)
{
    for (uint32_t t = 0; t < layout->tensor_count; t++)
        for (size_t i = layout->at[t]; i < layout->at[t] + layout->count[t]; i++)
            values_set(mirror->host, type, i, draw() * scale);
    mirror_upload(mirror);
}

struct sgd_case {
    struct mirror grad, master, momentum, half, scale, found;
    struct layout layout;
    struct kernel_sgd sgd;
};

static void sgd_case_new(struct sgd_case *c)
{
    float scale = (float)(1U << draw_u64() % 17) * (draw_u64() % 2 ? 1.0F : 1.37F);

    c->grad = mirror_new(c->layout.end * type_bytes(c->sgd.grad_type), 0);
    c->master = mirror_new(c->layout.end * 4, 0);
    c->momentum = mirror_new(c->layout.end * 4, 0);
    c->half = mirror_new(c->layout.end * 2, 0);
    c->scale = mirror_new(4, 0);
    c->found = mirror_new(4, 0);
    memcpy(c->scale.host, &scale, 4);
    memset(c->found.host, 0, 4);
    mirror_upload(&c->scale);
    mirror_upload(&c->found);
    fill(&c->grad, c->sgd.grad_type, &c->layout, 100.0F);
    fill(&c->master, KERNEL_F32, &c->layout, 1.0F);
}

static void sgd_case_free(struct sgd_case *c)
{
    mirror_free(&c->grad);
    mirror_free(&c->master);
    mirror_free(&c->momentum);
    mirror_free(&c->half);
    mirror_free(&c->scale);
    mirror_free(&c->found);
}

static void *offset(void *base, size_t elements, size_t bytes_each)
{
    return (uint8_t *)base + elements * bytes_each;
}

static void sgd_table(const struct sgd_case *c, bool on_device, struct kernel_sgd_tensor *tensors)
{
    bool has_momentum = c->sgd.momentum != 0.0F;

    for (uint32_t t = 0; t < c->layout.tensor_count; t++) {
        size_t at = c->layout.at[t];
        void *momentum = on_device ? c->momentum.device : c->momentum.host;
        void *half = on_device ? c->half.device : c->half.host;

        tensors[t].grad =
            offset(on_device ? c->grad.device : c->grad.host, at, type_bytes(c->sgd.grad_type));
        tensors[t].master = offset(on_device ? c->master.device : c->master.host, at, 4);
        tensors[t].momentum = has_momentum ? offset(momentum, at, 4) : NULL;
        tensors[t].half = t % 5 == 4 ? NULL : offset(half, at, 2); /* some parameters have none */
        tensors[t].count = c->layout.count[t];
    }
}

/* With rates on the device, and others in the rule that must not count. */
static void run_with_rates(const struct sgd_case *c, const struct kernel_sgd_tensor *on_device)
{
    struct kernel_sgd other = c->sgd;
    const struct kernel_rates values = {
        .lr = c->sgd.lr, .momentum = c->sgd.momentum, .is_first_step = c->sgd.is_first_step};
    struct mirror rates = mirror_rates(&values);

    other.lr = 77.0F;
    other.momentum = 0.77F;
    other.is_first_step = !other.is_first_step;
    RUN(sgd, on_device, c->layout.tensor_count, &other, rates.device, c->scale.device,
        c->found.device);
    mirror_free(&rates);
}

/* Three steps in a row: the first writes the momentum, the next ones read it. */
static void sgd_case_run(struct sgd_case *c)
{
    struct kernel_sgd_tensor on_host[TENSORS_MAX], on_device[TENSORS_MAX];
    const uint32_t n = c->layout.tensor_count;

    sgd_table(c, false, on_host);
    sgd_table(c, true, on_device);
    for (int step = 0; step < 3; step++) {
        c->sgd.is_first_step = step == 0;
        kernel_sgd_ref(on_host, n, &c->sgd, c->scale.host, c->found.host);
        if (draw_u64() % 2)
            run_with_rates(c, on_device);
        else
            RUN(sgd, on_device, n, &c->sgd, NULL, c->scale.device, c->found.device);
        mirror_compare(&c->master, "master");
        mirror_compare(&c->momentum, "momentum");
        mirror_compare(&c->half, "half");
        mirror_compare(&c->grad, "grad");
    }
}

static const struct kernel_sgd rules[] = {
    {.lr = 0.1F},
    {.lr = 0.05F, .weight_decay = 0.01F},
    {.lr = 0.1F, .momentum = 0.9F, .dampening = 0.3F, .weight_decay = 1e-2F},
    {.lr = 0.01F, .momentum = 0.9F, .weight_decay = 5e-3F, .nesterov = true},
};

static void sgd_all_types(const struct kernel_sgd *rule, const struct layout *layout)
{
    for (int grad_type = KERNEL_F32; grad_type <= KERNEL_BF16; grad_type++)
        for (int half_type = KERNEL_F16; half_type <= KERNEL_BF16; half_type++) {
            struct sgd_case c = {.layout = *layout, .sgd = *rule};

            c.sgd.grad_type = (enum kernel_type)grad_type;
            c.sgd.half_type = (enum kernel_type)half_type;
            sgd_case_new(&c);
            sgd_case_run(&c);
            sgd_case_free(&c);
        }
}

TEST(sgd_every_size)
{
    struct layout layout = {.tensor_count = 1};

    mirror_need_device();
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        layout.at[0] = 16 + draw_u64() % 5; /* aligned one time in five or so */
        layout.count[0] = counts[k];
        layout.end = layout.at[0] + layout.count[0] + 16;
        for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++)
            sgd_all_types(&rules[r], &layout);
    }
}

TEST(sgd_many_tensors)
{
    struct layout layout;

    mirror_need_device();
    for (int aligned = 0; aligned < 2; aligned++) {
        layout_draw(&layout, TENSORS_MAX, aligned ? 8 : 1); /* over 64: two launches */
        for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++)
            sgd_all_types(&rules[r], &layout);
    }
}

TEST(sgd_overflow_writes_nothing)
{
    struct sgd_case c = {.sgd = rules[3]};

    mirror_need_device();
    c.sgd.half_type = KERNEL_F16;
    layout_draw(&c.layout, 5, 1);
    sgd_case_new(&c);
    *(uint32_t *)c.found.host = 1;
    mirror_upload(&c.found);
    sgd_case_run(&c); /* the reference writes nothing either: everything is as it was uploaded */
    sgd_case_free(&c);
}

/* 1, and one bad value at a random place; 0, and bad values in the guards alone. */
static void finite_once(enum kernel_type type, const struct layout *layout, bool is_bad)
{
    struct kernel_values on_device[TENSORS_MAX], on_host[TENSORS_MAX];
    const size_t bytes = type_bytes(type);
    struct mirror values = mirror_new(layout->end * bytes, 0), found = mirror_new(4, 0);
    uint32_t t = (uint32_t)(draw_u64() % layout->tensor_count);

    memset(values.host, 0xff, values.byte_count); /* NaN in all three types */
    fill(&values, type, layout, 100.0F);
    if (is_bad && layout->count[t] > 0) {
        size_t i = layout->at[t] + draw_u64() % layout->count[t];

        memset((uint8_t *)values.host + i * bytes, 0xff, bytes);
        mirror_upload(&values);
    }
    memset(found.host, 0, 4);
    mirror_upload(&found);
    for (t = 0; t < layout->tensor_count; t++) {
        on_host[t] =
            (struct kernel_values){offset(values.host, layout->at[t], bytes), layout->count[t]};
        on_device[t] =
            (struct kernel_values){offset(values.device, layout->at[t], bytes), layout->count[t]};
    }
    kernel_finite_ref(on_host, layout->tensor_count, type, found.host);
    RUN(finite, on_device, layout->tensor_count, type, found.device);
    mirror_compare(&found, "found");
    mirror_compare(&values, "values");
    mirror_free(&values);
    mirror_free(&found);
}

TEST(finite_everywhere)
{
    struct layout layout;

    mirror_need_device();
    for (int round = 0; round < 60; round++)
        for (int type = KERNEL_F32; type <= KERNEL_BF16; type++) {
            layout_draw(&layout, round % 3 == 0 ? 1 : (uint32_t)round + 2, round % 2 ? 8 : 1);
            finite_once((enum kernel_type)type, &layout, false);
            finite_once((enum kernel_type)type, &layout, true);
        }
}

TEST_MAIN
