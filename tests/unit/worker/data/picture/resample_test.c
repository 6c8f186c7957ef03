/* Resampling: every instruction set gives the bytes of the plain loops, and the plain loops those of
 * the formula in double precision. */
#include "worker/data/picture/resample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/draw.h"
#include "tests/lib/test.h"
#include "worker/data/picture/kernels.h"
#include "worker/data/picture/kernels_jpeg.h"

enum { IN = 300, OUT = 260 };

static uint8_t pixels[IN * (IN * 3 + RESAMPLE_ROW_PAD)];
static uint8_t out[OUT * OUT * 3 + 1];

static void fill(struct draw *draw)
{
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(draw_u64(draw) >> 7);
}

static void run(struct resample *resample, const struct resample_want *x,
                const struct resample_want *y)
{
    size_t row_bytes;
    struct err err = {.text = ""};

    CHECK_EQ(resample_begin(resample, x, y, out, &err), STATUS_OK);
    row_bytes = (size_t)x->in_count * 3;
    out[(size_t)x->count * y->count * 3] = 0xa5;
    for (uint32_t row = resample->y.in_begin; row < resample->y.in_end; row++)
        resample_row(resample, pixels + row * row_bytes + (size_t)resample->x.in_begin * 3);
    CHECK(resample_is_done(resample));
    CHECK_EQ(out[(size_t)x->count * y->count * 3], 0xa5);
}

/* The triangle filter at one output along one axis, in double precision. */
static double value(const struct resample_want *want, uint32_t i, const uint8_t *in, size_t stride)
{
    double scale = (want->end - want->begin) / (double)want->out_count;
    double support = scale < 1 ? 1 : scale;
    double middle = want->begin + ((double)(want->first + i) + 0.5) * scale;
    double sum = 0;
    double weights = 0;

    for (uint32_t p = 0; p < want->in_count; p++) {
        double weight = 1 - fabs(p + 0.5 - middle) / support;

        if (weight > 0) {
            sum += weight * in[p * stride];
            weights += weight;
        }
    }
    return sum / weights;
}

/* Each axis alone, the other being left as it is. */
TEST(one_axis_is_the_formula)
{
    struct draw draw = draw_begin(3, 0);
    struct resample resample = {0};

    fill(&draw);
    for (uint32_t trial = 0; trial < 60; trial++) {
        uint32_t in = 1 + draw_below(&draw, 90);
        uint64_t scaled = 1 + draw_below(&draw, 150);
        uint32_t count = 1 + draw_below(&draw, (uint32_t)scaled);
        uint64_t first = draw_below(&draw, (uint32_t)scaled - count + 1);
        struct resample_want along = {
            .in_count = in, .end = in, .out_count = scaled, .first = first, .count = count};
        struct resample_want still = {.in_count = 5, .end = 5, .out_count = 5, .count = 5};

        run(&resample, &along, &still);
        for (uint32_t y = 0; y < 5; y++)
            for (uint32_t i = 0; i < count * 3; i++)
                CHECK_NEAR(out[y * count * 3 + i],
                           value(&along, i / 3, pixels + (size_t)y * in * 3 + i % 3, 3), 0.501);
        run(&resample, &still, &along);
        for (uint32_t y = 0; y < count; y++)
            for (uint32_t i = 0; i < 15; i++)
                CHECK_NEAR(out[y * 15 + i], value(&along, y, pixels + i, 15), 0.501);
    }
    resample_close(&resample);
}

TEST(a_flip_is_the_mirror)
{
    static uint8_t straight[OUT * OUT * 3];
    struct draw draw = draw_begin(4, 0);
    struct resample resample = {0};
    struct resample_want x = {.in_count = 70, .end = 70, .out_count = 50, .first = 3, .count = 40};
    struct resample_want y = {.in_count = 90, .end = 90, .out_count = 50, .count = 50};

    fill(&draw);
    run(&resample, &x, &y);
    memcpy(straight, out, sizeof straight);
    x.is_flipped = true;
    run(&resample, &x, &y);
    for (uint32_t row = 0; row < 50; row++)
        for (uint32_t i = 0; i < 40; i++)
            CHECK_BYTES(out + (row * 40 + i) * 3, straight + (row * 40 + 39 - i) * 3, 3);
    resample_close(&resample);
}

static void check_kernels(const struct picture_kernels *kernels)
{
    static uint8_t plain[OUT * 3 + 64];
    static uint8_t fast[OUT * 3 + 64];
    struct draw draw = draw_begin(5, 0);
    struct resample resample = {0};
    struct err err = {.text = ""};

    fill(&draw);
    for (uint32_t trial = 0; trial < 300; trial++) {
        uint32_t in = 1 + draw_below(&draw, IN);
        uint32_t count = 1 + draw_below(&draw, OUT);
        struct resample_want want = {.in_count = in,
                                     .begin = trial % 3 == 0 ? 0.25 : 0,
                                     .end = in,
                                     .out_count = count,
                                     .count = count,
                                     .is_flipped = trial % 2 == 0};
        struct resample_want one = {.in_count = in, .end = in, .out_count = 1, .count = 1};
        const uint8_t *rows[IN];

        if (trial % 10 == 1)
            memset(pixels, 255, sizeof pixels);
        CHECK_EQ(resample_begin(&resample, &want, &one, out, &err), STATUS_OK);
        picture_kernels_generic.resample_x(&resample.x, pixels, plain);
        kernels->resample_x(&resample.x, pixels, fast);
        CHECK_BYTES(fast, plain, (size_t)count * 3);
        for (uint32_t i = 0; i < resample.y.taps[0]; i++)
            rows[i] = pixels + (size_t)i * IN * 3;
        fast[count] = plain[count] = 0x5a;
        picture_kernels_generic.resample_y(rows, resample.y.weights, resample.y.taps[0], count,
                                           plain);
        kernels->resample_y(rows, resample.y.weights, resample.y.taps[0], count, fast);
        CHECK_BYTES(fast, plain, (size_t)count + 1);
        if (trial % 10 == 1)
            fill(&draw);
    }
    resample_close(&resample);
}

static void check_idct(const struct jpeg_kernels *kernels, struct draw *draw)
{
    uint32_t unusual_count = 0;

    for (uint32_t trial = 0; trial < 2000; trial++) {
        _Alignas(64) int16_t block[64] = {0};
        uint8_t plain[64];
        uint8_t fast[64];
        bool is_usual;
        int32_t last = trial % 4 == 0 ? 0 : 63;
        uint32_t range = trial % 5 == 0 ? 65536 : 400; /* what no encoder writes, too */

        for (int i = 0; i <= last; i++)
            if (draw_below(draw, 3) == 0)
                block[i] = (int16_t)((int32_t)draw_below(draw, range) - (int32_t)range / 2);
        is_usual = picture_kernels_generic_jpeg.idct(block, last, plain, 8);
        CHECK_EQ(kernels->idct(block, last, fast, 8), is_usual);
        if (!is_usual) {
            unusual_count++;
            continue;
        }
        CHECK_BYTES(fast, plain, 64);
        if (last == 0) { /* the short way is the long one */
            CHECK(kernels->idct(block, 63, fast, 8));
            CHECK_BYTES(fast, plain, 64);
        }
    }
    CHECK(unusual_count > 200 && unusual_count < 1200);
}

static void check_colours(const struct jpeg_kernels *kernels, struct draw *draw)
{
    static uint8_t planes[3][320];
    static uint8_t plain[3 * 320];
    static uint8_t fast[3 * 320];
    uint16_t sums[320];

    for (uint32_t trial = 0; trial < 300; trial++) {
        struct jpeg_widen rows = {.near = planes[0] + 1,
                                  .other = planes[1] + 1,
                                  .is_two_rows = trial % 2 == 0,
                                  .has_left = trial % 3 != 0,
                                  .has_right = trial % 5 != 0,
                                  .count = 1 + draw_below(draw, 140)};
        uint32_t n = 1 + draw_below(draw, 280);

        for (size_t i = 0; i < sizeof planes; i++)
            planes[i / 320][i % 320] =
                (uint8_t)(trial % 7 == 0 ? (draw_u64(draw) & 1) * 255 : draw_u64(draw) >> 9);
        picture_kernels_generic_jpeg.widen(&rows, sums, plain);
        kernels->widen(&rows, sums, fast);
        CHECK_BYTES(fast, plain, (size_t)2 * rows.count);
        picture_kernels_generic_jpeg.to_rgb(planes[0], planes[1], planes[2], n, plain);
        kernels->to_rgb(planes[0], planes[1], planes[2], n, fast);
        CHECK_BYTES(fast, plain, (size_t)3 * n);
    }
}

static void check_jpeg(const struct jpeg_kernels *kernels)
{
    struct draw draw = draw_begin(6, 0);

    check_idct(kernels, &draw);
    check_colours(kernels, &draw);
}

TEST(kernels_of_this_processor)
{
    (void)printf("# %s\n", picture_kernels()->name);
    check_kernels(picture_kernels());
    check_jpeg(jpeg_kernels());
}

#if defined(__x86_64__)
TEST(kernels_avx2)
{
    if (!__builtin_cpu_supports("avx2"))
        SKIP("this processor has no AVX2");
    check_kernels(&picture_kernels_avx2);
    check_jpeg(&picture_kernels_avx2_jpeg);
}
#endif

TEST_MAIN
