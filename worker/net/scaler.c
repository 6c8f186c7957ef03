#include "worker/net/scaler.h"

#include <assert.h>

void scaler_init(struct scaler *scaler, const struct scaler_options *options)
{
    float init = options->init;

    assert(init > 0.0F);
    assert(!options->is_dynamic || options->window > 0);
    if (options->is_dynamic && init > options->max)
        init = options->max;
    *scaler = (struct scaler){
        .scale = init,
        .min = options->min,
        .max = options->max,
        .window = options->window,
        .is_dynamic = options->is_dynamic,
    };
}

static void back_off(struct scaler *scaler)
{
    float half = scaler->scale / 2.0F;

    scaler->scale = half < scaler->min ? scaler->min : half;
    scaler->unskipped = 0;
    scaler->skipped_in_a_row++;
}

static void grow(struct scaler *scaler)
{
    float twice = scaler->scale * 2.0F;

    scaler->scale = twice > scaler->max ? scaler->max : twice;
    scaler->unskipped = 0;
}

void scaler_step(struct scaler *scaler)
{
    scaler->was_skipped = scaler->is_dynamic && scaler->found_inf;
    scaler->found_inf = 0;
    if (scaler->was_skipped) {
        back_off(scaler);
        return;
    }
    scaler->skipped_in_a_row = 0;
    scaler->applied++;
    if (scaler->unskipped < UINT32_MAX)
        scaler->unskipped++;
    if (scaler->is_dynamic && scaler->unskipped >= scaler->window)
        grow(scaler);
}
