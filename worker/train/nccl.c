/* NCCL in training: rank 0 sends the unique id with the world's blob, the communicator sums the
 * buckets, and a guard ends it when a peer is lost. The CPU's connections (comm) stay open: they
 * detect and name a lost peer, and carry the host's few values. */
#include "worker/train/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "worker/backend/cuda/nccl/guard.h"
#include "worker/net/state.h"

enum {
    EXIT_GIVEN_UP = 1,
    CTAS_MAX = 32, /* that NCCL takes by itself: its channels between GPUs of a node */
    JOIN_TIMEOUT_US = 120 * 1000000,
    GRACE_US = 10 * 1000000,
    CLOSE_TIMEOUT_US = 10 * 1000000
};

/* A world's blob: the count of comm's bytes (16 bit, low byte first), comm's bytes, NCCL's unique
 * id or nothing. */
#define LENGTH_BYTES 2
#define LOAD_BYTES 4096u

void train_load_nccl(const struct device *device)
{
    void *memory = NULL;
    struct err err;

    if (device->nccl != NULL &&
        device->nccl->memory_new(NULL, &memory, LOAD_BYTES, &err) == STATUS_OK)
        device->nccl->memory_free(NULL, &memory);
}

static enum status sum(void *context, void *memory, size_t count, enum graph_dtype dtype,
                       struct CUstream_st *stream, struct err *err)
{
    const struct train *train = context;

    assert(train->nccl_link != NULL); /* the world met before the first step */
    return train->device->nccl->queue_sum(train->nccl_link, memory, count, dtype, stream, err);
}

enum status train_nccl_reducer(struct train *train, struct reducer *reducer, struct err *err)
{
    const struct options *options = train->options;
    const float world = (float)train->place->world;
    const struct device_collective collective = {
        .context = train,
        .sum = sum,
        .prescale = options->predivide > 0.0F ? 1.0F / options->predivide : 0.0F,
        .postscale = (options->predivide > 0.0F ? options->predivide : 1.0F) / world,
        .in_fp32 = options->allreduce_always_fp32,
        .delays = options->delay_allreduce,
    };

    assert(train->uses_nccl);
    return net_device_reducer(train->net, &collective, reducer, err);
}

enum status train_nccl_choose(struct train *train, struct err *err)
{
    const struct options *options = train->options;

    if (!device_takes_nccl(train->device, options->comm, train->place->world)) {
        if (strcmp(options->comm, "nccl") == 0 && train->device->runtime == NULL)
            return err_set(err, STATUS_UNSUPPORTED, 0,
                           "--comm nccl: NCCL is for GPUs, and this rank trains on the CPU: leave "
                           "it out, or give --device cuda to see why there is no GPU");
        return STATUS_OK;
    }
    if (train->device->nccl == NULL)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "the CUDA module was built without NCCL: give --comm gloo");
    train->uses_nccl = true;
    return STATUS_OK;
}

enum status train_nccl_pack(struct train *train, struct comm_blob *blob, struct err *err)
{
    const struct comm_blob own = *blob;
    const uint32_t id_bytes = train->uses_nccl ? NCCL_ID_BYTES : 0;
    enum status status = STATUS_OK;

    assert(own.byte_count <= sizeof own.bytes);
    if (own.byte_count == 0)
        return STATUS_OK; /* a world of one rank */
    if (LENGTH_BYTES + own.byte_count + id_bytes > sizeof blob->bytes)
        return err_set(err, STATUS_TOO_BIG, 0, "no room for NCCL's unique id in the world's blob");
    if (train->uses_nccl)
        status = train->device->nccl->id_new(NULL, train->place->address, train->nccl_id, err);
    if (status != STATUS_OK)
        return status;
    blob->bytes[0] = (uint8_t)(own.byte_count & 0xff);
    blob->bytes[1] = (uint8_t)(own.byte_count >> 8);
    memcpy(blob->bytes + LENGTH_BYTES, own.bytes, own.byte_count);
    memcpy(blob->bytes + LENGTH_BYTES + own.byte_count, train->nccl_id, id_bytes);
    blob->byte_count = LENGTH_BYTES + own.byte_count + id_bytes;
    return STATUS_OK;
}

enum status train_nccl_unpack(struct train *train, struct comm_blob *blob, struct err *err)
{
    const struct comm_blob all = *blob;
    uint32_t own, id_bytes;

    if (train->place->world == 1)
        return STATUS_OK;
    own = all.bytes[0] + 256U * all.bytes[1];
    if (all.byte_count < LENGTH_BYTES || all.byte_count > sizeof all.bytes ||
        own > all.byte_count - LENGTH_BYTES)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "rank 0's blob of %u bytes is none of this version", all.byte_count);
    id_bytes = all.byte_count - LENGTH_BYTES - own;
    memcpy(blob->bytes, all.bytes + LENGTH_BYTES, own);
    blob->byte_count = own;
    if (id_bytes != (train->uses_nccl ? NCCL_ID_BYTES : 0))
        return err_set(err, STATUS_CONFLICT, 0,
                       "rank 0 has %s, this rank %s: give every rank the same --device and --comm",
                       id_bytes > 0 ? "NCCL" : "no NCCL", train->uses_nccl ? "has" : "has none");
    memcpy(train->nccl_id, all.bytes + LENGTH_BYTES + own, id_bytes);
    return STATUS_OK;
}

static void *make_memory(void *context, size_t bytes)
{
    const struct train *train = context;
    struct err err = {.text = ""};
    void *memory = NULL;

    if (train->device->nccl->memory_new(NULL, &memory, bytes, &err) != STATUS_OK)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "gradients are in ordinary memory of the GPU: %s",
                 err.text);
    return memory;
}

static void give_memory_back(void *context, void *memory)
{
    const struct train *train = context;

    train->device->nccl->memory_free(NULL, &memory);
}

uint32_t train_nccl_sms(const struct train *train)
{
    if (!train->uses_nccl)
        return 0;
    return train->options->nccl_max_ctas > 0 ? train->options->nccl_max_ctas : CTAS_MAX;
}

bool train_nccl_memory(struct train *train, struct net_memory *memory)
{
    *memory = (struct net_memory){train, make_memory, give_memory_back};
    return train->uses_nccl;
}

static bool is_gone(void *user, struct err *err)
{
    const struct train *train = user;

    return comm_lost(train->comm, "training", err) != STATUS_OK;
}

/* On the guard's thread, when the training thread does not return from the device. */
static void give_up(void *user, const struct err *why)
{
    struct train *train = user;

    (void)fprintf(stderr, "ddp-worker: %s\n", why->text);
    agent_fail(train->agent, why->text);
    _exit(EXIT_GIVEN_UP);
}

static enum status register_gradients(struct train *train, struct err *err)
{
    void *memory;
    size_t bytes;

    net_grad_arena(train->net, &memory, &bytes);
    return memory != NULL
               ? train->device->nccl->register_memory(train->nccl_link, memory, bytes, err)
               : STATUS_OK;
}

static enum status open_link(struct train *train, bool blocks, struct err *err)
{
    struct nccl_link_options link = {
        .rank = train->place->rank,
        .world = train->place->world,
        .timeout_us = JOIN_TIMEOUT_US,
        .blocks = blocks,
        .ctas_max = train->options->nccl_max_ctas,
        .address = train->place->address,
        .gone = is_gone,
        .user = train,
    };

    memcpy(link.id, train->nccl_id, sizeof link.id);
    return train->device->nccl->open(&train->nccl_link, &link, err);
}

/* In place of the one that cannot be captured, with a new id of rank 0's. */
static enum status open_blocking(struct train *train, struct err *err)
{
    enum status status = STATUS_OK;

    train->device->nccl->close(&train->nccl_link, CLOSE_TIMEOUT_US);
    if (train->place->rank == 0)
        status = train->device->nccl->id_new(NULL, train->place->address, train->nccl_id, err);
    if (status == STATUS_OK)
        status = comm_broadcast(train->comm, train->nccl_id, sizeof train->nccl_id, 0, err);
    return status == STATUS_OK ? open_link(train, true, err) : status;
}

enum status train_nccl_open(struct train *train, struct err *err)
{
    struct nccl_guard_options guard = {
        .nccl = train->device->nccl,
        .gone = is_gone,
        .give_up = give_up,
        .user = train,
        .grace_us = GRACE_US,
        .has_launcher = train->agent != NULL,
    };
    bool can_capture = true;
    enum status status;

    if (!train->uses_nccl)
        return STATUS_OK;
    assert(train->nccl_link == NULL && train->net != NULL && train->comm != NULL);
    status = open_link(train, false, err);
    if (status == STATUS_OK)
        status = train_nccl_try_capture(train, &can_capture, err);
    if (status == STATUS_OK && !can_capture)
        status = open_blocking(train, err);
    if (status == STATUS_OK)
        status = register_gradients(train, err);
    guard.link = train->nccl_link;
    return status == STATUS_OK ? nccl_guard_new(&train->nccl_guard, &guard, err) : status;
}

/* Drops captured graphs first: NCCL's abort, on the guard's thread, and its finalize wait for
 * them. */
void train_nccl_close(struct train *train)
{
    if (train->net != NULL)
        net_drop_captures(train->net);
    nccl_guard_free(&train->nccl_guard);
    if (train->nccl_link != NULL)
        train->device->nccl->close(&train->nccl_link, CLOSE_TIMEOUT_US);
}

void train_nccl_progress(struct train *train)
{
    if (train->nccl_guard != NULL)
        nccl_guard_progress(train->nccl_guard);
    if (train->comm != NULL)
        comm_set_busy(train->comm, false);
}

void train_nccl_pause(struct train *train)
{
    if (train->nccl_guard != NULL)
        nccl_guard_pause(train->nccl_guard);
}

void train_nccl_loading(struct train *train, bool is_loading)
{
    if (train->nccl_guard != NULL)
        nccl_guard_loading(train->nccl_guard, is_loading);
}

void train_pause(struct train *train, enum agent_phase phase, const char *what)
{
    train_nccl_pause(train);
    if (train->comm != NULL)
        comm_set_busy(train->comm, true);
    agent_phase(train->agent, phase, what);
}

enum status train_nccl_verdict(struct train *train, struct err *err)
{
    return train->nccl_guard != NULL ? nccl_guard_verdict(train->nccl_guard, err) : STATUS_OK;
}
