/* A libnccl for machines without a GPU: the ABI of nccl.h, ranks are threads of one process,
 * buffers are host memory, streams are ignored. Calls are left unfinished as NCCL's are without
 * blocking, so that whoever uses it has to poll. */
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/standin/nccl/standin_nccl.h"

enum { WORLD_MAX = 16, CLUBS_MAX = 32, SIZE_LEAST = 32 };

#define CONFIG_MAGIC 0xcafebeef /* nccl.h, NCCL_CONFIG_INITIALIZER */

/* One communicator, shared by its ranks. */
struct club {
    uint64_t key;
    int world, came, left;
    int waiting;   /* in the all-reduce that is under way */
    uint64_t turn; /* all-reduces done */
    void *buffers[WORLD_MAX];
    size_t count;
};

struct ncclComm {
    struct club *club;
    int rank;
    uint64_t turn_planned; /* the all-reduce that this rank waits for */
    bool is_leaving, blocks;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct club clubs[CLUBS_MAX];
static uint64_t last_key;
static int version = NCCL_VERSION_CODE;
static ncclResult_t async_error = ncclSuccess;
static int registered, allocated;

void standin_nccl_version(int value)
{
    version = value;
}

void standin_nccl_async_error(int value)
{
    (void)pthread_mutex_lock(&lock);
    async_error = (ncclResult_t)value;
    (void)pthread_mutex_unlock(&lock);
}

int standin_nccl_registered(void)
{
    int count;

    (void)pthread_mutex_lock(&lock);
    count = registered;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

int standin_nccl_allocated(void)
{
    int count;

    (void)pthread_mutex_lock(&lock);
    count = allocated;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

static ncclResult_t count_allocated(int change)
{
    (void)pthread_mutex_lock(&lock);
    allocated += change;
    (void)pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

/* Not zeroed, as NCCL's is not. */
ncclResult_t ncclMemAlloc(void **memory, size_t bytes)
{
    *memory =
        bytes > 0 && bytes < SIZE_MAX / 2 ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    if (*memory == NULL)
        return ncclInvalidArgument;
    memset(*memory, 0x7b, bytes);
    return count_allocated(1);
}

ncclResult_t ncclMemFree(void *memory)
{
    if (memory == NULL)
        return ncclInvalidArgument;
    free(memory);
    return count_allocated(-1);
}

ncclResult_t ncclGetVersion(int *value)
{
    *value = version;
    return ncclSuccess;
}

/* NCCL's own words: a test compares them with the library's. */
const char *ncclGetErrorString(ncclResult_t rc)
{
    static const char *const texts[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        [ncclSystemError] = "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        [ncclInternalError] = "internal error - please report this issue to the NCCL developers",
        [ncclInvalidArgument] = "invalid argument (run with NCCL_DEBUG=WARN for details)",
        [ncclInvalidUsage] = "invalid usage (run with NCCL_DEBUG=WARN for details)",
        [ncclRemoteError] = "remote process exited or there was a network error",
        [ncclInProgress] = "NCCL operation in progress",
    };

    return (size_t)rc < sizeof texts / sizeof texts[0] ? texts[rc] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "the stand-in's last words";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    (void)pthread_mutex_lock(&lock);
    last_key++;
    memset(id, 0, sizeof *id);
    memcpy(id, &last_key, sizeof last_key);
    (void)pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

/* With the lock. NULL: too many. */
static struct club *find_club(uint64_t key, int world)
{
    for (size_t i = 0; i < CLUBS_MAX; i++) {
        if (clubs[i].key == key)
            return clubs[i].world == world ? &clubs[i] : NULL;
        if (clubs[i].key == 0) {
            clubs[i] = (struct club){.key = key, .world = world};
            return &clubs[i];
        }
    }
    return NULL;
}

/* What a call that is not finished returns: with blocking, when it is. */
static ncclResult_t unfinished(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;

    while (comm->blocks && state == ncclInProgress) {
        (void)sched_yield();
        (void)ncclCommGetAsyncError(comm, &state);
    }
    return state;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    uint64_t key;

    memcpy(&key, &id, sizeof key);
    if (comm == NULL || config->magic != CONFIG_MAGIC || config->size < SIZE_LEAST ||
        config->blocking < 0 || config->blocking > 1 || world > WORLD_MAX || rank >= world ||
        key == 0) {
        free(comm);
        return ncclInvalidArgument;
    }
    (void)pthread_mutex_lock(&lock);
    comm->club = find_club(key, world);
    comm->rank = rank;
    comm->blocks = config->blocking == 1;
    if (comm->club != NULL)
        comm->club->came++;
    (void)pthread_mutex_unlock(&lock);
    *out = comm;
    return comm->club != NULL ? unfinished(comm) : ncclInvalidUsage;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    const struct club *club = comm->club;
    bool is_done;

    (void)pthread_mutex_lock(&lock);
    is_done = club->came == club->world && club->turn >= comm->turn_planned &&
              (!comm->is_leaving || club->left == club->world);
    *state = async_error != ncclSuccess ? async_error : is_done ? ncclSuccess : ncclInProgress;
    (void)pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

static float get(const void *values, ncclDataType_t type, size_t i)
{
    if (type == ncclFloat32)
        return ((const float *)values)[i];
    return type == ncclFloat16 ? half_f16_to(((const uint16_t *)values)[i])
                               : half_bf16_to(((const uint16_t *)values)[i]);
}

static void put(void *values, ncclDataType_t type, size_t i, float value)
{
    if (type == ncclFloat32)
        ((float *)values)[i] = value;
    else
        ((uint16_t *)values)[i] =
            type == ncclFloat16 ? half_f16_from(value) : half_bf16_from(value);
}

/* With the lock, when all have come. */
static void reduce(struct club *club, ncclDataType_t type)
{
    for (size_t i = 0; i < club->count; i++) {
        float sum = 0.0F;

        for (int rank = 0; rank < club->world; rank++)
            sum += get(club->buffers[rank], type, i);
        for (int rank = 0; rank < club->world; rank++)
            put(club->buffers[rank], type, i, sum);
    }
    club->turn++;
    club->waiting = 0;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    struct club *club = comm->club;

    (void)stream;
    if (from != to || op != ncclSum)
        return ncclInvalidArgument;
    (void)pthread_mutex_lock(&lock);
    club->buffers[comm->rank] = to;
    club->count = count;
    comm->turn_planned = club->turn + 1;
    if (++club->waiting == club->world)
        reduce(club, type);
    (void)pthread_mutex_unlock(&lock);
    return comm->blocks ? ncclSuccess : ncclInProgress; /* queued; a stream ends it */
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void *memory, size_t bytes, void **handle)
{
    (void)comm;
    *handle = bytes > 0 ? memory : NULL;
    (void)pthread_mutex_lock(&lock);
    registered++;
    (void)pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle)
{
    (void)comm;
    (void)handle;
    (void)pthread_mutex_lock(&lock);
    registered--;
    (void)pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)pthread_mutex_lock(&lock);
    comm->club->left++;
    comm->is_leaving = true;
    (void)pthread_mutex_unlock(&lock);
    return unfinished(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    free(comm);
    return ncclSuccess;
}

/* The memory stays: a rank may still be in a call. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    (void)pthread_mutex_lock(&lock);
    comm->is_leaving = true;
    (void)pthread_mutex_unlock(&lock);
    return ncclSuccess;
}
