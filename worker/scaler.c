#include "worker/scaler.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void scaler_init(struct scaler *scaler, const struct scaler_options *options)
{
    float init = options->init;

    assert(init > 0.0F);
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
    if (scaler->is_dynamic && scaler->unskipped == scaler->window)
        grow(scaler);
}

const char *scaler_text(float scale, char text[SCALER_TEXT_BYTES])
{
    const double value = (double)scale;

    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, SCALER_TEXT_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (value >= 1.0 && value < 1e16 && strchr(text, 'e') != NULL)
        (void)snprintf(text, SCALER_TEXT_BYTES, "%.0f", value);
    if (strpbrk(text, ".en") == NULL)
        (void)snprintf(text + strlen(text), SCALER_TEXT_BYTES - strlen(text), ".0");
    return text;
}
