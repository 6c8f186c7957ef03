/* Finds and opens the CUDA module, or says in one sentence why this machine cannot use it. Needs no
 * CUDA to build. */
#ifndef WORKER_BACKEND_CUDA_MODULE_LOAD_H
#define WORKER_BACKEND_CUDA_MODULE_LOAD_H

#include "worker/backend/cuda/module/module.h"

struct cuda_load_options {
    /* NULL: $DDP_CUDA_MODULE, else a path relative to the program: backend/cuda/ddp_cuda.so in a
     * build folder, ../lib/ddp/ddp_cuda.so in an installation. */
    const char *module_path;
    const char *driver_name; /* NULL: "libcuda.so.1"; tests give others */
    uint32_t device_index;   /* of cuda_load, among those that CUDA_VISIBLE_DEVICES makes visible */
};

/* Open the module, check its version, the driver's and the device's; the device becomes current.
 * The module stays loaded until the process ends: the CUDA runtime does not survive being unloaded.
 * Blocks; call from main only. On failure `err` names the library and the versions, and what to do.
 * Errors: STATUS_NOT_FOUND    no module: built without CUDA
 *         STATUS_CONFLICT     a module of another version
 *         STATUS_UNSUPPORTED  driver missing or too old, no device */
enum status cuda_load(const struct cuda_load_options *options, const struct cuda_module **module,
                      struct cuda_device *device, struct err *err);

/* cuda_load without its last step, the device: for a caller that counts devices before it chooses
 * one. Needs no device. */
enum status cuda_load_driver(const struct cuda_load_options *options,
                             const struct cuda_module **module, struct err *err);

/* The first part of cuda_load, which needs neither a driver nor a device: open the module and check
 * its version. path: as options.module_path. */
enum status cuda_load_module(const char *path, const struct cuda_module **module, struct err *err);

#endif
