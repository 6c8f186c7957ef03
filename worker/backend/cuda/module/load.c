/* Order of the checks: the module first (was this build made for CUDA at all?), then the driver
 * (does it exist, is it new enough for the module?), then the device. Each refusal is final for the
 * process; the caller decides between --device cpu and giving up. */
#include "worker/backend/cuda/module/load.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES_MAX 1024
#define DRIVER_NAME "libcuda.so.1"

/* "DIR/name" for the folder of the running program; false if it is too long or not readable. */
static bool beside_program(const char *name, char path[PATH_BYTES_MAX])
{
    char program[PATH_BYTES_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash;
    int written;

    if (length <= 0)
        return false;
    program[length] = '\0';
    slash = strrchr(program, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    written = snprintf(path, PATH_BYTES_MAX, "%s/%s", program, name);
    return written > 0 && written < PATH_BYTES_MAX && access(path, R_OK) == 0;
}

static enum status find_module(const char *wanted, char path[PATH_BYTES_MAX], struct err *err)
{
    if (wanted == NULL)
        wanted = getenv("DDP_CUDA_MODULE");
    if (wanted != NULL && wanted[0] != '\0') {
        if (snprintf(path, PATH_BYTES_MAX, "%s", wanted) >= PATH_BYTES_MAX)
            return err_set(err, STATUS_TOO_BIG, 0, "CUDA module path over %d bytes",
                           PATH_BYTES_MAX - 1);
        if (access(path, R_OK) == 0)
            return STATUS_OK;
        return err_set(err, STATUS_NOT_FOUND, 0, "CUDA module %s is not there", path);
    }
    if (beside_program("backend/cuda/ddp_cuda.so", path) ||
        beside_program("../" CUDA_MODULE_LIBDIR "/ddp/ddp_cuda.so", path))
        return STATUS_OK;
    return err_set(err, STATUS_NOT_FOUND, 0,
                   "the CUDA module (ddp_cuda.so) is not there: install the package "
                   "ddp-launcher-cuda, or build with -Dcuda=enabled where the CUDA Toolkit is, or "
                   "use --device cpu");
}

static const char *dl_text(void)
{
    const char *text = dlerror();

    return text != NULL ? text : "no reason given";
}

static enum status open_module(const char *path, const struct cuda_module **module, struct err *err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cuda_module_function function;
    const struct cuda_module *found;

    if (library == NULL)
        return err_set(err, STATUS_CONFLICT, 0, "CUDA module: %s", dl_text());
    *(void **)&function = dlsym(library, CUDA_MODULE_SYMBOL); /* as POSIX says to, dlsym(3) */
    if (function == NULL) {
        (void)dlclose(library);
        return err_set(err, STATUS_CONFLICT, 0, "%s is not a ddp CUDA module: it has no %s", path,
                       CUDA_MODULE_SYMBOL);
    }
    found = function();
    if (found->abi != CUDA_MODULE_ABI) {
        enum status status = err_set(err, STATUS_CONFLICT, 0,
                                     "CUDA module %s (%s) has interface %u, this program %d: "
                                     "install both from one build",
                                     path, found->build, found->abi, CUDA_MODULE_ABI);
        (void)dlclose(library);
        return status;
    }
    *module = found;
    return STATUS_OK;
}

/* Requires that the driver supports at least the module's major CUDA version (NVIDIA's minor
 * version compatibility: CUDA Compatibility guide, section 2). */
static enum status check_driver(const char *name, const struct cuda_module *module, struct err *err)
{
    uint32_t major = module->runtime_cuda / 1000;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int (*get_version)(int *version);
    int version = 0, code;

    if (library == NULL)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "NVIDIA driver library: %s; this build (CUDA %u.%u) needs a driver for "
                       "CUDA %u or newer, or use --device cpu",
                       dl_text(), major, module->runtime_cuda % 1000 / 10, major);
    *(void **)&get_version = dlsym(library, "cuDriverGetVersion");
    if (get_version == NULL)
        return err_set(err, STATUS_UNSUPPORTED, 0, "%s has no cuDriverGetVersion", name);
    code = get_version(&version);
    if (code != 0)
        return err_set(err, STATUS_UNSUPPORTED, code, "%s: cuDriverGetVersion failed with %d", name,
                       code);
    if (version < 0 || (uint32_t)version / 1000 < major)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "%s serves CUDA %d.%d; this build needs %u.0 or newer: update the NVIDIA "
                       "driver, or use --device cpu",
                       name, version / 1000, version % 1000 / 10, major);
    return STATUS_OK;
}

enum status cuda_load_module(const char *path, const struct cuda_module **module, struct err *err)
{
    char found[PATH_BYTES_MAX];
    enum status status = find_module(path, found, err);

    *module = NULL;
    if (status == STATUS_OK)
        status = open_module(found, module, err);
    assert((status == STATUS_OK) == (*module != NULL));
    return status;
}

enum status cuda_load_driver(const struct cuda_load_options *options,
                             const struct cuda_module **module, struct err *err)
{
    const char *driver = options->driver_name != NULL ? options->driver_name : DRIVER_NAME;
    const struct cuda_module *found;
    enum status status = cuda_load_module(options->module_path, &found, err);

    if (status == STATUS_OK)
        status = check_driver(driver, found, err);
    if (status == STATUS_OK)
        *module = found;
    return status;
}

enum status cuda_load(const struct cuda_load_options *options, const struct cuda_module **module,
                      struct cuda_device *device, struct err *err)
{
    const struct cuda_module *found;
    enum status status = cuda_load_driver(options, &found, err);

    if (status == STATUS_OK)
        status = found->device_query(options->device_index, device, err);
    if (status == STATUS_OK)
        *module = found;
    return status;
}
