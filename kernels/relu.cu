/* ReLU and its gradient. Bound by memory: for halves, 4 bytes are moved per element forward and 6
 * backward. */
#include "kernels/elements.cuh"
#include "kernels/elements.h"

namespace
{
struct cut {
    __device__ float operator()(float x) const
    {
        return x <= 0.0F ? 0.0F : x;
    }
};

struct pass {
    __device__ float operator()(float y, float dy) const
    {
        return y <= 0.0F ? 0.0F : dy;
    }
};
} // namespace

int kernel_relu(void *y, const void *x, enum kernel_type type, size_t count,
                struct CUstream_st *stream)
{
    return launch_typed(type, [=](auto value) {
        using T = decltype(value);

        return elements_launch(cut(), count, stream, (T *)y, (const T *)x);
    });
}

int kernel_relu_backward(void *dx, const void *y, const void *dy, enum kernel_type type,
                         size_t count, struct CUstream_st *stream)
{
    return launch_typed(type, [=](auto value) {
        using T = decltype(value);

        return elements_launch(pass(), count, stream, (T *)dx, (const T *)y, (const T *)dy);
    });
}
