#include "worker/data/picture/resample.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/picture/grow.h"
#include "worker/data/picture/kernels.h"

/* Weights of one output pixel, as in precompute_coeffs() and normalize_coeffs_8bpc(). */
static void weigh(struct resample_axis *axis, uint32_t slot, double middle, double support,
                  uint32_t in_count)
{
    int32_t *weights = axis->weights + (size_t)slot * axis->taps_max;
    int64_t first = (int64_t)(middle - support + 0.5);
    int64_t end = (int64_t)(middle + support + 0.5);
    double total = 0;

    if (first < 0)
        first = 0;
    if (end > (int64_t)in_count)
        end = in_count;
    assert(end > first && end - first <= axis->taps_max);
    axis->begin[slot] = (uint32_t)first;
    axis->taps[slot] = (uint32_t)(end - first);
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0;

        for (int64_t t = 0; t < end - first; t++) {
            double distance =
                fabs(((double)(t + first) - middle + 0.5) * (1.0 / support)); /* filter width 1 */
            double weight = distance < 1 ? 1 - distance : 0;

            sum += weight;
            if (pass == 1)
                weights[t] =
                    (int32_t)(0.5 + (total != 0 ? weight / total : weight) * (1 << RESAMPLE_BITS));
        }
        total = sum;
    }
}

/* Stores the weights of one output in the form that the kernels read. */
static void split(struct resample_axis *axis, uint32_t slot)
{
    const int32_t *weights = axis->weights + (size_t)slot * axis->taps_max;
    int16_t *parts = axis->parts + (size_t)slot * axis->parts_stride;

    for (uint32_t t = 0; t < axis->parts_stride / 2; t++) {
        int32_t weight = t < axis->taps[slot] ? weights[t] : 0;
        int16_t *group = parts + (size_t)(t / RESAMPLE_GROUP) * 2 * RESAMPLE_GROUP;

        group[t % RESAMPLE_GROUP] = (int16_t)(weight >> RESAMPLE_LOW_BITS);
        group[RESAMPLE_GROUP + t % RESAMPLE_GROUP] =
            (int16_t)(weight & ((1 << RESAMPLE_LOW_BITS) - 1));
    }
}

static enum status axis_begin(struct resample_axis *axis, const struct resample_want *want,
                              struct err *err)
{
    double scale = (want->end - want->begin) / (double)want->out_count;
    double support = scale < 1 ? 1 : scale;
    size_t slots;

    assert(want->begin >= 0 && want->begin < want->end && want->end <= want->in_count);
    assert(want->first + want->count <= want->out_count && want->count > 0);
    axis->count = want->count;
    axis->taps_max = (uint32_t)ceil(support) * 2 + 1;
    axis->parts_stride =
        (axis->taps_max + RESAMPLE_GROUP - 1) / RESAMPLE_GROUP * 2 * RESAMPLE_GROUP;
    slots = (size_t)want->count * axis->taps_max;
    if (grow(&axis->begin, &axis->slots_allocated, want->count * 2 * sizeof(uint32_t)) !=
            STATUS_OK ||
        grow(&axis->weights, &axis->weights_allocated, slots * sizeof(int32_t)) != STATUS_OK ||
        grow(&axis->parts, &axis->parts_allocated,
             (size_t)want->count * axis->parts_stride * sizeof(int16_t)) != STATUS_OK)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the weights of %u pixels",
                       want->count);
    axis->taps = axis->begin + want->count;
    memset(axis->weights, 0, slots * sizeof(int32_t));
    axis->in_begin = want->in_count;
    axis->in_end = 0;
    for (uint32_t i = 0; i < want->count; i++) {
        uint32_t slot = want->is_flipped ? want->count - 1 - i : i;
        double middle = want->begin + ((double)(want->first + i) + 0.5) * scale;

        weigh(axis, slot, middle, support, want->in_count);
        split(axis, slot);
        if (axis->begin[slot] < axis->in_begin)
            axis->in_begin = axis->begin[slot];
        if (axis->begin[slot] + axis->taps[slot] > axis->in_end)
            axis->in_end = axis->begin[slot] + axis->taps[slot];
    }
    return STATUS_OK;
}

/* Whether Pillow 13 resamples along y first. The rule was found by trying sizes; it depends only on
 * the sizes. tests/numerics/pictures compares both sides of the rule. */
static bool goes_down_first(const struct resample_want *x, const struct resample_want *y)
{
    double narrower = x->end - x->begin - (double)x->out_count;
    double lower = y->end - y->begin - (double)y->out_count;

    return lower > 2 * (narrower > 0 ? narrower : 0);
}

enum status resample_begin(struct resample *resample, const struct resample_want *x,
                           const struct resample_want *y, uint8_t *out, struct err *err)
{
    enum status status;
    size_t ring_bytes;

    assert(!y->is_flipped);
    status = axis_begin(&resample->x, x, err);
    if (status == STATUS_OK)
        status = axis_begin(&resample->y, y, err);
    if (status != STATUS_OK)
        return status;
    resample->is_y_first = goes_down_first(x, y);
    resample->ring_bytes =
        3 * (size_t)(resample->is_y_first ? resample->x.in_end - resample->x.in_begin : x->count);
    resample->ring_rows = resample->y.taps_max;
    resample->next_in = resample->y.in_begin;
    resample->next_out = 0;
    resample->out = out;
    ring_bytes = (resample->ring_bytes + RESAMPLE_ROW_PAD) * resample->ring_rows;
    if (grow(&resample->ring, &resample->ring_allocated, ring_bytes) != STATUS_OK ||
        grow(&resample->line, &resample->line_allocated, resample->ring_bytes + RESAMPLE_ROW_PAD) !=
            STATUS_OK ||
        grow(&resample->wide, &resample->wide_allocated, (size_t)x->count * 3 + RESAMPLE_ROW_PAD) !=
            STATUS_OK ||
        grow(&resample->taps, &resample->taps_allocated,
             resample->ring_rows * sizeof *resample->taps) != STATUS_OK)
        return err_set(err, STATUS_MEMORY, 0, "no memory for %u rows", resample->ring_rows);
    return STATUS_OK;
}

static uint8_t *ring_row(const struct resample *resample, uint32_t row)
{
    return resample->ring + (row % resample->ring_rows) * (resample->ring_bytes + RESAMPLE_ROW_PAD);
}

/* Writes output row `i`; all of its input rows are in the ring. */
static void put_row(struct resample *resample, uint32_t i)
{
    const struct picture_kernels *kernels = picture_kernels();
    const struct resample_axis *y = &resample->y;
    const int32_t *weights = y->weights + (size_t)i * y->taps_max;
    size_t out_bytes = (size_t)resample->x.count * 3;
    uint8_t *out = resample->out + i * out_bytes;

    for (uint32_t t = 0; t < y->taps[i]; t++)
        resample->taps[t] = ring_row(resample, y->begin[i] + t);
    if (!resample->is_y_first) {
        kernels->resample_y(resample->taps, weights, y->taps[i], out_bytes, out);
        return;
    }
    kernels->resample_y(resample->taps, weights, y->taps[i], resample->ring_bytes, resample->line);
    kernels->resample_x(&resample->x, resample->line, resample->wide);
    memcpy(out, resample->wide, out_bytes);
}

void resample_row(struct resample *resample, const uint8_t *row)
{
    const struct resample_axis *y = &resample->y;
    uint8_t *kept = ring_row(resample, resample->next_in);

    assert(resample->next_in < y->in_end);
    if (resample->is_y_first)
        memcpy(kept, row, resample->ring_bytes);
    else
        picture_kernels()->resample_x(&resample->x, row, kept);
    resample->next_in++;
    while (resample->next_out < y->count &&
           y->begin[resample->next_out] + y->taps[resample->next_out] <= resample->next_in)
        put_row(resample, resample->next_out++);
}

bool resample_is_done(const struct resample *resample)
{
    return resample->next_in == resample->y.in_end && resample->next_out == resample->y.count;
}

void resample_close(struct resample *resample)
{
    free(resample->x.begin);
    free(resample->x.weights);
    free(resample->y.begin);
    free(resample->y.weights);
    free(resample->x.parts);
    free(resample->y.parts);
    free(resample->ring);
    free(resample->line);
    free(resample->wide);
    free(resample->taps);
    *resample = (struct resample){0};
}
