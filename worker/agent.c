#include "worker/agent.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/frame.h"
#include "common/io/mono.h"
#include "common/msg.h"

enum { READ_BYTES = 4096, REPORT_INTERVAL_US = 1000000, FAIL_TIMEOUT_MS = 1000 };

struct agent {
    struct agent_place place;
    struct buf in;
    struct buf out; /* what the socket did not take yet: whole frames, the first maybe in part */
    uint64_t reported_us; /* when progress was sent last; 0: never */
};

/* -- the environment -- */

/* `*value` stays where the variable is not set. */
static enum status read_number(const char *name, uint64_t max, uint64_t *value, struct err *err)
{
    const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe): before any thread */
    char *end = NULL;

    if (text == NULL)
        return STATUS_OK;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || *value > max)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "environment: %s=%.40s: expected a number from 0 to %llu", name, text,
                       (unsigned long long)max);
    return STATUS_OK;
}

struct numbers {
    uint64_t rank, world, local_rank, local_world, job_id, generation, shim_fd, checkpoint_step;
};

static enum status read_numbers(struct numbers *numbers, struct err *err)
{
    const struct {
        const char *name;
        uint64_t max;
        uint64_t *value;
    } variables[] = {
        {"WORLD_SIZE", RANKS_PER_JOB_MAX, &numbers->world},
        {"RANK", RANKS_PER_JOB_MAX - 1, &numbers->rank},
        {"LOCAL_RANK", RANKS_PER_JOB_MAX - 1, &numbers->local_rank},
        {"LOCAL_WORLD_SIZE", RANKS_PER_JOB_MAX, &numbers->local_world},
        {"DDP_SHIM_FD", INT32_MAX, &numbers->shim_fd},
        {"DDP_JOB_ID", JOB_ID_MAX, &numbers->job_id},
        {"DDP_GENERATION", GENERATION_MAX, &numbers->generation},
        {"DDP_CHECKPOINT_STEP", JOB_ID_MAX, &numbers->checkpoint_step},
    };

    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        enum status status =
            read_number(variables[i].name, variables[i].max, variables[i].value, err);
        if (status != STATUS_OK)
            return status;
    }
    if (numbers->world == 0 || numbers->rank >= numbers->world || numbers->generation == 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "environment: RANK=%u is not under WORLD_SIZE=%u, or DDP_GENERATION=%u is 0",
                       (unsigned)numbers->rank, (unsigned)numbers->world,
                       (unsigned)numbers->generation);
    return STATUS_OK;
}

enum status agent_read_place(struct agent_place *place, struct err *err)
{
    struct numbers numbers = {.world = 1, .local_world = 1, .generation = 1, .shim_fd = UINT64_MAX};
    const char *address = getenv("DDP_NODE_ADDRESS"); /* NOLINT(concurrency-mt-unsafe): as above */
    const char *cluster = getenv("DDP_CLUSTER");      /* NOLINT(concurrency-mt-unsafe): as above */
    const char *node = getenv("DDP_NODE_NAME");       /* NOLINT(concurrency-mt-unsafe): as above */
    enum status status = read_numbers(&numbers, err);

    if (status != STATUS_OK)
        return status;
    if (numbers.shim_fd == UINT64_MAX && numbers.world > 1)
        return err_set(
            err, STATUS_UNSUPPORTED, 0,
            "WORLD_SIZE=%u, but no launcher of ours started this rank (DDP_SHIM_FD is not "
            "set): use ddpctl run --standalone --nproc-per-node %u -- ddp-worker ...",
            (unsigned)numbers.world, (unsigned)numbers.world);
    *place = (struct agent_place){
        .rank = (uint32_t)numbers.rank,
        .world = (uint32_t)numbers.world,
        .local_rank = (uint32_t)numbers.local_rank,
        .local_world = (uint32_t)numbers.local_world,
        .job_id = numbers.job_id,
        .generation = (uint32_t)numbers.generation,
        .checkpoint_step = numbers.checkpoint_step,
        .shim_fd = numbers.shim_fd == UINT64_MAX ? -1 : (int)numbers.shim_fd,
    };
    (void)snprintf(place->address, sizeof place->address, "%s",
                   address != NULL && *address != '\0' ? address : "127.0.0.1");
    (void)snprintf(place->cluster, sizeof place->cluster, "%s", cluster != NULL ? cluster : "");
    (void)snprintf(place->node, sizeof place->node, "%s", node != NULL ? node : "");
    return STATUS_OK;
}

/* -- the socket -- */

enum status agent_open(struct agent **agent, const struct agent_place *place, struct err *err)
{
    int type = 0;
    socklen_t type_bytes = sizeof type;

    *agent = NULL;
    if (place->shim_fd < 0)
        return STATUS_OK;
    if (getsockopt(place->shim_fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) != 0 ||
        type != SOCK_STREAM)
        return err_set(
            err, STATUS_BAD_INPUT, errno,
            "environment: DDP_SHIM_FD=%d is not a stream socket: was it closed on the way "
            "here?",
            place->shim_fd);
    (void)fcntl(place->shim_fd, F_SETFD, FD_CLOEXEC);
    *agent = calloc(1, sizeof **agent);
    if (*agent == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the link to the shim");
    (*agent)->place = *place;
    return STATUS_OK;
}

void agent_close(struct agent **agent)
{
    if (*agent == NULL)
        return;
    (void)close((*agent)->place.shim_fd);
    buf_free(&(*agent)->in);
    buf_free(&(*agent)->out);
    free(*agent);
    *agent = NULL;
}

/* Sends as much of `out` as the socket takes now. False: the shim is gone. */
static bool flush(struct agent *agent)
{
    while (agent->out.byte_count > 0) {
        ssize_t n = send(agent->place.shim_fd, agent->out.bytes, agent->out.byte_count,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        buf_drop(&agent->out, (size_t)n);
    }
    return true;
}

static bool wait_for(struct agent *agent, short events, int timeout_ms)
{
    struct pollfd wanted = {.fd = agent->place.shim_fd, .events = events};
    int n;

    do
        n = poll(&wanted, 1, timeout_ms);
    while (n < 0 && errno == EINTR && timeout_ms < 0);
    return n > 0;
}

static enum status add_message(struct agent *agent, struct msg *msg, struct err *err)
{
    return msg_encode(msg, &agent->out, err);
}

static enum status closed(struct err *err)
{
    return err_set(err, STATUS_CLOSED, 0, "the shim hung up: this generation is being stopped");
}

static enum status send_all(struct agent *agent, struct err *err)
{
    while (agent->out.byte_count > 0) {
        if (!flush(agent))
            return closed(err);
        if (agent->out.byte_count > 0)
            (void)wait_for(agent, POLLOUT, -1);
    }
    return STATUS_OK;
}

/* Reads what has arrived. STATUS_CLOSED at the end of the stream. */
static enum status receive(struct agent *agent, int flags, struct err *err)
{
    char bytes[READ_BYTES];
    ssize_t n = recv(agent->place.shim_fd, bytes, sizeof bytes, flags);

    if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
        return STATUS_OK;
    if (n <= 0)
        return closed(err);
    buf_add(&agent->in, bytes, (size_t)n);
    if (agent->in.failed)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a message of the shim");
    return STATUS_OK;
}

/* Takes one message off the front; true with `*blob` when it was the world. */
static enum status take_world(struct agent *agent, struct comm_blob *blob, bool *is_world,
                              struct err *err)
{
    struct arena arena = {0};
    struct msg msg;
    const char *payload;
    size_t payload_bytes;
    enum status status = frame_next(agent->in.bytes, agent->in.byte_count, FRAME_BYTES_MAX,
                                    &payload, &payload_bytes, err);

    if (status != STATUS_OK)
        return status;
    status = msg_decode(payload, payload_bytes, &arena, &msg, err);
    if (status == STATUS_OK && msg.type == MSG_TYPE_WORLD &&
        msg.world.generation == agent->place.generation) {
        assert(msg.world.blob.count <= sizeof blob->bytes); /* the decoder has checked it */
        memcpy(blob->bytes, msg.world.blob.items, msg.world.blob.count);
        blob->byte_count = msg.world.blob.count;
        *is_world = true;
    }
    arena_reset(&arena);
    buf_drop(&agent->in, FRAME_HEAD_BYTES + payload_bytes);
    return status;
}

_Static_assert(COMM_BLOB_BYTES_MAX >= BLOB_BYTES_MAX, "what the protocol carries has room");

static enum status wait_for_world(struct agent *agent, struct comm_blob *blob, struct err *err)
{
    bool is_world = false;

    while (!is_world) {
        enum status status = take_world(agent, blob, &is_world, err);
        if (status == STATUS_BUSY)
            status = receive(agent, 0, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status agent_join(struct agent *agent, struct comm_blob *blob, struct err *err)
{
    struct msg msg = {.type = MSG_TYPE_WORKER_JOIN};
    enum status status;

    if (agent == NULL)
        return STATUS_OK;
    msg.worker_join.rank = agent->place.rank;
    msg.worker_join.generation = agent->place.generation;
    msg.worker_join.blob = (struct msg_bytes){blob->bytes, blob->byte_count};
    status = add_message(agent, &msg, err);
    if (status == STATUS_OK)
        status = send_all(agent, err);
    return status != STATUS_OK ? status : wait_for_world(agent, blob, err);
}

static double finite_or(double value, double other)
{
    return isfinite(value) ? value : other;
}

enum status agent_report(struct agent *agent, const struct agent_progress *progress, bool is_urgent)
{
    struct msg msg = {.type = MSG_TYPE_PROGRESS};
    uint64_t now;

    if (agent == NULL || agent->place.job_id == 0)
        return STATUS_OK;
    now = mono_us();
    if (!is_urgent && agent->reported_us > 0 && now - agent->reported_us < REPORT_INTERVAL_US)
        return STATUS_OK;
    agent->reported_us = now;
    agent->in.byte_count = 0; /* after the world the shim sends nothing that matters */
    if (receive(agent, MSG_DONTWAIT, NULL) != STATUS_OK || !flush(agent))
        return STATUS_CLOSED;
    if (agent->out.byte_count > 0)
        return STATUS_OK; /* the shim is slow: this report is left out */
    msg.progress = (struct msg_progress){
        .job_id = agent->place.job_id,
        .generation = agent->place.generation,
        .rank = agent->place.rank,
        .epoch = progress->epoch,
        .epochs = progress->epochs,
        .step = progress->step,
        .steps = progress->steps,
        .loss = finite_or(progress->loss, 1e300), /* the protocol has no NaN */
        .samples_per_s = finite_or(progress->samples_per_s, 0),
        .checkpoint_step = progress->checkpoint_step,
    };
    if (add_message(agent, &msg, NULL) == STATUS_OK && !flush(agent))
        return STATUS_CLOSED;
    return STATUS_OK;
}

void agent_fail(struct agent *agent, const char *text)
{
    struct msg msg = {.type = MSG_TYPE_WORKER_ERROR};

    if (agent == NULL)
        return;
    msg.worker_error.text = text;
    if (add_message(agent, &msg, NULL) != STATUS_OK)
        return;
    if (flush(agent) && agent->out.byte_count > 0 && wait_for(agent, POLLOUT, FAIL_TIMEOUT_MS))
        (void)flush(agent);
}
