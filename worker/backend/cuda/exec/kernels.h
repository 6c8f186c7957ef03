/* The kernels that the backend launches, each with its own signature, and how they are looked up in
 * a loaded module. */
#ifndef WORKER_BACKEND_CUDA_EXEC_KERNELS_H
#define WORKER_BACKEND_CUDA_EXEC_KERNELS_H

#include "common/status.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

/* One field per kernel of KERNEL_TABLE, with the kernel's type. */
struct cuda_kernels {
#define CUDA_KERNEL_FIELD(name) __typeof__(&kernel_##name) name;
    KERNEL_TABLE(CUDA_KERNEL_FIELD)
#undef CUDA_KERNEL_FIELD
};

struct cuda_module;

/* Looks up every kernel of KERNEL_TABLE in a loaded module, and checks that every slot of the
 * module's tables of functions is filled. Needs no device.
 * Errors: STATUS_UNSUPPORTED  the module was built without plans
 *         STATUS_CONFLICT     a kernel or a slot is missing, by name */
enum status cuda_module_resolve(const struct cuda_module *module, struct cuda_kernels *kernels,
                                struct err *err);

#endif
