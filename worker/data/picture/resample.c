#include "worker/data/picture/resample.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/picture/grow.h"
#include "worker/data/picture/kernels.h"

const struct picture_kernels *picture_kernels(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return &picture_kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &picture_kernels_avx2;
#endif
    return &picture_kernels_generic;
}

/* Weights of one output pixel, as precompute_coeffs() and normalize_coeffs_8bpc() have them. */
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
                fabs(((double)(t + first) - middle + 0.5) * (1.0 / support)); /* filter's width 1 */
            double weight = distance < 1 ? 1 - distance : 0;

            sum += weight;
            if (pass == 1)
                weights[t] =
                    (int32_t)(0.5 + (total != 0 ? weight / total : weight) * (1 << RESAMPLE_BITS));
        }
        total = sum;
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
    slots = (size_t)want->count * axis->taps_max;
    if (grow(&axis->begin, &axis->slots_allocated, want->count * 2 * sizeof(uint32_t)) !=
            STATUS_OK ||
        grow(&axis->weights, &axis->weights_allocated, slots * sizeof(int32_t)) != STATUS_OK)
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
        if (axis->begin[slot] < axis->in_begin)
            axis->in_begin = axis->begin[slot];
        if (axis->begin[slot] + axis->taps[slot] > axis->in_end)
            axis->in_end = axis->begin[slot] + axis->taps[slot];
    }
    return STATUS_OK;
}

enum status resample_begin(struct resample *resample, const struct resample_want *x,
                           const struct resample_want *y, uint8_t *out, struct err *err)
{
    enum status status;

    assert(!y->is_flipped);
    status = axis_begin(&resample->x, x, err);
    if (status == STATUS_OK)
        status = axis_begin(&resample->y, y, err);
    if (status != STATUS_OK)
        return status;
    resample->row_bytes = (size_t)x->count * 3;
    resample->ring_rows = resample->y.taps_max;
    resample->next_in = resample->y.in_begin;
    resample->next_out = 0;
    resample->out = out;
    if (grow(&resample->ring, &resample->ring_allocated,
             (resample->row_bytes + RESAMPLE_RING_PAD) * resample->ring_rows) != STATUS_OK ||
        grow(&resample->taps, &resample->taps_allocated,
             resample->ring_rows * sizeof *resample->taps) != STATUS_OK)
        return err_set(err, STATUS_MEMORY, 0, "no memory for %u rows", resample->ring_rows);
    return STATUS_OK;
}

static uint8_t *ring_row(const struct resample *resample, uint32_t row)
{
    return resample->ring + (row % resample->ring_rows) * (resample->row_bytes + RESAMPLE_RING_PAD);
}

void resample_row(struct resample *resample, const uint8_t *row)
{
    const struct picture_kernels *kernels = picture_kernels();
    const struct resample_axis *y = &resample->y;

    assert(resample->next_in < y->in_end);
    kernels->resample_x(&resample->x, row, ring_row(resample, resample->next_in));
    resample->next_in++;
    while (resample->next_out < y->count &&
           y->begin[resample->next_out] + y->taps[resample->next_out] <= resample->next_in) {
        uint32_t i = resample->next_out++;

        for (uint32_t t = 0; t < y->taps[i]; t++)
            resample->taps[t] = ring_row(resample, y->begin[i] + t);
        kernels->resample_y(resample->taps, y->weights + (size_t)i * y->taps_max, y->taps[i],
                            resample->row_bytes, resample->out + i * resample->row_bytes);
    }
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
    free(resample->ring);
    free(resample->taps);
    *resample = (struct resample){0};
}
