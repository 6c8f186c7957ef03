/* Stands in for the CUDA module or for the driver, with the one error that its build selects; with
 * GOOD it is a module of our version that finds no device. */
#include <stdio.h>

#include "worker/backend/cuda/module/module.h"

#if defined(OLD_DRIVER)
/* A driver's library that serves CUDA 12.2. */
__attribute__((visibility("default"))) int cuDriverGetVersion(int *version);

int cuDriverGetVersion(int *version)
{
    *version = 12020;
    return 0;
}
#elif defined(WRONG_ENTRY)
__attribute__((visibility("default"))) int not_a_module(void);

int not_a_module(void)
{
    return 0;
}
#else
#if !defined(RUNTIME_CUDA)
#define RUNTIME_CUDA 13000
#endif
#if defined(WRONG_SYMBOL)
int defined_nowhere(void);
#endif

static enum status no_device(uint32_t index, struct cuda_device *device, struct err *err)
{
    (void)index;
    (void)device;
    (void)snprintf(err->text, sizeof err->text, "a test's module has no device");
#if defined(WRONG_SYMBOL)
    (void)defined_nowhere();
#endif
    return STATUS_UNSUPPORTED;
}

static enum status no_count(uint32_t *count, struct err *err)
{
    *count = 0;
    return no_device(0, NULL, err);
}

const struct cuda_module *ddp_cuda_module(void)
{
    static const struct cuda_module module = {
#if defined(WRONG_ABI)
        .abi = CUDA_MODULE_ABI + 1,
#else
        .abi = CUDA_MODULE_ABI,
#endif
        .build = "a test's module",
        .runtime_cuda = RUNTIME_CUDA,
        .device_count = no_count,
        .device_query = no_device,
    };

    return &module;
}
#endif
