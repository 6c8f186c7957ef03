/* Every kernel by its name, for programs that load the CUDA module at run time and so cannot link
 * them.
 *
 * KERNEL_TABLE is the one list of kernels. The module answers from it (table.c), the worker asks by
 * it (worker/backend/cuda/exec/kernels.h), and a fake is made from it.
 *
 *     int error = KERNEL(find, add)(y, a, b, type, relu, count, stream);
 */
#ifndef KERNELS_TABLE_H
#define KERNELS_TABLE_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name): kernel_name is a kernel. It takes a stream, last, and returns 0 or a CUDA error. What
 * only computes a size (kernel_columns_bytes, kernel_lars_workspace) is host code and not here. */
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
    X(norm_pool)                                                                                   \
    X(norm_pool_backward_apply)                                                                    \
    X(norm_pool_backward_sums)                                                                     \
    X(norm_running)                                                                                \
    X(norm_sums)                                                                                   \
    X(rates)                                                                                       \
    X(relu)                                                                                        \
    X(relu_backward)                                                                               \
    X(scale)                                                                                       \
    X(scaler_step)                                                                                 \
    X(sgd)

typedef void (*kernel_function)(void);

/* "add" is kernel_add; NULL where there is none. In the module alone. */
kernel_function kernel_find(const char *name);

/* kernel_NAME as `find` (a kernel_find) has it, with its own type. */
#define KERNEL(find, name) ((__typeof__(&kernel_##name))(find)(#name))

#ifdef __cplusplus
}
#endif

#endif
