#include "kernels/table.h"

#include <stddef.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/kernels_elements.h"
#include "kernels/kernels_layers.h"
#include "kernels/kernels_norm.h"
#include "kernels/kernels_optim.h"
#include "kernels/kernels_step.h"

/* X(name): kernel_name is one. */
#define KERNEL_TABLE(X)                                                                            \
    X(accumulate)                                                                                  \
    X(adam)                                                                                        \
    X(add)                                                                                         \
    X(avg_pool)                                                                                    \
    X(avg_pool_backward)                                                                           \
    X(cast)                                                                                        \
    X(clip)                                                                                        \
    X(columns)                                                                                     \
    X(finite)                                                                                      \
    X(images)                                                                                      \
    X(lars)                                                                                        \
    X(lookahead)                                                                                   \
    X(lookahead_before)                                                                            \
    X(loss)                                                                                        \
    X(max_pool)                                                                                    \
    X(max_pool_backward)                                                                           \
    X(norm_apply)                                                                                  \
    X(norm_backward_apply)                                                                         \
    X(norm_backward_finish)                                                                        \
    X(norm_backward_sums)                                                                          \
    X(norm_finish)                                                                                 \
    X(norm_running)                                                                                \
    X(norm_sums)                                                                                   \
    X(rates)                                                                                       \
    X(relu)                                                                                        \
    X(relu_backward)                                                                               \
    X(scale)                                                                                       \
    X(scaler_step)                                                                                 \
    X(sgd)

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
