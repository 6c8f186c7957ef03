/* Reference of add.cu. */
#include "kernels/elements.h"

#include <assert.h>

#include "kernels/values.h"

void kernel_add_ref(void *y, const void *a, const void *b, enum kernel_type type, bool relu,
                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float sum = values_get(a, type, i) + values_get(b, type, i);

        values_set(y, type, i, relu && sum <= 0.0F ? 0.0F : sum);
    }
}

void kernel_accumulate_ref(void *to, enum kernel_type to_type, void *from,
                           enum kernel_type from_type, float scale, bool clear, size_t count)
{
    assert(to != from || count == 0);
    for (size_t i = 0; i < count; i++) {
        float more = scale * values_get(from, from_type, i);

        values_set(to, to_type, i, values_get(to, to_type, i) + more);
        if (clear)
            values_set(from, from_type, i, 0.0F);
    }
}
