/* The interface of ddp_cuda.so, the only part of the product that links CUDA. It is loaded at run
 * time (load.h), so the same ddp-worker runs on machines with and without a GPU.
 *
 * The module exports one function, ddp_cuda_module(), which returns the table below. `abi` and
 * `build` must never move, so that a program can refuse a module of another version and name that
 * version. Every call except device_count and device_query needs a device; calls are made from one
 * thread. */
#ifndef WORKER_BACKEND_CUDA_MODULE_MODULE_H
#define WORKER_BACKEND_CUDA_MODULE_MODULE_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/table.h"
#include "worker/backend/cuda/nccl/nccl.h"
#include "worker/backend/cuda/module/runtime.h"
#include "worker/backend/cuda/plans/plans.h"

#define CUDA_MODULE_ABI 16 /* increase with every change of the table */
#define CUDA_MODULE_SYMBOL "ddp_cuda_module"

/* One GPU as the CUDA runtime sees it. */
struct cuda_device {
    char name[256];
    uint64_t memory_bytes;
    uint32_t capability; /* 90 for compute capability 9.0 */
    uint32_t device_count;
    uint8_t uuid[16];     /* the same in every process that sees the device */
    uint32_t driver_cuda; /* the newest CUDA that the driver supports, 13000 for 13.0 */
};

struct cuda_module {
    uint32_t abi;          /* CUDA_MODULE_ABI of the module's build */
    const char *build;     /* "ddp 0.1.0, CUDA 13.0, sm_80 sm_90 sm_100"; static */
    uint32_t runtime_cuda; /* the CUDA version that it was built with, 13000 for 13.0 */

    /* How many devices CUDA_VISIBLE_DEVICES leaves: at least 1. Makes none current, as that would
     * take memory on it. Errors: STATUS_UNSUPPORTED (no device, no driver). */
    enum status (*device_count)(uint32_t *count, struct err *err);
    /* Describe device `index`, then make it current; one that is refused is left alone. Errors:
     * STATUS_UNSUPPORTED (no such device, no driver, a device that the kernels were not built for),
     * with CUDA's code and words. */
    enum status (*device_query)(uint32_t index, struct cuda_device *device, struct err *err);

    /* Device memory, filled with the byte `fill`. STATUS_MEMORY, STATUS_LIBRARY. `*memory` is NULL
     * for 0 bytes. */
    enum status (*memory_new)(void **memory, size_t byte_count, uint8_t fill, struct err *err);
    void (*memory_free)(void **memory);
    /* Blocking copies; they wait for earlier work on the default stream. STATUS_LIBRARY. */
    enum status (*copy_in)(void *device, const void *host, size_t byte_count, struct err *err);
    enum status (*copy_out)(void *host, const void *device, size_t byte_count, struct err *err);
    /* Waits for everything queued; reports errors of that work. STATUS_LIBRARY. */
    enum status (*sync)(struct err *err);

    /* A kernel by its name; NULL: there is none. Its last argument is a stream; for the result see
     * its header. Names: kernels/table.h. */
    kernel_function (*kernel)(const char *name);

    const struct cuda_runtime *runtime; /* streams, events, captures */
    const struct cuda_nccl *nccl;       /* NULL: as for `plans` */
    const struct cuda_plans *plans;     /* NULL: the headers of cuDNN, cuBLAS or NCCL were missing
                                           in the build */
};

typedef const struct cuda_module *(*cuda_module_function)(void);

/* Exported by the module; programs reach it through cuda_load(). Never NULL. */
__attribute__((visibility("default"))) const struct cuda_module *ddp_cuda_module(void);

#endif
