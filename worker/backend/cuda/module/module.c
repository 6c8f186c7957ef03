/* ddp_cuda.so: the function table over the CUDA runtime and our kernels. It is linked with the
 * static runtime, which opens the driver itself: loading this module needs no CUDA library on the
 * machine. */
#include "worker/backend/cuda/module/module.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

static enum status fail(struct err *err, const char *what, cudaError_t error)
{
    (void)cudaGetLastError(); /* clear it, so that the next call does not report it again */
    return err_set(err, error == cudaErrorMemoryAllocation ? STATUS_MEMORY : STATUS_LIBRARY,
                   (int)error, "CUDA %s: %s (%s)", what, cudaGetErrorString(error),
                   cudaGetErrorName(error));
}

static enum status device_count(uint32_t *count, struct err *err)
{
    int found = 0;
    cudaError_t error = cudaGetDeviceCount(&found);

    *count = 0;
    if (error != cudaSuccess || found <= 0) {
        (void)cudaGetLastError();
        return err_set(err, STATUS_UNSUPPORTED, (int)error, "no CUDA device: %s",
                       error != cudaSuccess ? cudaGetErrorString(error) : "the driver counts 0");
    }
    *count = (uint32_t)found;
    return STATUS_OK;
}

static enum status device_query(uint32_t index, struct cuda_device *device, struct err *err)
{
    struct cudaDeviceProp prop;
    uint32_t count;
    int driver = 0;
    cudaError_t error;
    enum status status = device_count(&count, err);

    if (status != STATUS_OK)
        return status;
    if (index >= count)
        return err_set(err, STATUS_UNSUPPORTED, 0, "no CUDA device %u: the driver counts %u", index,
                       count);
    error = cudaGetDeviceProperties(&prop, (int)index);
    if (error == cudaSuccess)
        error = cudaDriverGetVersion(&driver);
    if (error != cudaSuccess)
        return fail(err, "device properties", error);
    if (prop.major < 8)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "device %u (%s) has compute capability %d.%d; 8.0 or newer is needed", index,
                       prop.name, prop.major, prop.minor);
    error = cudaSetDevice((int)index); /* makes a context, from CUDA 12 on */
    if (error != cudaSuccess)
        return fail(err, "device set-up", error);
    *device = (struct cuda_device){.memory_bytes = prop.totalGlobalMem,
                                   .capability = (uint32_t)(prop.major * 10 + prop.minor),
                                   .device_count = count,
                                   .driver_cuda = (uint32_t)driver};
    (void)snprintf(device->name, sizeof device->name, "%s", prop.name);
    memcpy(device->uuid, &prop.uuid, sizeof device->uuid);
    return STATUS_OK;
}

static void memory_free(void **memory)
{
    (void)cudaFree(*memory);
    *memory = NULL;
}

/* Waits for the default stream. cudaMemcpy from pageable memory and cudaMemset may return before
 * they are done, and the backend's own streams do not wait for the default stream. */
static cudaError_t settle(cudaError_t error)
{
    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

static enum status memory_new(void **memory, size_t byte_count, uint8_t fill, struct err *err)
{
    cudaError_t error;

    *memory = NULL;
    if (byte_count == 0)
        return STATUS_OK;
    error = cudaMalloc(memory, byte_count);
    if (error != cudaSuccess)
        return fail(err, "allocation", error);
    error = settle(cudaMemset(*memory, fill, byte_count));
    if (error != cudaSuccess) {
        memory_free(memory);
        return fail(err, "memset", error);
    }
    return STATUS_OK;
}

static enum status copy_in(void *device, const void *host, size_t byte_count, struct err *err)
{
    cudaError_t error = settle(cudaMemcpy(device, host, byte_count, cudaMemcpyHostToDevice));

    return error == cudaSuccess ? STATUS_OK : fail(err, "copy to the device", error);
}

static enum status copy_out(void *host, const void *device, size_t byte_count, struct err *err)
{
    cudaError_t error = cudaMemcpy(host, device, byte_count, cudaMemcpyDeviceToHost);

    return error == cudaSuccess ? STATUS_OK : fail(err, "copy from the device", error);
}

static enum status sync_all(struct err *err)
{
    cudaError_t error = cudaDeviceSynchronize();

    return error == cudaSuccess ? STATUS_OK : fail(err, "work on the device", error);
}

const struct cuda_module *ddp_cuda_module(void)
{
    static const struct cuda_module module = {
        .abi = CUDA_MODULE_ABI,
        .build = CUDA_MODULE_BUILD,
        .runtime_cuda = CUDART_VERSION,
        .device_count = device_count,
        .device_query = device_query,
        .memory_new = memory_new,
        .memory_free = memory_free,
        .copy_in = copy_in,
        .copy_out = copy_out,
        .sync = sync_all,
        .kernel = kernel_find,
        .runtime = &cuda_runtime,
#ifdef CUDA_HAS_PLANS
        .nccl = &cuda_nccl,
        .plans = &cuda_plans,
#endif
    };

    return &module;
}
