/* Reference of batch_norm.cu. */
#include "kernels/batch_norm.h"

#include <assert.h>
#include <math.h>

#include "kernels/columns_ref.h"
#include "kernels/values.h"

/* Terms of the forward sums, relative to the channel's first value. */
struct moments {
    const struct kernel_norm *norm;
    const void *x;
};

static void moments_terms(const void *user, size_t row, uint32_t channel,
                          float terms[COLUMNS_REF_KINDS])
{
    const struct moments *moments = user;
    const struct kernel_norm *norm = moments->norm;
    const float off = values_get(moments->x, norm->type, row * norm->channels + channel) -
                      values_get(moments->x, norm->type, channel);

    terms[0] = off;
    terms[1] = off * off;
}

void kernel_norm_sums_ref(const struct kernel_norm *norm, const void *x, double *sums)
{
    const struct moments moments = {norm, x};
    const double count = (double)norm->rows;
    const uint32_t pack = kernel_pack(norm->type, norm->channels);

    assert(norm->channels % 4 == 0 && norm->rows > 0);
    for (uint32_t c = 0; c < norm->channels; c++) {
        const double shift = (double)values_get(x, norm->type, c);
        double in[COLUMNS_REF_KINDS];

        columns_ref(moments_terms, &moments, norm->rows, norm->channels, c, pack, in);
        sums[c] = in[0] + count * shift;
        sums[norm->channels + c] = in[1] + 2.0 * shift * in[0] + count * shift * shift;
    }
    sums[2 * (size_t)norm->channels] = count;
}

/* `value` rounded to `type`, as an f32. */
static float round_as(double value, enum kernel_type type)
{
    float rounded = (float)value;
    uint16_t half;

    if (type == KERNEL_F32)
        return rounded;
    half = values_round(rounded, type);
    return values_get(&half, type, 0);
}

static void write_stats(const struct kernel_norm *norm, uint32_t c, double mean, double var,
                        const void *gamma, const void *beta, float *stats)
{
    const size_t channels = norm->channels;
    const double inv_std = 1.0 / sqrt(var + (double)norm->eps);
    const double scale = (double)values_get(gamma, norm->param_type, c) * inv_std;

    stats[KERNEL_NORM_MEAN * channels + c] = (float)mean;
    stats[KERNEL_NORM_INV_STD * channels + c] = (float)inv_std;
    stats[KERNEL_NORM_SCALE * channels + c] = (float)scale;
    stats[KERNEL_NORM_BETA * channels + c] = values_get(beta, norm->param_type, c);
}

/* Moves a running statistic towards the statistic of the batch. */
static void update_running(const struct kernel_norm *norm, float *statistic, double batch)
{
    const double momentum = (double)norm->momentum;

    *statistic =
        round_as((1.0 - momentum) * (double)*statistic + momentum * batch, norm->stats_type);
}

void kernel_norm_finish_ref(const struct kernel_norm *norm, const double *sums, const void *gamma,
                            const void *beta, float *running_mean, float *running_var, float *stats)
{
    const double count = sums[2 * (size_t)norm->channels];

    assert(norm->channels % 4 == 0 && count >= 1.0);
    for (uint32_t c = 0; c < norm->channels; c++) {
        const double mean = sums[c] / count;
        const double square = sums[norm->channels + c] / count - mean * mean;
        const double var = square < 0.0 ? 0.0 : square; /* a NaN stays a NaN */

        if (running_mean != NULL)
            update_running(norm, &running_mean[c], mean);
        if (running_var != NULL)
            update_running(norm, &running_var[c], count > 1.0 ? var * count / (count - 1.0) : var);
        write_stats(norm, c, mean, var, gamma, beta, stats);
    }
}

void kernel_norm_statistics_ref(const struct kernel_norm *norm, const void *x, const void *gamma,
                                const void *beta, float *running_mean, float *running_var,
                                float *stats, double *sums)
{
    kernel_norm_sums_ref(norm, x, sums);
    kernel_norm_finish_ref(norm, sums, gamma, beta, running_mean, running_var, stats);
}

void kernel_norm_running_ref(const struct kernel_norm *norm, const void *gamma, const void *beta,
                             const float *running_mean, const float *running_var, float *stats)
{
    for (uint32_t c = 0; c < norm->channels; c++)
        write_stats(norm, c, (double)running_mean[c], (double)running_var[c], gamma, beta, stats);
}

void kernel_norm_apply_ref(const struct kernel_norm *norm, const void *x, const float *stats,
                           const void *residual, void *y, uint8_t *mask)
{
    const size_t channels = norm->channels, count = norm->rows * channels;
    const uint32_t pack = kernel_pack(norm->type, norm->channels);

    assert(norm->channels % 4 == 0);
    for (size_t i = 0; i < count; i++) {
        const size_t c = i % channels;
        float out = (values_get(x, norm->type, i) - stats[KERNEL_NORM_MEAN * channels + c]) *
                        stats[KERNEL_NORM_SCALE * channels + c] +
                    stats[KERNEL_NORM_BETA * channels + c];

        if (residual != NULL)
            out += values_get(residual, norm->type, i);
        if (norm->relu && out <= 0.0F)
            out = 0.0F;
        values_set(y, norm->type, i, out);
        if (!norm->relu || mask == NULL)
            continue;
        /* The mask is made from the rounded output, because backward sees the rounded output. */
        if (i % pack == 0)
            mask[i / pack] = 0;
        if (!(values_get(y, norm->type, i) <= 0.0F))
            mask[i / pack] = (uint8_t)(mask[i / pack] | 1U << i % pack);
    }
}
