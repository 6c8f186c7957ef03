/* Every kernel by its name, for programs that load the CUDA module at run time and so cannot link
 * the kernels.
 *
 * KERNEL_TABLE is the only list of kernels. The module looks names up in it (table.c), the worker
 * resolves its kernels with it (worker/backend/cuda/exec/kernels.h), and fake modules are made from
 * it.
 *
 *     int error = KERNEL(find, add)(y, a, b, type, relu, count, stream); */
#ifndef KERNELS_TABLE_H
#define KERNELS_TABLE_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name): kernel_name is a kernel. Its last argument is a stream; it returns 0 or a CUDA error.
 * Functions that only compute a size (kernel_columns_bytes, kernel_lars_workspace) are host code
 * and not in this table. */
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
    X(norm_gradients)                                                                              \
    X(norm_pool)                                                                                   \
    X(norm_pool_backward_apply)                                                                    \
    X(norm_pool_backward_sums)                                                                     \
    X(norm_pool_gradients)                                                                         \
    X(norm_running)                                                                                \
    X(norm_statistics)                                                                             \
    X(norm_sums)                                                                                   \
    X(rates)                                                                                       \
    X(relu)                                                                                        \
    X(relu_backward)                                                                               \
    X(scale)                                                                                       \
    X(scaler_step)                                                                                 \
    X(sgd)

typedef void (*kernel_function)(void);

/* The kernel of this name ("add": kernel_add); NULL: there is none. Only the module defines this
 * function. */
kernel_function kernel_find(const char *name);

/* kernel_NAME with its own type, looked up with `find`, which is a kernel_find. */
#define KERNEL(find, name) ((__typeof__(&kernel_##name))(find)(#name))

#ifdef __cplusplus
}
#endif

#endif
