/* The ranks share a file of the GPU's folder (STANDIN_CARD), whose path is the unique id. Each writes its values there,
 * and reads those of all when everybody has come. */
#include "tests/standin/cuda/nccl.h"

#include <assert.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "kernels/half.h"
#include "tests/standin/cuda/standin.h"

enum { WORLD_MAX = 4, CHUNK = 65536, NAP_NS = 50000, OLD = 22809, FIRST_SHARED = 23000 };

struct board {
    atomic_uint joined;
    atomic_ullong came; /* ranks, over all meetings */
    float values[WORLD_MAX][CHUNK];
};

struct nccl_link {
    struct board *board; /* NULL: a world of one */
    uint32_t rank, world;
    uint64_t meetings;
    atomic_bool is_aborted;
};

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static enum status find(const char *library, struct nccl_found *found, struct err *err)
{
    const char *file = getenv("DDP_NCCL");
    void *opened;
    int (*get_version)(int *version) = NULL;
    int version = OLD;

    (void)library;
    *found = (struct nccl_found){.version = OLD, .path = "stand-in"};
    if (file == NULL || file[0] == '\0')
        return STATUS_OK;
    opened = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (opened != NULL)
        *(void **)&get_version = dlsym(opened, "ncclGetVersion");
    if (get_version == NULL || get_version(&version) != 0)
        return err_set(err, STATUS_NOT_FOUND, 0, "NCCL of DDP_NCCL cannot be opened: %.80s", file);
    found->version = (uint32_t)version;
    (void)snprintf(found->path, sizeof found->path, "%s", file);
    return STATUS_OK;
}

static enum status id_new(const char *library, const char *address, uint8_t id[NCCL_ID_BYTES],
                          struct err *err)
{
    const char *folder = getenv("STANDIN_CARD");
    char path[NCCL_ID_BYTES];
    int fd;

    (void)library;
    (void)address;
    if (snprintf(path, sizeof path, "%s/nccl-XXXXXX", folder != NULL ? folder : "/tmp") >=
        NCCL_ID_BYTES)
        return err_set(err, STATUS_TOO_BIG, 0, "stand-in NCCL: %s is too long", folder);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct board)) != 0)
        return err_set(err, STATUS_SYSTEM, 0, "stand-in NCCL: %s cannot be made", path);
    (void)close(fd);
    memcpy(id, path, NCCL_ID_BYTES);
    return STATUS_OK;
}

static enum status may_share(struct err *err)
{
    const char *asked = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    struct nccl_found found;
    enum status status = find(NULL, &found, err);

    if (status == STATUS_OK &&
        (found.version < FIRST_SHARED || asked == NULL || strtol(asked, NULL, 10) == 0))
        status = err_set(err, STATUS_LIBRARY, 5, "stand-in NCCL: several ranks are on one GPU");
    return status;
}

static enum status map_board(struct board **board, const char *path, struct err *err)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    void *mapped = MAP_FAILED;

    if (fd >= 0) {
        mapped = mmap(NULL, sizeof **board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        (void)close(fd);
    }
    if (mapped == MAP_FAILED)
        return err_set(err, STATUS_SYSTEM, 0, "stand-in NCCL: %.100s cannot be opened", path);
    *board = mapped;
    return STATUS_OK;
}

static enum status wait_joined(const struct nccl_link *link,
                               const struct nccl_link_options *options, struct err *err)
{
    const uint64_t until_us = mono_us() + options->timeout_us;

    (void)atomic_fetch_add(&link->board->joined, 1);
    while (atomic_load(&link->board->joined) < link->world) {
        if (options->gone != NULL && options->gone(options->user, err))
            return err->status;
        if (mono_us() > until_us)
            return err_set(err, STATUS_TIMEOUT, 0, "stand-in NCCL: not all ranks came");
        nap();
    }
    return STATUS_OK;
}

static void link_close(struct nccl_link **link, uint64_t timeout_us)
{
    (void)timeout_us;
    if (*link != NULL && (*link)->board != NULL)
        (void)munmap((*link)->board, sizeof *(*link)->board);
    free(*link);
    *link = NULL;
}

static enum status link_open(struct nccl_link **out, const struct nccl_link_options *options,
                             struct err *err)
{
    const char *path = (const char *)options->id;
    struct nccl_link *link = calloc(1, sizeof *link);
    enum status status = STATUS_OK;

    assert(link != NULL && options->world <= WORLD_MAX);
    link->rank = options->rank;
    link->world = options->world;
    if (link->world > 1)
        status = may_share(err);
    if (status == STATUS_OK && link->world > 1)
        status = map_board(&link->board, path, err);
    if (status == STATUS_OK && link->world > 1)
        status = wait_joined(link, options, err);
    if (path[0] == '/')
        (void)unlink(path); /* everybody has it open, or nobody needs it */
    if (status != STATUS_OK)
        link_close(&link, 0);
    *out = link;
    return status;
}

/* -- use -- */

/* False: the link was aborted before all came. */
static bool meet(struct nccl_link *link)
{
    const uint64_t all = ++link->meetings * link->world;

    (void)atomic_fetch_add(&link->board->came, 1);
    while (atomic_load(&link->board->came) < all) {
        if (atomic_load(&link->is_aborted))
            return false;
        nap();
    }
    return true;
}

struct sum {
    struct nccl_link *link;
    void *memory;
    size_t count;
    enum graph_dtype dtype;
};

static float get(const struct sum *sum, size_t i)
{
    if (sum->dtype == GRAPH_F32)
        return ((const float *)sum->memory)[i];
    return sum->dtype == GRAPH_F16 ? half_f16_to(((const uint16_t *)sum->memory)[i])
                                   : half_bf16_to(((const uint16_t *)sum->memory)[i]);
}

static void put(const struct sum *sum, size_t i, float value)
{
    if (sum->dtype == GRAPH_F32)
        ((float *)sum->memory)[i] = value;
    else
        ((uint16_t *)sum->memory)[i] =
            sum->dtype == GRAPH_F16 ? half_f16_from(value) : half_bf16_from(value);
}

/* A call of the stream. */
static void run_sum(void *args)
{
    const struct sum *sum = args;
    struct nccl_link *link = sum->link;

    for (size_t at = 0; link->board != NULL && at < sum->count; at += CHUNK) {
        const size_t count = sum->count - at < CHUNK ? sum->count - at : CHUNK;

        for (size_t i = 0; i < count; i++)
            link->board->values[link->rank][i] = get(sum, at + i);
        if (!meet(link))
            return;
        for (size_t i = 0; i < count; i++) {
            float total = 0.0F;

            for (uint32_t rank = 0; rank < link->world; rank++)
                total += link->board->values[rank][i];
            put(sum, at + i, total);
        }
        if (!meet(link)) /* nobody writes before all have read */
            return;
    }
}

static enum status check_link(struct nccl_link *link, struct err *err)
{
    return atomic_load(&link->is_aborted) ? err_set(err, STATUS_CLOSED, 0, "NCCL was ended")
                                          : STATUS_OK;
}

static enum status queue_sum(struct nccl_link *link, void *memory, size_t count,
                             enum graph_dtype dtype, struct CUstream_st *stream, struct err *err)
{
    const struct sum sum = {link, memory, count, dtype};

    assert(memory != NULL && count > 0 && stream != NULL);
    if (check_link(link, err) != STATUS_OK)
        return err->status;
    return standin_runtime.launched(standin_queue(stream, run_sum, &sum, sizeof sum), "NCCL", err);
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

static enum status memory_new(const char *library, void **memory, size_t bytes, struct err *err)
{
    (void)library;
    return standin_runtime.memory_new(memory, bytes, err);
}

static void memory_free(const char *library, void **memory)
{
    (void)library;
    standin_runtime.memory_free(memory);
}

static void link_abort(struct nccl_link *link)
{
    atomic_store(&link->is_aborted, true);
}

const struct cuda_nccl standin_nccl = {.find = find,
                                       .id_new = id_new,
                                       .open = link_open,
                                       .memory_new = memory_new,
                                       .memory_free = memory_free,
                                       .register_memory = register_memory,
                                       .queue_sum = queue_sum,
                                       .check = check_link,
                                       .abort = link_abort,
                                       .close = link_close};
