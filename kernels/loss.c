/* Reference of loss.cu. Sums are split over the threads of a block as in loss.cu, so that both give
 * the same bits. */
#include "kernels/layers.h"

#include <assert.h>
#include <math.h>

#include "kernels/exponent.h"
#include "kernels/sums.h"
#include "kernels/values.h"

struct row {
    const void *logits;
    size_t at;
    int64_t label;        /* -1: out of range */
    double max, sum, all; /* the sums of e^(score - max) and of score - max */
};

static float score_of(const struct kernel_loss *loss, const struct row *row, uint32_t c)
{
    return values_get(row->logits, loss->type, row->at + c);
}

/* Classes that rank before the label. A NaN among them ranks before it too. */
static uint32_t count_before(const struct kernel_loss *loss, const struct row *row, float own)
{
    uint32_t before = 0;

    for (uint32_t c = 0; c < loss->classes; c++) {
        const float score = score_of(loss, row, c);

        if (c != row->label && (c < row->label ? !(score < own) : !(score <= own)))
            before++;
    }
    return before;
}

static void reduce_row(const struct kernel_loss *loss, struct row *row)
{
    double sums[SUMS_THREADS] = {0}, all[SUMS_THREADS] = {0};
    float max = -INFINITY;

    /* max is subtracted before exp, so that nothing overflows */
    for (uint32_t c = 0; c < loss->classes; c++)
        max = fmaxf(max, score_of(loss, row, c));
    row->max = (double)max;
    for (uint32_t c = 0; c < loss->classes; c++) {
        const double off = (double)score_of(loss, row, c) - row->max;

        sums[c % SUMS_THREADS] += exponent_exp(off);
        all[c % SUMS_THREADS] += off;
    }
    row->sum = sums_block(sums);
    row->all = sums_block(all);
}

static void rank_row(const struct kernel_loss *loss, struct row *row, struct kernel_loss_row *out)
{
    const double smoothing = (double)loss->smoothing;
    const float own = row->label < 0 ? NAN : score_of(loss, row, (uint32_t)row->label);
    const uint32_t before = isnan(own) ? loss->classes : count_before(loss, row, own);

    out->loss = exponent_log(row->sum) - ((double)own - row->max);
    if (smoothing > 0.0) /* without smoothing a score of -infinity would give 0 * infinity */
        out->loss = exponent_log(row->sum) - (1.0 - smoothing) * ((double)own - row->max) -
                    smoothing / loss->classes * row->all;
    out->top1 = !isnan(own) && before < 1;
    out->top5 = !isnan(own) && before < 5;
}

static void write_grads(const struct kernel_loss *loss, const struct row *row, float scale,
                        void *grads)
{
    const float other = loss->smoothing / (float)loss->classes;
    const float own = 1.0F - loss->smoothing + other;

    for (uint32_t c = 0; c < loss->stride; c++) {
        float grad = 0.0F;

        if (c < loss->classes) {
            const double e = exponent_exp((double)score_of(loss, row, c) - row->max);

            grad = row->label < 0
                       ? NAN
                       : scale * ((float)(e / row->sum) - (c == row->label ? own : other));
        }
        values_set(grads, loss->grad_type, row->at + c, grad);
    }
}

static int64_t label_of(const struct kernel_loss *loss, const void *labels, uint32_t i)
{
    const int64_t label =
        loss->labels_are_i64 ? ((const int64_t *)labels)[i] : ((const int32_t *)labels)[i];

    return label >= 0 && label < loss->classes ? label : -1;
}

void kernel_loss_ref(const struct kernel_loss *loss, const void *logits, const void *labels,
                     const float *scale, void *grads, struct kernel_loss_row *rows_out,
                     struct kernel_loss_result *result)
{
    double sums[SUMS_THREADS] = {0};

    assert(loss->classes > 0 && loss->stride >= loss->classes);
    *result = (struct kernel_loss_result){0};
    assert(loss->smoothing >= 0.0F && loss->smoothing <= 1.0F);
    assert(grads == NULL || grads != logits || loss->grad_type == loss->type);
    for (uint32_t i = 0; i < loss->rows; i++) {
        struct row row = {
            .logits = logits, .at = (size_t)i * loss->stride, .label = label_of(loss, labels, i)};

        reduce_row(loss, &row);
        rank_row(loss, &row, &rows_out[i]);
        if (grads != NULL)
            write_grads(loss, &row,
                        loss->grad_scale * (scale != NULL ? *scale : 1.0F) / (float)loss->rows,
                        grads);
        sums[i % SUMS_THREADS] += rows_out[i].loss;
        result->top1 += rows_out[i].top1;
        result->top5 += rows_out[i].top5;
    }
    result->loss_sum = sums_block(sums);
}
