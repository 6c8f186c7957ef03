/* A module as ddp_cuda.so is one, over the tables of standin.h: with DDP_CUDA_MODULE set to it (and
 * the stand-in driver beside it in LD_LIBRARY_PATH) ddp-worker --device cuda trains through the
 * whole CUDA backend on a machine without a GPU. It is one GPU, which every process sees (STANDIN_DEVICES: more, see
 * standin.h).
 * STANDIN_BUILD_MS, STANDIN_RESET_MS: how long plans and the end take.
 * STANDIN_CAPABILITIES: the compute capabilities of the devices, "75,90". */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* -- NCCL: there is one GPU, and NCCL takes one rank a GPU -- */

struct nccl_link {
    bool is_aborted;
};

static enum status id_new(const char *library, const char *address, uint8_t id[NCCL_ID_BYTES],
                          struct err *err)
{
    (void)library;
    (void)address;
    (void)err;
    memset(id, 'i', NCCL_ID_BYTES);
    return STATUS_OK;
}

static enum status link_open(struct nccl_link **link, const struct nccl_link_options *options,
                             struct err *err)
{
    *link = NULL;
    if (options->world > 1)
        return err_set(err, STATUS_LIBRARY, 5, "stand-in NCCL: %u ranks on one GPU",
                       options->world);
    *link = calloc(1, sizeof **link);
    if (*link == NULL)
        return err_set(err, STATUS_MEMORY, 0, "stand-in NCCL: out of memory");
    return STATUS_OK;
}

static enum status register_memory(struct nccl_link *link, void *memory, size_t bytes,
                                   struct err *err)
{
    (void)link;
    (void)memory;
    (void)bytes;
    (void)err;
    return STATUS_OK;
}

/* Of one rank: what is there stays. */
static void run_sum(void *args)
{
    (void)args;
}

static enum status shared_new(const char *library, void **memory, size_t bytes, struct err *err)
{
    (void)library;
    return standin_runtime.memory_new(memory, bytes, err);
}

static void shared_free(const char *library, void **memory)
{
    (void)library;
    standin_runtime.memory_free(memory);
}

static enum status check_link(struct nccl_link *link, struct err *err)
{
    return link->is_aborted ? err_set(err, STATUS_CLOSED, 0, "NCCL was ended") : STATUS_OK;
}

static enum status queue_sum(struct nccl_link *link, void *memory, size_t count,
                             enum graph_dtype dtype, struct CUstream_st *stream, struct err *err)
{
    (void)dtype;
    assert(memory != NULL && count > 0);
    assert(stream != NULL);
    if (link->is_aborted)
        return check_link(link, err);
    return standin_runtime.launched(standin_queue(stream, run_sum, &count, sizeof count), "NCCL",
                                    err);
}

static void link_abort(struct nccl_link *link)
{
    link->is_aborted = true;
}

static void link_close(struct nccl_link **link, uint64_t timeout_us)
{
    (void)timeout_us;
    free(*link);
    *link = NULL;
}

static const struct cuda_nccl nccl = {.id_new = id_new,
                                      .open = link_open,
                                      .memory_new = shared_new,
                                      .memory_free = shared_free,
                                      .register_memory = register_memory,
                                      .queue_sum = queue_sum,
                                      .check = check_link,
                                      .abort = link_abort,
                                      .close = link_close};

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
        .nccl = &nccl,
        .plans = &plans,
    };

    runtime = standin_runtime;
    runtime.device_reset = device_reset;
    plans = standin_plans;
    plans.build = build;
    return &module;
}
