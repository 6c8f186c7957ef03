#include "tests/gpu/device.h"

#include <stdio.h>

#include "worker/backend/cuda/module/load.h"

const struct cuda_module *device_open(uint64_t seed, char name[256], struct err *err)
{
    const struct cuda_load_options options = {.device_index = 0};
    const struct cuda_module *module = NULL;
    struct cuda_device device;

    (void)seed;
    if (cuda_load(&options, &module, &device, err) != STATUS_OK)
        return NULL;
    (void)snprintf(name, 256, "%s", device.name);
    return module;
}
