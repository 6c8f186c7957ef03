/* Reference of relu.cu. */
#include "kernels/elements.h"

#include "kernels/values.h"

void kernel_relu_ref(void *y, const void *x, enum kernel_type type, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float value = values_get(x, type, i);

        values_set(y, type, i, value <= 0.0F ? 0.0F : value);
    }
}

void kernel_relu_backward_ref(void *dx, const void *y, const void *dy, enum kernel_type type,
                              size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float grad = values_get(dy, type, i);

        values_set(dx, type, i, values_get(y, type, i) <= 0.0F ? 0.0F : grad);
    }
}
