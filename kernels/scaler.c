/* Reference of scaler.cu. */
#include "kernels/gradients.h"

#include <assert.h>

/* The same steps in the same order as scaler.cu. */
void kernel_scaler_step_ref(struct kernel_scaler *scaler, bool used_momentum)
{
    assert(scaler->min <= scaler->max && scaler->scale > 0.0F);
    if (used_momentum && scaler->found_inf == 0)
        scaler->has_momentum = 1;
    scaler->was_skipped = scaler->is_dynamic != 0 && scaler->found_inf != 0;
    scaler->found_inf = 0;
    if (scaler->was_skipped) {
        const float half = scaler->scale / 2.0F;

        scaler->scale = half < scaler->min ? scaler->min : half;
        scaler->unskipped = 0;
        scaler->skipped_in_a_row++;
        return;
    }
    scaler->skipped_in_a_row = 0;
    scaler->applied++;
    if (scaler->unskipped < UINT32_MAX)
        scaler->unskipped++;
    if (scaler->is_dynamic != 0 && scaler->unskipped >= scaler->window) {
        const float twice = scaler->scale * 2.0F;

        scaler->scale = twice > scaler->max ? scaler->max : twice;
        scaler->unskipped = 0;
    }
}
