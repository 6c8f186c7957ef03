/* The communicator: every NCCL call that may return before it is finished is polled to its end. */
#include "worker/backend/cuda/nccl/nccl.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/io/mono.h"
#include "worker/backend/cuda/libs.h"

enum {
    REGISTERED_MAX = 8,
    POLL_FIRST_US = 50,
    POLL_MOST_US = 5000,
    OPERATION_TIMEOUT_US = 60000000,
    CALL_TIMEOUT_S = 5
};

struct nccl_link {
    struct nccl_api api;
    ncclComm_t comm; /* NULL: none, or already destroyed */
    struct nccl_link_options options;
    void *registered[REGISTERED_MAX]; /* handles */
    uint32_t registered_count;
    atomic_bool is_aborted;
    pthread_mutex_t lock; /* held in each call on comm except abort: the training thread and the
                             guard both poll it, and ncclCommGetAsyncError may join NCCL's own
                             threads */
};

static const ncclDataType_t types[] = {
    [GRAPH_F32] = ncclFloat32, [GRAPH_F16] = ncclFloat16, [GRAPH_BF16] = ncclBfloat16};

static enum status refuse(const struct nccl_link *link, ncclResult_t rc, const char *what,
                          struct err *err)
{
    const char *last = link->api.GetLastError(link->comm);

    return err_set(err, STATUS_LIBRARY, (int)rc, "NCCL, rank %u of %u: %s: %s%s%.120s",
                   link->options.rank, link->options.world, what, link->api.GetErrorString(rc),
                   last != NULL && last[0] != '\0' ? ": " : "", last != NULL ? last : "");
}

static void nap(uint32_t us)
{
    const struct timespec time = {.tv_nsec = (long)us * 1000};

    (void)nanosleep(&time, NULL);
}

/* Stores the communicator's state in *state: ncclInProgress while a call is unfinished; ncclSuccess
 * also after an abort. */
static ncclResult_t ask(struct nccl_link *link, ncclResult_t *state)
{
    ncclResult_t rc = ncclSuccess;

    *state = ncclSuccess;
    (void)pthread_mutex_lock(&link->lock);
    if (!atomic_load(&link->is_aborted))
        rc = link->api.CommGetAsyncError(link->comm, state);
    (void)pthread_mutex_unlock(&link->lock);
    return rc;
}

/* Polls the call that returned `rc` until it is finished. Errors: STATUS_TIMEOUT, STATUS_CLOSED
 * (the communicator was aborted), STATUS_LIBRARY, the error of options.gone (a lost peer). */
static enum status settle(struct nccl_link *link, ncclResult_t rc, const char *what,
                          uint64_t timeout_us, struct err *err)
{
    const uint64_t deadline_us = mono_us() + timeout_us;
    uint32_t nap_us = POLL_FIRST_US;
    ncclResult_t asked;

    while (rc == ncclInProgress || atomic_load(&link->is_aborted)) {
        if (atomic_load(&link->is_aborted))
            return err_set(err, STATUS_CLOSED, 0, "NCCL: %s was ended", what);
        if (link->options.gone != NULL && link->options.gone(link->options.user, err))
            return err->status;
        if (mono_us() > deadline_us)
            return err_set(err, STATUS_TIMEOUT, 0,
                           "NCCL, rank %u of %u: %s did not end within %llu s", link->options.rank,
                           link->options.world, what, (unsigned long long)(timeout_us / 1000000));
        nap(nap_us);
        nap_us = nap_us * 2 < POLL_MOST_US ? nap_us * 2 : POLL_MOST_US;
        asked = ask(link, &rc);
        if (asked != ncclSuccess)
            return refuse(link, asked, what, err);
    }
    return rc == ncclSuccess ? STATUS_OK : refuse(link, rc, what, err);
}

/* -- what NCCL reads from the environment ----------------------------------------------------- */

static bool has_address(const struct sockaddr *have, const char *address)
{
    char text[INET6_ADDRSTRLEN] = "";

    if (have == NULL)
        return false;
    if (have->sa_family == AF_INET)
        (void)inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)have)->sin_addr, text,
                        sizeof text);
    else if (have->sa_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)have)->sin6_addr,
                        text, sizeof text);
    return text[0] != '\0' && strcmp(text, address) == 0;
}

/* Call before NCCL is initialised. By default NCCL may choose another interface than the one with
 * `address`, and its RAS service opens a port. */
static void prepare_environment(const char *address)
{
    struct ifaddrs *all = NULL;

    (void)setenv("NCCL_RAS_ENABLE", "0", 0);
    if (address == NULL || getenv("NCCL_SOCKET_IFNAME") != NULL || getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        char name[IF_NAMESIZE + 2];

        if (!has_address(at->ifa_addr, address))
            continue;
        (void)snprintf(name, sizeof name, "=%.*s", IF_NAMESIZE,
                       at->ifa_name); /* "=": exactly this name */
        (void)setenv("NCCL_SOCKET_IFNAME", name, 0);
        break;
    }
    freeifaddrs(all);
}

static enum status find(const char *library, struct nccl_found *found, struct err *err)
{
    struct nccl_api api;
    const enum status status = libs_nccl(library, &api, err);
    int version = 0;

    *found = (struct nccl_found){.version = 0};
    if (status != STATUS_OK)
        return status;
    (void)api.GetVersion(&version);
    found->version = (uint32_t)version;
    libs_nccl_path(&api, found->path, sizeof found->path);
    return STATUS_OK;
}

static enum status id_new(const char *library, const char *address, uint8_t id[NCCL_ID_BYTES],
                          struct err *err)
{
    struct nccl_link link = {.options = {.world = 1}};
    ncclUniqueId unique;
    enum status status = libs_nccl(library, &link.api, err);
    ncclResult_t rc;

    _Static_assert(sizeof unique == NCCL_ID_BYTES, "the id travels as it is");
    if (status != STATUS_OK)
        return status;
    prepare_environment(address);
    rc = link.api.GetUniqueId(&unique);
    if (rc != ncclSuccess)
        return refuse(&link, rc, "making the unique id", err);
    memcpy(id, &unique, sizeof unique);
    return STATUS_OK;
}

/* -- life ------------------------------------------------------------------------------------- */

static enum status connect_all(struct nccl_link *link, struct err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER; /* its size tells NCCL how much of it to read */
    ncclUniqueId id;
    ncclResult_t rc;

    config.blocking = link->options.blocks ? 1 : 0;
    config.commName = "ddp";
    if (link->options.ctas_max > 0)
        config.maxCTAs = (int)link->options.ctas_max;
    memcpy(&id, link->options.id, sizeof id);
    rc = link->api.CommInitRankConfig(&link->comm, (int)link->options.world, id,
                                      (int)link->options.rank, &config);
    return settle(link, rc, "joining the communicator", link->options.timeout_us, err);
}

/* Aborts the communicator, once. First waits until no other thread is in a call on it: such a call
 * does not wait for peers, so the lock is free soon. If a call hangs nevertheless, the abort ends
 * it. */
static void end_now(struct nccl_link *link)
{
    struct timespec until;
    bool is_alone;

    if (atomic_exchange(&link->is_aborted, true) || link->comm == NULL)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CALL_TIMEOUT_S;
    is_alone = pthread_mutex_timedlock(&link->lock, &until) == 0;
    if (is_alone)
        (void)pthread_mutex_unlock(&link->lock);
    (void)link->api.CommAbort(link->comm);
}

static enum status open_link(struct nccl_link **out, const struct nccl_link_options *options,
                             struct err *err)
{
    struct nccl_link *link = calloc(1, sizeof *link);
    enum status status;

    assert(options->rank < options->world);
    *out = NULL;
    if (link == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for NCCL");
    link->options = *options;
    (void)pthread_mutex_init(&link->lock, NULL);
    status = libs_nccl(options->library, &link->api, err);
    if (status == STATUS_OK) {
        prepare_environment(options->address);
        status = connect_all(link, err);
    }
    if (status != STATUS_OK) {
        end_now(link);
        (void)pthread_mutex_destroy(&link->lock);
        free(link);
        return status;
    }
    *out = link;
    return STATUS_OK;
}

/* Finalises and destroys the communicator. False: the other ranks did not do so in time. */
static bool end_in_order(struct nccl_link *link, uint64_t timeout_us)
{
    struct err ignored = {.text = ""};

    for (uint32_t i = 0; i < link->registered_count; i++)
        (void)link->api.CommDeregister(link->comm, link->registered[i]);
    if (settle(link, link->api.CommFinalize(link->comm), "leaving", timeout_us, &ignored) !=
        STATUS_OK)
        return false;
    return link->api.CommDestroy(link->comm) == ncclSuccess;
}

static void close_link(struct nccl_link **out, uint64_t timeout_us)
{
    struct nccl_link *link = *out;

    if (link == NULL)
        return;
    if (!atomic_load(&link->is_aborted) && !end_in_order(link, timeout_us))
        end_now(link);
    (void)pthread_mutex_destroy(&link->lock);
    free(link);
    *out = NULL;
}

/* -- use -------------------------------------------------------------------------------------- */

static enum status memory_new(const char *library, void **memory, size_t bytes, struct err *err)
{
    struct nccl_link link = {.options = {.world = 1}};
    enum status status = libs_nccl(library, &link.api, err);
    ncclResult_t rc;

    *memory = NULL;
    if (status != STATUS_OK)
        return status;
    rc = link.api.MemAlloc(memory, bytes);
    if (rc == ncclSuccess)
        return STATUS_OK;
    *memory = NULL;
    return refuse(&link, rc, "memory for gradients", err);
}

static void memory_free(const char *library, void **memory)
{
    struct nccl_api api;
    struct err ignored;

    if (*memory != NULL && libs_nccl(library, &api, &ignored) == STATUS_OK)
        (void)api.MemFree(*memory);
    *memory = NULL;
}

static enum status register_memory(struct nccl_link *link, void *memory, size_t bytes,
                                   struct err *err)
{
    ncclResult_t rc;

    if (atomic_load(&link->is_aborted))
        return err_set(err, STATUS_CLOSED, 0, "NCCL was ended");
    if (link->registered_count == REGISTERED_MAX)
        return STATUS_OK; /* NCCL works without it */
    rc = link->api.CommRegister(link->comm, memory, bytes,
                                &link->registered[link->registered_count]);
    if (rc == ncclSuccess && link->registered[link->registered_count] != NULL)
        link->registered_count++;
    return STATUS_OK;
}

static enum status queue_sum(struct nccl_link *link, void *memory, size_t count,
                             enum graph_dtype dtype, struct CUstream_st *stream, struct err *err)
{
    ncclResult_t rc = ncclSuccess;

    (void)pthread_mutex_lock(&link->lock);
    if (!atomic_load(&link->is_aborted))
        rc = link->api.AllReduce(memory, memory, count, types[dtype], ncclSum, link->comm, stream);
    (void)pthread_mutex_unlock(&link->lock);
    return settle(link, rc, "queueing an all-reduce", OPERATION_TIMEOUT_US, err);
}

static enum status check(struct nccl_link *link, struct err *err)
{
    ncclResult_t state, rc;

    if (atomic_load(&link->is_aborted))
        return err_set(err, STATUS_CLOSED, 0, "NCCL was ended");
    rc = ask(link, &state);
    if (rc == ncclSuccess)
        rc = state;
    if (rc == ncclSuccess || rc == ncclInProgress)
        return STATUS_OK;
    return refuse(link, rc, "a collective failed", err);
}

const struct cuda_nccl cuda_nccl = {
    .find = find,
    .id_new = id_new,
    .open = open_link,
    .memory_new = memory_new,
    .memory_free = memory_free,
    .register_memory = register_memory,
    .queue_sum = queue_sum,
    .check = check,
    .abort = end_now,
    .close = close_link,
};
