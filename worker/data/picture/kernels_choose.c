#include "worker/data/picture/kernels.h"
#include "worker/data/picture/kernels_jpeg.h"

const struct picture_kernels *picture_kernels(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return &picture_kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &picture_kernels_avx2;
#endif
    return &picture_kernels_generic;
}

const struct jpeg_kernels *jpeg_kernels(void)
{
    return picture_kernels()->jpeg;
}
