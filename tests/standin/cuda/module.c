/* A module as ddp_cuda.so is one, over the tables of standin.h: with DDP_CUDA_MODULE set to it (and
 * the stand-in driver beside it in LD_LIBRARY_PATH) ddp-worker --device cuda trains through the
 * whole CUDA backend on a machine without a GPU. It is one GPU, which every process sees (STANDIN_DEVICES: more, see
 * standin.h).
 * STANDIN_BUILD_MS, STANDIN_RESET_MS: how long plans and the end take.
 * STANDIN_CAPABILITIES: the compute capabilities of the devices, "75,90". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/standin/cuda/nccl.h"
#include "tests/standin/cuda/standin.h"
#include "worker/backend/cuda/module/module.h"

enum { DRIVER_CUDA = 13000 };

/* The entry of STANDIN_CAPABILITIES for this device, "75,90"; else 90. */
static uint32_t capability_of(uint32_t index)
{
    const char *at = getenv("STANDIN_CAPABILITIES");

    while (at != NULL && index > 0) {
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
        index--;
    }
    return at != NULL ? (uint32_t)strtoul(at, NULL, 10) : 90;
}

static enum status device_count(uint32_t *count, struct err *err)
{
    (void)err;
    *count = standin_device_count();
    return STATUS_OK;
}

static enum status device_query(uint32_t index, struct cuda_device *device, struct err *err)
{
    const uint32_t capability = capability_of(index);

    if (index >= standin_device_count())
        return err_set(err, STATUS_UNSUPPORTED, 0, "no CUDA device %u: the stand-in has %u", index,
                       standin_device_count());
    if (capability < 80)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "device %u (stand-in GPU) has compute capability %u.%u; 8.0 or newer is "
                       "needed",
                       index, capability / 10, capability % 10);
    if (standin_runtime.device_use(index, err) != STATUS_OK)
        return err->status;
    *device = (struct cuda_device){.name = "stand-in GPU",
                                   .memory_bytes = (uint64_t)4 << 30,
                                   .capability = capability,
                                   .device_count = standin_device_count(),
                                   .uuid = "stand-in GPU 0",
                                   .driver_cuda = DRIVER_CUDA};
    return STATUS_OK;
}

/* -- memory and copies that wait -- */

struct fill {
    void *memory;
    size_t bytes;
    uint8_t value;
};

static void run_fill(void *args)
{
    const struct fill *fill = args;

    memset(fill->memory, fill->value, fill->bytes);
}

static enum status memory_new(void **memory, size_t byte_count, uint8_t value, struct err *err)
{
    enum status status = standin_runtime.memory_new(memory, byte_count, err);
    struct fill fill = {*memory, byte_count, value};

    if (status == STATUS_OK && byte_count > 0)
        standin_run(run_fill, &fill);
    return status;
}

static void memory_free(void **memory)
{
    standin_runtime.memory_free(memory);
}

static enum status copy_now(void *to, const void *from, size_t byte_count, struct err *err)
{
    struct standin_copy copy = {to, from, byte_count};

    (void)err;
    standin_run(standin_run_copy, &copy);
    return STATUS_OK;
}

static enum status sync_all(struct err *err)
{
    (void)err;
    standin_sync();
    return STATUS_OK;
}

static kernel_function find(const char *name)
{
#define FIND(kernel_name)                                                                          \
    if (strcmp(name, #kernel_name) == 0)                                                           \
        return (kernel_function)standin_kernels.kernel_name;

    KERNEL_TABLE(FIND)
#undef FIND
    return NULL;
}

/* -- what takes a moment on a GPU, and so can be met by a signal -- */

static void pause_ms(const char *variable)
{
    const char *text = getenv(variable);
    const long ms = text != NULL ? strtol(text, NULL, 10) : 0;
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&pause, NULL);
}

static enum status build(struct plan_set *set, const struct plan_request *requests, uint32_t count,
                         struct err *err)
{
    pause_ms("STANDIN_BUILD_MS");
    return standin_plans.build(set, requests, count, err);
}

static void device_reset(void)
{
    pause_ms("STANDIN_RESET_MS");
    standin_runtime.device_reset();
}

const struct cuda_module *ddp_cuda_module(void)
{
    static struct cuda_runtime runtime;
    static struct cuda_plans plans;
    static const struct cuda_module module = {
        .abi = CUDA_MODULE_ABI,
        .build = "ddp " DDP_VERSION ", stand-in",
        .runtime_cuda = DRIVER_CUDA,
        .device_count = device_count,
        .device_query = device_query,
        .memory_new = memory_new,
        .memory_free = memory_free,
        .copy_in = copy_now,
        .copy_out = copy_now,
        .sync = sync_all,
        .kernel = find,
        .runtime = &runtime,
        .nccl = &standin_nccl,
        .plans = &plans,
    };

    runtime = standin_runtime;
    runtime.device_reset = device_reset;
    plans = standin_plans;
    plans.build = build;
    return &module;
}
