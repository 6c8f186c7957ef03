/* Every kernel by its name, for programs that load the CUDA module at run time and so cannot link
 * them: the tests.
 *
 *     int error = KERNEL(table, add)(y, a, b, type, relu, count, NULL);
 */
#ifndef KERNELS_TABLE_H
#define KERNELS_TABLE_H

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*kernel_function)(void);

/* "add" is kernel_add; NULL where there is none. In the module alone. */
kernel_function kernel_find(const char *name);

/* kernel_NAME as `find` (a kernel_find) has it, with its own type. */
#define KERNEL(find, name) ((__typeof__(&kernel_##name))(find)(#name))

#ifdef __cplusplus
}
#endif

#endif
