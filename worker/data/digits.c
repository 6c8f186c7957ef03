/* Draws the built-in digits. See digits.h. */
#include "worker/data/digits.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/draw.h"

enum {
    SIDE = DIGITS_SIDE,
    POINTS_MAX = 12,
    STROKES_MAX = 3,
    FORMS_MAX = 3,
    PIECES = 5, /* straight lines that approximate a spline between two points */
};

/* Seeds of the two sets: any two numbers that differ. */
static const uint64_t TRAIN_SEED = 0x6464702d74726e00ULL, VALIDATION_SEED = 0x6464702d76616c00ULL;

struct point {
    float x, y;
};

struct stroke {
    uint32_t point_count;
    struct point points[POINTS_MAX];
};

struct form {
    uint32_t stroke_count;
    struct stroke strokes[STROKES_MAX];
};

/* Ways to write each digit, in a box from (0, 0), top left, to (1, 1): {forms, {{strokes, {{points,
 * {{x, y}, ...}}, ...}}, ...}}. One stroke a line. */
/* clang-format off */
static const struct {
    uint32_t form_count;
    struct form forms[FORMS_MAX];
} glyphs[DIGITS_CLASSES] = {
    [0] = {1, {
        {1, {{9, {{.5F, 0}, {.15F, .2F}, {.05F, .5F}, {.15F, .8F}, {.5F, 1}, {.85F, .8F},
                  {.95F, .5F}, {.85F, .2F}, {.5F, 0}}}}},
    }},
    [1] = {3, {
        {1, {{2, {{.5F, 0}, {.5F, 1}}}}},
        {2, {{2, {{.25F, .22F}, {.5F, 0}}},
             {2, {{.5F, 0}, {.5F, 1}}}}},
        {3, {{2, {{.25F, .22F}, {.5F, 0}}},
             {2, {{.5F, 0}, {.5F, 1}}},
             {2, {{.25F, 1}, {.75F, 1}}}}},
    }},
    [2] = {2, {
        {2, {{7, {{.1F, .25F}, {.25F, .05F}, {.55F, 0}, {.85F, .15F}, {.85F, .4F}, {.5F, .7F},
                  {.1F, 1}}},
             {2, {{.1F, 1}, {.9F, 1}}}}},
        {1, {{11, {{.12F, .22F}, {.3F, .02F}, {.65F, .02F}, {.85F, .25F}, {.65F, .6F},
                  {.25F, .95F}, {.08F, .92F}, {.15F, .78F}, {.4F, .85F}, {.65F, 1},
                  {.95F, .92F}}}}},
    }},
    [3] = {2, {
        {2, {{5, {{.1F, .1F}, {.5F, 0}, {.85F, .15F}, {.8F, .38F}, {.4F, .48F}}},
             {5, {{.4F, .48F}, {.85F, .6F}, {.9F, .85F}, {.5F, 1}, {.08F, .88F}}}}},
        {3, {{2, {{.1F, 0}, {.85F, 0}}},
             {2, {{.85F, 0}, {.4F, .4F}}},
             {5, {{.4F, .4F}, {.85F, .55F}, {.9F, .82F}, {.5F, 1}, {.08F, .88F}}}}},
    }},
    [4] = {2, {
        {3, {{2, {{.65F, 0}, {.05F, .65F}}},
             {2, {{.05F, .65F}, {.95F, .65F}}},
             {2, {{.68F, .3F}, {.68F, 1}}}}},
        {3, {{2, {{.15F, 0}, {.1F, .5F}}},
             {2, {{.1F, .5F}, {.85F, .5F}}},
             {2, {{.85F, 0}, {.8F, 1}}}}},
    }},
    [5] = {1, {
        {3, {{2, {{.85F, 0}, {.2F, 0}}},
             {2, {{.2F, 0}, {.15F, .42F}}},
             {6, {{.15F, .42F}, {.5F, .35F}, {.88F, .55F}, {.85F, .85F}, {.5F, 1}, {.1F, .88F}}}}},
    }},
    [6] = {2, {
        {1, {{9, {{.75F, 0}, {.35F, .25F}, {.1F, .65F}, {.25F, .95F}, {.6F, 1}, {.88F, .78F},
                  {.75F, .52F}, {.4F, .5F}, {.13F, .7F}}}}},
        {1, {{8, {{.3F, 0}, {.12F, .45F}, {.15F, .85F}, {.45F, 1}, {.8F, .9F}, {.8F, .65F},
                  {.5F, .55F}, {.15F, .75F}}}}},
    }},
    [7] = {3, {
        {2, {{2, {{.08F, 0}, {.92F, 0}}},
             {3, {{.92F, 0}, {.6F, .45F}, {.4F, 1}}}}},
        {3, {{2, {{.08F, 0}, {.92F, 0}}},
             {3, {{.92F, 0}, {.6F, .45F}, {.4F, 1}}},
             {2, {{.3F, .5F}, {.85F, .5F}}}}},
        {3, {{2, {{.1F, .15F}, {.12F, 0}}},
             {2, {{.12F, 0}, {.9F, .03F}}},
             {3, {{.9F, .03F}, {.55F, .4F}, {.5F, 1}}}}},
    }},
    [8] = {1, {
        {1, {{11, {{.5F, .48F}, {.15F, .28F}, {.3F, .03F}, {.7F, .03F}, {.85F, .28F},
                  {.5F, .48F}, {.1F, .75F}, {.3F, 1}, {.7F, 1}, {.9F, .75F}, {.5F, .48F}}}}},
    }},
    [9] = {2, {
        {2, {{7, {{.85F, .25F}, {.6F, .02F}, {.2F, .1F}, {.1F, .35F}, {.4F, .52F}, {.8F, .35F},
                  {.88F, .15F}}},
             {3, {{.87F, .2F}, {.85F, .6F}, {.75F, 1}}}}},
        {2, {{7, {{.85F, .25F}, {.6F, .02F}, {.2F, .1F}, {.1F, .35F}, {.4F, .52F}, {.8F, .35F},
                  {.88F, .15F}}},
             {4, {{.87F, .2F}, {.88F, .7F}, {.55F, 1}, {.2F, .92F}}}}},
    }},
};
/* clang-format on */

/* What is drawn at random once per image. */
struct hand {
    float xx, xy, yx, yy; /* matrix from box to pixels: rotation, slant and size */
    float middle_x, middle_y;
    float bend_x, bend_y; /* strength of the smooth warp, in box units */
    float phase_x, phase_y;
    float wobble;     /* deviation of each point, in box units */
    float half_width; /* half the width of the pen, in pixels */
    float ink;        /* 0 to 1 */
};

static struct hand draw_hand(struct draw *draw)
{
    float width = draw_between(draw, 9.5F, 17.0F), height = draw_between(draw, 15.0F, 21.0F);
    float turn = draw_between(draw, -.26F, .26F), slant = draw_between(draw, -.35F, .25F);
    float cosine = 1 - turn * turn / 2, sine = turn - turn * turn * turn / 6;

    return (struct hand){
        .xx = width * cosine,
        .xy = -height * (sine + slant * cosine),
        .yx = width * sine,
        .yy = height * (cosine - slant * sine),
        .middle_x = (float)SIDE / 2 - .5F + draw_between(draw, -3, 3),
        .middle_y = (float)SIDE / 2 - .5F + draw_between(draw, -3, 3),
        .bend_x = draw_between(draw, -.12F, .12F),
        .bend_y = draw_between(draw, -.12F, .12F),
        .phase_x = draw_between(draw, 0, 1),
        .phase_y = draw_between(draw, 0, 1),
        .wobble = draw_between(draw, .02F, .055F),
        .half_width = draw_between(draw, .55F, 1.7F),
        .ink = draw_between(draw, .6F, 1),
    };
}

/* A wave of period 1 between -1 and 1: a parabola up, then a parabola down. */
static float wave(float t)
{
    t -= (float)(int)t;
    return t < .5F ? 16 * t * (.5F - t) : -16 * (t - .5F) * (1 - t);
}

static struct point place(const struct hand *hand, struct point p)
{
    float x = p.x - .5F + hand->bend_x * wave(p.y + hand->phase_x);
    float y = p.y - .5F + hand->bend_y * wave(p.x + hand->phase_y);

    return (struct point){hand->middle_x + hand->xx * x + hand->xy * y,
                          hand->middle_y + hand->yx * x + hand->yy * y};
}

/* First and last pixel of [lo - reach, hi + reach] on the sheet; *last < *first if no pixel is. */
static void reach_of(float lo, float hi, float reach, int *first, int *last)
{
    lo -= reach;
    hi += reach;
    *first = lo < 0 ? 0 : (int)lo;
    *last = hi > SIDE - 1 ? SIDE - 1 : (int)hi;
    if (hi < 0)
        *last = -1;
}

/* Draws the line from a to b: the ink of a pixel depends on its distance to the line. Where lines
 * overlap, the darkest counts. */
static void ink_piece(float *sheet, struct point a, struct point b, float half_width, float ink)
{
    float dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy + 1e-6F;
    float reach = half_width + .5F;
    int x0, x1, y0, y1;

    reach_of(fminf(a.x, b.x), fmaxf(a.x, b.x), reach, &x0, &x1);
    reach_of(fminf(a.y, b.y), fmaxf(a.y, b.y), reach, &y0, &y1);
    for (int y = y0; y <= y1; y++) {
        for (int x = x0; x <= x1; x++) {
            float px = (float)x - a.x, py = (float)y - a.y;
            float t = (px * dx + py * dy) / length2;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            px -= t * dx;
            py -= t * dy;
            float distance2 = px * px + py * py;
            if (distance2 >= reach * reach)
                continue;
            float cover = fminf(reach - sqrtf(distance2), 1) * ink;
            if (cover > sheet[y * SIDE + x])
                sheet[y * SIDE + x] = cover;
        }
    }
}

/* Uniform Catmull-Rom spline between p1 and p2, t from 0 to 1. Source: Catmull and Rom 1974. */
static float spline(float p0, float p1, float p2, float p3, float t)
{
    return p1 + .5F * t *
                    (p2 - p0 + t * (2 * p0 - 5 * p1 + 4 * p2 - p3 + t * (3 * (p1 - p2) + p3 - p0)));
}

static void ink_stroke(float *sheet, const struct stroke *stroke, const struct hand *hand,
                       struct draw *draw)
{
    struct point points[POINTS_MAX], before;
    uint32_t n = stroke->point_count;

    assert(n >= 2 && n <= POINTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        points[i].x = stroke->points[i].x + hand->wobble * draw_bell(draw);
        points[i].y = stroke->points[i].y + hand->wobble * draw_bell(draw);
    }
    before = place(hand, points[0]);
    for (uint32_t i = 0; i + 1 < n; i++) {
        const struct point *p0 = &points[i > 0 ? i - 1 : 0], *p1 = &points[i];
        const struct point *p2 = &points[i + 1], *p3 = &points[i + 2 < n ? i + 2 : n - 1];
        for (int k = 1; k <= PIECES; k++) {
            float t = (float)k / (float)PIECES;
            struct point after = place(hand, (struct point){spline(p0->x, p1->x, p2->x, p3->x, t),
                                                            spline(p0->y, p1->y, p2->y, p3->y, t)});
            ink_piece(sheet, before, after, hand->half_width, hand->ink);
            before = after;
        }
    }
}

/* Up to three short lines that are not part of the digit. */
static void ink_stray_marks(float *sheet, struct draw *draw)
{
    for (uint32_t left = draw_below(draw, 4); left > 0; left--) {
        struct point a = {draw_between(draw, 0, SIDE), draw_between(draw, 0, SIDE)};
        struct point b = {a.x + draw_between(draw, -5, 5), a.y + draw_between(draw, -5, 5)};
        ink_piece(sheet, a, b, draw_between(draw, .3F, .9F), draw_between(draw, .3F, .9F));
    }
}

static void add_noise(const float *sheet, struct draw *draw, uint8_t *pixels)
{
    float strength = draw_between(draw, 0, .22F), paper = draw_between(draw, 0, .1F);

    for (int i = 0; i < SIDE * SIDE; i++) {
        float value = paper + sheet[i] * (1 - paper) + strength * draw_bell(draw);
        value = value < 0 ? 0 : value > 1 ? 1 : value;
        pixels[i] = (uint8_t)(value * 255 + .5F);
    }
}

void digits_draw(uint64_t seed, uint64_t index, const struct dataset_shape *shape, uint8_t *pixels,
                 uint16_t *label)
{
    struct draw draw = draw_begin(seed, index);
    uint32_t digit = draw_below(&draw, DIGITS_CLASSES);
    const struct form *form = &glyphs[digit].forms[draw_below(&draw, glyphs[digit].form_count)];
    struct hand hand = draw_hand(&draw);
    float sheet[SIDE * SIDE];

    assert(shape->channels == 1 && shape->height == SIDE && shape->width == SIDE &&
           shape->classes == DIGITS_CLASSES);
    memset(sheet, 0, sizeof sheet);
    for (uint32_t i = 0; i < form->stroke_count; i++)
        ink_stroke(sheet, &form->strokes[i], &hand, &draw);
    ink_stray_marks(sheet, &draw);
    add_noise(sheet, &draw, pixels);
    assert(digit < DIGITS_CLASSES);
    *label = (uint16_t)digit;
}

static const struct dataset_shape digits_shape = {1, SIDE, SIDE, DIGITS_CLASSES};

enum status digits_new_train(struct source **set, struct err *err)
{
    return dataset_new_drawn(set, &digits_shape, DIGITS_TRAIN_COUNT, digits_draw, TRAIN_SEED, err);
}

enum status digits_new_validation(struct source **set, struct err *err)
{
    return dataset_new_drawn(set, &digits_shape, DIGITS_VALIDATION_COUNT, digits_draw,
                             VALIDATION_SEED, err);
}
