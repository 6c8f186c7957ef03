/* Element access on the host: any of the three types, read and written as f32. */
#ifndef KERNELS_VALUES_H
#define KERNELS_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/half.h"
#include "kernels/types.h"

static inline float values_get(const void *values, enum kernel_type type, size_t i)
{
    switch (type) {
    case KERNEL_F32:
        return ((const float *)values)[i];
    case KERNEL_F16:
        return half_f16_to(((const uint16_t *)values)[i]);
    case KERNEL_BF16:
        return half_bf16_to(((const uint16_t *)values)[i]);
    }
    return 0.0F;
}

static inline uint16_t values_round(float value, enum kernel_type type)
{
    return type == KERNEL_F16 ? half_f16_from(value) : half_bf16_from(value);
}

static inline void values_set(void *values, enum kernel_type type, size_t i, float value)
{
    if (type == KERNEL_F32)
        ((float *)values)[i] = value;
    else
        ((uint16_t *)values)[i] = values_round(value, type);
}

#endif
