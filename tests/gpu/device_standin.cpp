/* The part of the module's table that tests of kernels use, over ordinary memory. */
#include "tests/standin/cuda/device/standin.h"

#include <cstdio>
#include <cstdlib>

extern "C" {
#include "kernels/table.h"
#include "tests/gpu/device.h"
}

static enum status memory_new(void **memory, size_t byte_count, uint8_t fill, struct err *err)
{
    (void)err;
    *memory = NULL;
    if (byte_count == 0)
        return STATUS_OK;
    *memory = aligned_alloc(256, (byte_count + 255) / 256 * 256);
    if (*memory == NULL)
        return STATUS_MEMORY;
    memset(*memory, fill, byte_count);
    return STATUS_OK;
}

static void memory_free(void **memory)
{
    free(*memory);
    *memory = NULL;
}

static enum status copy(void *to, const void *from, size_t byte_count, struct err *err)
{
    (void)err;
    memcpy(to, from, byte_count);
    return STATUS_OK;
}

static enum status sync_all(struct err *err)
{
    (void)err;
    return STATUS_OK;
}

const struct cuda_module *device_open(uint64_t seed, char name[256], struct err *err)
{
    static struct cuda_module module;

    (void)err;
    standin_seed(seed);
    (void)snprintf(name, 256, "the CPU's stand-in");
    module.abi = CUDA_MODULE_ABI;
    module.build = "kernels compiled as C++";
    module.memory_new = memory_new;
    module.memory_free = memory_free;
    module.copy_in = copy;
    module.copy_out = copy;
    module.sync = sync_all;
    module.kernel = kernel_find;
    return &module;
}
