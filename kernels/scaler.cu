/* The loss scaler's step, in one thread. Its cost is the launch. */
#include "kernels/gradients.h"
#include "kernels/launch.cuh"

static __global__ void __launch_bounds__(LAUNCH_THREADS)
    scaler_step(struct kernel_scaler *scaler, bool used_momentum)
{
    if (threadIdx.x > 0)
        return;

    struct kernel_scaler s = *scaler;

    if (used_momentum && s.found_inf == 0)
        s.has_momentum = 1;
    s.was_skipped = s.is_dynamic != 0 && s.found_inf != 0;
    s.found_inf = 0;
    if (s.was_skipped) {
        s.scale = fmaxf(s.scale / 2.0F, s.min);
        s.unskipped = 0;
        s.skipped_in_a_row++;
    } else {
        s.skipped_in_a_row = 0;
        s.applied++;
        s.unskipped += s.unskipped < UINT32_MAX;
        if (s.is_dynamic && s.unskipped >= s.window) {
            s.scale = fminf(s.scale * 2.0F, s.max);
            s.unskipped = 0;
        }
    }
    *scaler = s;
}

int kernel_scaler_step(struct kernel_scaler *scaler, bool used_momentum, struct CUstream_st *stream)
{
    return launch(scaler_step, dim3(1), stream, scaler, used_momentum);
}
