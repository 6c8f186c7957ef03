/* Casts. Bound by memory: between f32 and a half, 6 bytes are read or written per element. */
#include "kernels/elements.cuh"
#include "kernels/elements.h"

namespace
{
struct as_is {
    __device__ float operator()(float x) const
    {
        return x;
    }
};

struct times {
    float factor;

    __device__ float operator()(float x) const
    {
        return x * factor;
    }
};
} // namespace

int kernel_cast(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
                size_t count, struct CUstream_st *stream)
{
    return launch_typed(to_type, [=](auto y) {
        return launch_typed(from_type, [=](auto x) {
            return elements_launch(as_is(), count, stream, (decltype(y) *)to,
                                   (const decltype(x) *)from);
        });
    });
}

int kernel_scale(void *to, enum kernel_type to_type, const void *from, enum kernel_type from_type,
                 float factor, size_t count, struct CUstream_st *stream)
{
    return launch_typed(to_type, [=](auto y) {
        return launch_typed(from_type, [=](auto x) {
            return elements_launch(times{factor}, count, stream, (decltype(y) *)to,
                                   (const decltype(x) *)from);
        });
    });
}
