/* Reference of finite.cu. */
#include "kernels/gradients.h"

#include <assert.h>
#include <math.h>

#include "kernels/values.h"

void kernel_finite_ref(const struct kernel_values *tensors, uint32_t tensor_count,
                       enum kernel_type type, uint32_t *found)
{
    assert(found != NULL);
    for (uint32_t t = 0; t < tensor_count; t++)
        for (size_t i = 0; i < tensors[t].count; i++)
            if (!isfinite(values_get(tensors[t].values, type, i)))
                *found = 1;
}
