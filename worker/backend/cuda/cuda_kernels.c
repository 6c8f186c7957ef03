#include "worker/backend/cuda/cuda_kernels.h"

#include <stddef.h>

enum status cuda_kernels_find(struct cuda_kernels *kernels,
                              kernel_function (*find)(const char *name), struct err *err)
{
#define CUDA_KERNEL_FIND(name)                                                                     \
    kernels->name = KERNEL(find, name);                                                            \
    if (kernels->name == NULL)                                                                     \
        return err_set(err, STATUS_CONFLICT, 0, "CUDA module: it has no kernel " #name);

    CUDA_KERNEL_TABLE(CUDA_KERNEL_FIND)
#undef CUDA_KERNEL_FIND
    return STATUS_OK;
}
