/* Reference of batch_norm_backward.cu. */
#include "kernels/batch_norm.h"

#include <assert.h>

#include "kernels/columns_ref.h"
#include "kernels/values.h"

/* Terms of the backward sums. */
struct products {
    const struct kernel_norm *norm;
    const void *x, *dy;
    const uint8_t *mask;
    const float *stats;
};

/* d: dy where the ReLU let the element pass, else 0. */
static float masked(const struct products *p, size_t i)
{
    const uint32_t pack = kernel_pack(p->norm->type, p->norm->channels);

    if (p->mask != NULL && (p->mask[i / pack] >> i % pack & 1) == 0)
        return 0.0F;
    return values_get(p->dy, p->norm->type, i);
}

/* x - mean. */
static float centred(const struct products *p, size_t i)
{
    const size_t channels = p->norm->channels;

    return values_get(p->x, p->norm->type, i) -
           p->stats[KERNEL_NORM_MEAN * channels + i % channels];
}

static void products_terms(const void *user, size_t row, uint32_t channel,
                           float terms[COLUMNS_REF_KINDS])
{
    const struct products *p = user;
    const size_t i = row * p->norm->channels + channel;

    terms[0] = masked(p, i);
    terms[1] = terms[0] * centred(p, i);
}

void kernel_norm_backward_sums_ref(const struct kernel_norm *norm, const void *x, const void *dy,
                                   const uint8_t *mask, const float *stats, double *sums)
{
    const struct products products = {norm, x, dy, mask, stats};
    const uint32_t pack = kernel_pack(norm->type, norm->channels);

    assert(norm->channels % 4 == 0 && norm->rows > 0);
    for (uint32_t c = 0; c < norm->channels; c++) {
        double in[COLUMNS_REF_KINDS];

        columns_ref(products_terms, &products, norm->rows, norm->channels, c, pack, in);
        sums[c] = in[0];
        sums[norm->channels + c] = in[1];
    }
    sums[2 * (size_t)norm->channels] = (double)norm->rows;
}

void kernel_norm_backward_finish_ref(const struct kernel_norm *norm, const double *own,
                                     const double *all, const float *stats, void *dgamma,
                                     void *dbeta, float *coefs)
{
    const size_t channels = norm->channels;
    const double count = all[2 * channels];

    assert(count >= own[2 * channels]); /* `all` includes this rank */
    for (size_t c = 0; c < channels; c++) {
        const double inv_std = (double)stats[KERNEL_NORM_INV_STD * channels + c];
        const double a = (double)stats[KERNEL_NORM_SCALE * channels + c];

        values_set(dgamma, norm->param_type, c, (float)(own[channels + c] * inv_std));
        values_set(dbeta, norm->param_type, c, (float)own[c]);
        coefs[c] = (float)a;
        coefs[channels + c] = (float)(-a * inv_std * inv_std * all[channels + c] / count);
        coefs[2 * channels + c] = (float)(-a * all[c] / count);
    }
}

void kernel_norm_gradients_ref(const struct kernel_norm *norm, const void *x, const void *dy,
                               const uint8_t *mask, const float *stats, void *dgamma, void *dbeta,
                               float *coefs, double *sums)
{
    kernel_norm_backward_sums_ref(norm, x, dy, mask, stats, sums);
    kernel_norm_backward_finish_ref(norm, sums, sums, stats, dgamma, dbeta, coefs);
}

void kernel_norm_backward_apply_ref(const struct kernel_norm *norm, const void *x, const void *dy,
                                    const uint8_t *mask, const float *stats, const float *coefs,
                                    void *dx, void *dskip)
{
    const struct products products = {norm, x, dy, mask, stats};
    const size_t channels = norm->channels;

    assert(channels % 4 == 0 && dx != dskip);
    for (size_t i = 0; i < norm->rows * channels; i++) {
        const size_t c = i % channels;
        const float d = masked(&products, i), off = centred(&products, i);

        if (dskip != NULL)
            values_set(dskip, norm->type, i, d);
        values_set(dx, norm->type, i,
                   coefs[c] * d + coefs[channels + c] * off + coefs[2 * channels + c]);
    }
}
