#include "worker/backend/cuda/exec/kernels.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "worker/backend/cuda/module/module.h"

static enum status find_kernels(const struct cuda_module *module, struct cuda_kernels *kernels,
                                struct err *err)
{
#define CUDA_KERNEL_FIND(name)                                                                     \
    kernels->name = KERNEL(module->kernel, name);                                                  \
    if (kernels->name == NULL)                                                                     \
        return err_set(err, STATUS_CONFLICT, 0, "CUDA module (%s): it has no kernel " #name,       \
                       module->build);

    KERNEL_TABLE(CUDA_KERNEL_FIND)
#undef CUDA_KERNEL_FIND
    return STATUS_OK;
}

/* A table is a struct that contains only pointers to functions. */
static enum status check_slots(const struct cuda_module *module, const char *name,
                               const void *table, size_t table_bytes, struct err *err)
{
    const size_t count = table_bytes / sizeof(kernel_function);
    kernel_function slot;

    assert(table_bytes % sizeof slot == 0);
    for (size_t i = 0; i < count; i++) {
        memcpy(&slot, (const char *)table + i * sizeof slot, sizeof slot);
        if (slot == NULL)
            return err_set(err, STATUS_CONFLICT, 0,
                           "CUDA module (%s): slot %zu of %zu of its %s table is empty",
                           module->build, i, count, name);
    }
    return STATUS_OK;
}

enum status cuda_module_resolve(const struct cuda_module *module, struct cuda_kernels *kernels,
                                struct err *err)
{
    enum status status;

    assert(module->abi == CUDA_MODULE_ABI); /* cuda_load refuses any other */
    if (module->runtime == NULL || module->kernel == NULL || module->plans == NULL ||
        module->nccl == NULL)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "CUDA module (%s) was built without cuDNN: build where its headers are, or "
                       "use --device cpu",
                       module->build);
    status = find_kernels(module, kernels, err);
    if (status == STATUS_OK)
        status = check_slots(module, "runtime", module->runtime, sizeof *module->runtime, err);
    if (status == STATUS_OK)
        status = check_slots(module, "plan", module->plans, sizeof *module->plans, err);
    if (status == STATUS_OK)
        status = check_slots(module, "NCCL", module->nccl, sizeof *module->nccl, err);
    return status;
}
