#include "kernels/table.h"

#include <stddef.h>
#include <string.h>

#include "kernels/kernels.h"

kernel_function kernel_find(const char *name)
{
    static const struct {
        const char *name;
        kernel_function function;
    } table[] = {
#define KERNEL_ENTRY(kernel) {#kernel, (kernel_function)kernel_##kernel},
        KERNEL_TABLE(KERNEL_ENTRY)
#undef KERNEL_ENTRY
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].function;
    return NULL;
}
