#include "tests/unit/libddp/shim_end.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/frame.h"
#include "common/msg_version.h"
#include "libddp/place.h"
#include "tests/lib/test.h"

enum { WAIT_MS = 60000 };

struct ddp *shim_end_open(struct shim_end *end)
{
    const struct ddp_place place = {
        .rank = 1, .world = 2, .job_id = 9, .generation = 3, .has_launcher = 1, .cluster = "c1"};
    struct ddp *ddp;
    int fds[2];

    *end = (struct shim_end){.fd = -1};
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    end->fd = fds[1];
    CHECK_EQ(ddp_open_at(&ddp, &place, fds[0], NULL), STATUS_OK);
    return ddp;
}

void shim_end_close(struct shim_end *end)
{
    if (end->fd >= 0)
        CHECK_EQ(close(end->fd), 0);
    end->fd = -1;
    buf_free(&end->in);
    arena_reset(&end->arena);
}

void shim_end_send(struct shim_end *end, const void *bytes, size_t byte_count)
{
    CHECK_EQ(send(end->fd, bytes, byte_count, MSG_NOSIGNAL), byte_count);
}

void shim_end_send_json(struct shim_end *end, const char *json)
{
    struct buf out = {0};
    char head[FRAME_HEAD_BYTES];

    frame_head(strlen(json), head);
    buf_add(&out, head, sizeof head);
    buf_add_text(&out, json);
    shim_end_send(end, out.bytes, out.byte_count);
    buf_free(&out);
}

void shim_end_send_msg(struct shim_end *end, const struct msg *msg)
{
    struct buf out = {0};

    CHECK_EQ(msg_encode(msg, &out, NULL), STATUS_OK);
    shim_end_send(end, out.bytes, out.byte_count);
    buf_free(&out);
}

void shim_end_send_world(struct shim_end *end, uint32_t generation, const char *blob)
{
    struct msg msg = {.type = MSG_TYPE_WORLD};

    msg.world.job_id = 9;
    msg.world.generation = generation;
    msg.world.blob = (struct msg_bytes){(const uint8_t *)blob, (uint32_t)strlen(blob)};
    shim_end_send_msg(end, &msg);
}

const struct msg *shim_end_next(struct shim_end *end)
{
    static struct msg msg;
    const char *payload;
    size_t payload_bytes;
    struct msg_protocols protocols = {PROTOCOL_VERSION, 1}; /* as the shim reads */
    struct err err = {.text = ""};

    while (frame_next(end->in.bytes, end->in.byte_count, FRAME_BYTES_MAX, &payload, &payload_bytes,
                      &err) == STATUS_BUSY) {
        struct pollfd wanted = {.fd = end->fd, .events = POLLIN};
        char bytes[4096];
        ssize_t n;

        CHECK_EQ(poll(&wanted, 1, WAIT_MS), 1);
        n = recv(end->fd, bytes, sizeof bytes, 0);
        CHECK(n > 0);
        buf_add(&end->in, bytes, (size_t)n);
    }
    CHECK_STR(err.text, "");
    arena_reset(&end->arena);
    if (msg_decode_between(payload, payload_bytes, &protocols, &end->arena, &msg, &err) !=
        STATUS_OK)
        FAIL("%s: %.*s", err.text, (int)payload_bytes, payload);
    buf_drop(&end->in, FRAME_HEAD_BYTES + payload_bytes);
    return &msg;
}

bool shim_end_is_quiet(struct shim_end *end)
{
    char byte;

    return end->in.byte_count == 0 && recv(end->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0;
}
