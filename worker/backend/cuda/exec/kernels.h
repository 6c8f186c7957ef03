/* The kernels that the backend launches, each with its own signature, and how a loaded module is
 * resolved to them. */
#ifndef WORKER_BACKEND_CUDA_EXEC_KERNELS_H
#define WORKER_BACKEND_CUDA_EXEC_KERNELS_H

#include "common/status.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

/* A field a kernel of KERNEL_TABLE, of its type. */
struct cuda_kernels {
#define CUDA_KERNEL_FIELD(name) __typeof__(&kernel_##name) name;
    KERNEL_TABLE(CUDA_KERNEL_FIELD)
#undef CUDA_KERNEL_FIELD
};

struct cuda_module;

/* All that the worker uses of a loaded module: every kernel of KERNEL_TABLE, and every slot of its
 * tables of functions is filled. Needs no device.
 * Errors: STATUS_UNSUPPORTED  the module was built without plans
 *         STATUS_CONFLICT     a kernel or a slot is missing, by name */
enum status cuda_module_resolve(const struct cuda_module *module, struct cuda_kernels *kernels,
                                struct err *err);

#endif
