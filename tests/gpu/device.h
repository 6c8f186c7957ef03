/* What runs the kernels: the CUDA module on a GPU (device_gpu.c), or the stand-in on this CPU
 * (device_standin.c). A test program links one of them. */
#ifndef TESTS_GPU_DEVICE_H
#define TESTS_GPU_DEVICE_H

#include "tests/lib/test.h"
#include "worker/backend/cuda/module/module.h"

/* Fails with the words of what `call` put into `err_`. */
#define CHECK_CUDA(call)                                                                           \
    do {                                                                                           \
        struct err err_;                                                                           \
        if ((call) != STATUS_OK)                                                                   \
            FAIL("%s", err_.text);                                                                 \
    } while (0)

/* The module, with its device made current; NULL and a reason in `err` where there is none. `seed`
 * is for what is random in the device itself. `name` [256]: of the device. */
const struct cuda_module *device_open(uint64_t seed, char name[256], struct err *err);

#endif
