/* Reference of cast.cu. */
#include "kernels/elements.h"

#include <assert.h>

#include "kernels/values.h"

void kernel_cast_ref(void *to, enum kernel_type to_type, const void *from,
                     enum kernel_type from_type, size_t count)
{
    assert(to != from || to_type == from_type);
    for (size_t i = 0; i < count; i++)
        values_set(to, to_type, i, values_get(from, from_type, i));
}

void kernel_scale_ref(void *to, enum kernel_type to_type, const void *from,
                      enum kernel_type from_type, float factor, size_t count)
{
    assert(to != from || to_type == from_type);
    for (size_t i = 0; i < count; i++)
        values_set(to, to_type, i, values_get(from, from_type, i) * factor);
}
