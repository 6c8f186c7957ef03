/* How the module counts and describes GPUs (module.c), over a CUDA runtime of this file that follows
 * CUDA's documentation: from CUDA 12 on cudaSetDevice makes a context on the device; counting and
 * cudaGetDeviceProperties make none. */
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "tests/lib/test.h"
#include "worker/backend/cuda/module/module.h"

enum { GPUS = 3 };

static const int majors[GPUS] = {7, 9, 10};
static int count = GPUS;
static cudaError_t count_error = cudaSuccess;
static uint32_t contexts[GPUS];

const struct cuda_runtime cuda_runtime;

kernel_function kernel_find(const char *name)
{
    (void)name;
    return NULL;
}

cudaError_t cudaGetDeviceCount(int *out)
{
    *out = count_error == cudaSuccess ? count : 0;
    return count_error != cudaSuccess ? count_error : count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
    if (index < 0 || index >= count)
        return cudaErrorInvalidDevice;
    contexts[index]++;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int index)
{
    if (index < 0 || index >= count)
        return cudaErrorInvalidDevice;
    memset(prop, 0, sizeof *prop);
    (void)snprintf(prop->name, sizeof prop->name, "GPU %d", index);
    prop->major = majors[index];
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorInsufficientDriver ? "the driver is too old" : "an error";
}

const char *cudaGetErrorName(cudaError_t error)
{
    (void)error;
    return "cudaErrorUnknown";
}

/* -- not called here -- */

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    (void)bytes;
    *memory = NULL;
    return cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
    (void)memory;
    return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    (void)memory;
    (void)value;
    (void)bytes;
    return cudaErrorUnknown;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)to;
    (void)from;
    (void)bytes;
    (void)kind;
    return cudaErrorUnknown;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaErrorUnknown;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaErrorUnknown;
}

/* -- tests -- */

static void check_contexts(uint32_t first, uint32_t second, uint32_t third)
{
    CHECK_EQ(contexts[0], first);
    CHECK_EQ(contexts[1], second);
    CHECK_EQ(contexts[2], third);
}

TEST(counting_makes_no_context)
{
    struct err err = {.text = ""};
    uint32_t found = 0;

    CHECK_EQ(ddp_cuda_module()->device_count(&found, &err), STATUS_OK);
    CHECK_EQ(found, GPUS);
    check_contexts(0, 0, 0);
    count = 0;
    CHECK_EQ(ddp_cuda_module()->device_count(&found, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "no CUDA device") != NULL);
    count = GPUS;
    count_error = cudaErrorInsufficientDriver;
    CHECK_EQ(ddp_cuda_module()->device_count(&found, &err), STATUS_UNSUPPORTED);
    count_error = cudaSuccess;
    CHECK_STR(err.text, "no CUDA device: the driver is too old");
}

TEST(only_the_queried_device_gets_a_context)
{
    struct cuda_device device;
    struct err err = {.text = ""};

    memset(contexts, 0, sizeof contexts);
    CHECK_EQ(ddp_cuda_module()->device_query(2, &device, &err), STATUS_OK);
    CHECK_STR(device.name, "GPU 2");
    CHECK_EQ(device.capability, 100);
    CHECK_EQ(device.device_count, GPUS);
    check_contexts(0, 0, 1);
}

TEST(a_refused_device_gets_none)
{
    struct cuda_device device;
    struct err err = {.text = ""};

    memset(contexts, 0, sizeof contexts);
    CHECK_EQ(ddp_cuda_module()->device_query(0, &device, &err), STATUS_UNSUPPORTED);
    CHECK_STR(err.text, "device 0 (GPU 0) has compute capability 7.0; 8.0 or newer is needed");
    CHECK_EQ(ddp_cuda_module()->device_query(GPUS, &device, &err), STATUS_UNSUPPORTED);
    CHECK_STR(err.text, "no CUDA device 3: the driver counts 3");
    check_contexts(0, 0, 0);
}

TEST_MAIN
