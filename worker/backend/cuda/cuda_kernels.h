/* The kernels that the backend launches, each with its own signature: found by name in the module,
 * or a test's. */
#ifndef WORKER_BACKEND_CUDA_CUDA_KERNELS_H
#define WORKER_BACKEND_CUDA_CUDA_KERNELS_H

#include "common/status.h"
#include "kernels/kernels.h"
#include "kernels/kernels_elements.h"
#include "kernels/kernels_layers.h"
#include "kernels/kernels_norm.h"
#include "kernels/kernels_optim.h"
#include "kernels/kernels_step.h"
#include "kernels/table.h"

#define CUDA_KERNEL_TABLE(X)                                                                       \
    X(finite)                                                                                      \
    X(rates)                                                                                       \
    X(sgd)                                                                                         \
    X(cast)                                                                                        \
    X(scale)                                                                                       \
    X(add)                                                                                         \
    X(accumulate)                                                                                  \
    X(relu)                                                                                        \
    X(relu_backward)                                                                               \
    X(images)                                                                                      \
    X(max_pool)                                                                                    \
    X(max_pool_backward)                                                                           \
    X(avg_pool)                                                                                    \
    X(avg_pool_backward)                                                                           \
    X(loss)                                                                                        \
    X(columns)                                                                                     \
    X(columns_bytes)                                                                               \
    X(norm_sums)                                                                                   \
    X(norm_finish)                                                                                 \
    X(norm_running)                                                                                \
    X(norm_apply)                                                                                  \
    X(norm_backward_sums)                                                                          \
    X(norm_backward_finish)                                                                        \
    X(norm_backward_apply)                                                                         \
    X(clip)                                                                                        \
    X(scaler_step)                                                                                 \
    X(adam)                                                                                        \
    X(lars_workspace)                                                                              \
    X(lars)                                                                                        \
    X(lookahead_before)                                                                            \
    X(lookahead)

struct cuda_kernels {
#define CUDA_KERNEL_FIELD(name) __typeof__(&kernel_##name) name;
    CUDA_KERNEL_TABLE(CUDA_KERNEL_FIELD)
#undef CUDA_KERNEL_FIELD
};

/* STATUS_CONFLICT names the one that is missing. */
enum status cuda_kernels_find(struct cuda_kernels *kernels,
                              kernel_function (*find)(const char *name), struct err *err);

#endif
