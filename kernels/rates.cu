/* The rates of a step travel as a launch's parameters: no host memory that has to stay until a copy
 * was made. */
#include "kernels/kernels.h"
#include "kernels/launch.cuh"

static __global__ void __launch_bounds__(LAUNCH_THREADS)
    rates_set(struct kernel_rates *rates, const struct kernel_rates values)
{
    if (threadIdx.x == 0)
        *rates = values;
}

int kernel_rates(struct kernel_rates *rates, const struct kernel_rates *values,
                 struct CUstream_st *stream)
{
    return launch(rates_set, dim3(1), stream, rates, *values);
}
