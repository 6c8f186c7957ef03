/* kernels_step.h on a device. */
#include "kernels/kernels_step.h"

#include <string.h>

#include "tests/gpu/twins.h"

#define SPANS 4

static const size_t counts[] = {0, 1, 5, 8, 33, 1000, 4099, 30011};

struct clip_case {
    struct twins values[SPANS], scale, found, scratch;
    struct kernel_span on_host[SPANS], on_device[SPANS];
};

static void case_new(struct clip_case *c, float scale, uint32_t found)
{
    for (uint32_t s = 0; s < SPANS; s++) {
        const enum kernel_type type = (enum kernel_type)draw_below(3);
        const size_t count = counts[draw_below(sizeof counts / sizeof counts[0])];

        c->values[s] =
            twins_random(type, count, draw_below(2) * draw_below(8) * type_bytes(type), scale);
        c->on_host[s] = (struct kernel_span){c->values[s].host, count, type};
        c->on_device[s] = (struct kernel_span){c->values[s].device, count, type};
    }
    c->scale = twins_of(&scale, sizeof scale);
    c->found = twins_of(&found, sizeof found);
    c->scratch = twins_zeros(KERNEL_CLIP_SCRATCH_BYTES);
}

static void case_run(struct clip_case *c, const struct kernel_clip *clip)
{
    kernel_clip_ref(c->on_host, SPANS, clip, c->scale.host, c->found.host, c->scratch.host);
    RUN(clip, c->on_device, SPANS, clip, c->scale.device, c->found.device, c->scratch.device);
    for (uint32_t s = 0; s < SPANS; s++)
        twins_compare(&c->values[s], "values");
    twins_compare(&c->scratch, "scratch");
}

static void case_free(struct clip_case *c)
{
    for (uint32_t s = 0; s < SPANS; s++)
        twins_free(&c->values[s]);
    twins_free(&c->scale);
    twins_free(&c->found);
    twins_free(&c->scratch);
}

TEST(clip_every_way)
{
    static const struct kernel_clip clips[] = {
        {0.0F, 0.0F}, {0.5F, 0.0F}, {0.0F, 3.0F}, {0.0F, 1e6F}, {0.7F, 2.0F}};

    twins_need_device();
    for (size_t k = 0; k < sizeof clips / sizeof clips[0]; k++)
        for (int round = 0; round < 3; round++) {
            struct clip_case c;

            case_new(&c, (float)(1U << draw_below(12)), round == 2);
            case_run(&c, &clips[k]);
            case_free(&c);
        }
}

TEST(scaler_steps)
{
    struct kernel_scaler start = {
        .scale = 65536.0F, .min = 4096.0F, .max = 131072.0F, .window = 3, .is_dynamic = 1};
    struct twins scaler;

    twins_need_device();
    scaler = twins_of(&start, sizeof start);
    for (int step = 0; step < 60; step++) {
        ((struct kernel_scaler *)scaler.host)->found_inf = draw_below(3) == 0;
        twins_upload(&scaler);
        kernel_scaler_step_ref(scaler.host, step % 2);
        RUN(scaler_step, scaler.device, step % 2);
        twins_compare(&scaler, "scaler");
    }
    twins_free(&scaler);
}
