/* kernels/gradients.h on a device. */
#include "kernels/gradients.h"

#include "tests/gpu/mirror.h"

#define SPANS 4

static const size_t counts[] = {0, 1, 5, 8, 33, 1000, 4099, 30011};

struct clip_case {
    struct mirror values[SPANS], scale, found, scratch;
    struct kernel_span on_host[SPANS], on_device[SPANS];
};

static void case_new(struct clip_case *c, float scale, uint32_t found)
{
    for (uint32_t s = 0; s < SPANS; s++) {
        const enum kernel_type type = (enum kernel_type)draw_below(3);
        const size_t count = counts[draw_below(sizeof counts / sizeof counts[0])];

        c->values[s] =
            mirror_random(type, count, draw_below(2) * draw_below(8) * type_bytes(type), scale);
        c->on_host[s] = (struct kernel_span){c->values[s].host, count, type};
        c->on_device[s] = (struct kernel_span){c->values[s].device, count, type};
    }
    c->scale = mirror_of(&scale, sizeof scale);
    c->found = mirror_of(&found, sizeof found);
    c->scratch = mirror_zeros(KERNEL_CLIP_SCRATCH_BYTES);
}

static void case_run(struct clip_case *c, const struct kernel_clip *clip)
{
    kernel_clip_ref(c->on_host, SPANS, clip, c->scale.host, c->found.host, c->scratch.host);
    RUN(clip, c->on_device, SPANS, clip, c->scale.device, c->found.device, c->scratch.device);
    for (uint32_t s = 0; s < SPANS; s++)
        mirror_compare(&c->values[s], "values");
    mirror_compare(&c->scratch, "scratch");
}

static void case_free(struct clip_case *c)
{
    for (uint32_t s = 0; s < SPANS; s++)
        mirror_free(&c->values[s]);
    mirror_free(&c->scale);
    mirror_free(&c->found);
    mirror_free(&c->scratch);
}

TEST(clip_every_way)
{
    static const struct kernel_clip clips[] = {
        {0.0F, 0.0F}, {0.5F, 0.0F}, {0.0F, 3.0F}, {0.0F, 1e6F}, {0.7F, 2.0F}};

    mirror_need_device();
    for (size_t k = 0; k < sizeof clips / sizeof clips[0]; k++)
        for (int round = 0; round < 3; round++) {
            struct clip_case c;

            case_new(&c, (float)(1U << draw_below(12)), round == 2);
            case_run(&c, &clips[k]);
            case_free(&c);
        }
}

/* A norm of 5 under limits of 6 and of 5.5: the factor is above 1 and nothing changes; then 4. */
TEST(clip_leaves_what_is_within)
{
    static const float limits[] = {6.0F, 5.5F, 4.0F}, values[2] = {3.0F, -4.0F}, scale = 1.0F;
    struct mirror mirror, scratch, one;

    mirror_need_device();
    mirror = mirror_of(values, sizeof values);
    one = mirror_of(&scale, sizeof scale);
    scratch = mirror_zeros(KERNEL_CLIP_SCRATCH_BYTES);
    for (size_t k = 0; k < 3; k++) {
        const struct kernel_clip clip = {0.0F, limits[k]};
        const struct kernel_span on_host = {mirror.host, 2, KERNEL_F32};
        const struct kernel_span on_device = {mirror.device, 2, KERNEL_F32};

        kernel_clip_ref(&on_host, 1, &clip, one.host, NULL, scratch.host);
        RUN(clip, &on_device, 1, &clip, one.device, (uint32_t *)NULL, scratch.device);
        mirror_compare(&mirror, "values");
        CHECK(k == 2 || ((float *)mirror.host)[0] == values[0]);
    }
    CHECK_NEAR(((float *)mirror.host)[1], -3.2, 1e-5);
    mirror_free(&mirror);
    mirror_free(&scratch);
    mirror_free(&one);
}

TEST(scaler_steps)
{
    struct kernel_scaler start = {
        .scale = 65536.0F, .min = 4096.0F, .max = 131072.0F, .window = 3, .is_dynamic = 1};
    struct mirror scaler;

    mirror_need_device();
    scaler = mirror_of(&start, sizeof start);
    for (int step = 0; step < 60; step++) {
        ((struct kernel_scaler *)scaler.host)->found_inf = draw_below(3) == 0;
        mirror_upload(&scaler);
        kernel_scaler_step_ref(scaler.host, step % 2);
        RUN(scaler_step, scaler.device, step % 2);
        mirror_compare(&scaler, "scaler");
    }
    mirror_free(&scaler);
}
