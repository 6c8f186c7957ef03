/* Sends a server data that no program of ours sends, and counts the results. usage:
 *   hostile ADDRESS KEY COUNT SEED KIND [HELLO [TYPE...]]
 * ADDRESS: HOST:PORT or unix:PATH. KEY: a file with a key URL, or "-" for a connection without TLS.
 * KIND: bytes      random bytes, no frames; one lot a connection
 *       frames     frames of random bytes; one a connection
 *       json       messages with random changes, none of them valid; one a connection
 *       messages   random valid messages of these TYPEs (all without any), 50 a connection
 * HELLO: node:NAME or client: the hello to send first, if there is a key; none: no hello.
 * Each connection is read to its end, so that the server has processed all data. Prints one JSON object. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/frame.h"
#include "tests/fuzz/msg_random.h"
#include "tests/lib/caller.h"

#define WAIT_MS 60000
#define BYTES_MAX 4096u
#define BATCH 50u

struct hostile {
    struct caller_place place;
    struct tls_context *context; /* NULL: no TLS */
    struct random random;
    struct arena arena;
    const char *kind, *hello;
    char **types;
    int type_count;
    uint32_t sent, errors, welcomes, others;
};

static void fail(const char *what)
{
    (void)fprintf(stderr, "hostile: %s\n", what);
    exit(EXIT_FAILURE);
}

static bool wait_for(struct caller *caller)
{
    struct pollfd fd = {.fd = caller->fd, .events = POLLIN};

    if (caller_is_full(caller))
        fd.events |= POLLOUT;
    if (poll(&fd, 1, WAIT_MS) <= 0)
        fail("the server neither answers nor closes");
    return true;
}

static void take_answers(struct hostile *hostile, struct caller *caller)
{
    static const char error[] = "{\"type\":\"error\"";
    const char *json;
    size_t byte_count;

    while (caller_next(caller, &json, &byte_count)) {
        if (byte_count >= sizeof error - 1 && memcmp(json, error, sizeof error - 1) == 0)
            hostile->errors++;
        else if (byte_count < 80 && strstr(json, "_welcome") != NULL)
            hostile->welcomes++;
        else
            hostile->others++;
        caller_drop(caller, byte_count);
    }
}

/* False: the connection has ended. */
static bool turn(struct hostile *hostile, struct caller *caller)
{
    struct err err;
    bool goes_on = wait_for(caller) && caller_flush(caller, &err) == STATUS_OK &&
                   caller_receive(caller, &err) == STATUS_OK;

    take_answers(hostile, caller);
    return goes_on;
}

static void send_hello(struct hostile *hostile, struct caller *caller)
{
    struct msg msg = {.type = MSG_TYPE_CLIENT_HELLO};
    struct err err;

    if (strcmp(hostile->hello, "none") == 0)
        return;
    msg.client_hello.protocol = PROTOCOL_VERSION;
    msg.client_hello.version = "hostile";
    if (strncmp(hostile->hello, "node:", 5) == 0) {
        msg = (struct msg){.type = MSG_TYPE_NODE_HELLO};
        msg.node_hello.protocol = PROTOCOL_VERSION;
        msg.node_hello.version = "hostile";
        msg.node_hello.name = hostile->hello + 5;
        msg.node_hello.boot_id = "boot";
        msg.node_hello.instance = 7;
        msg.node_hello.address = "192.0.2.1";
        msg.node_hello.slots = 1;
    }
    (void)caller_send(caller, &msg, &err);
}

static enum msg_type draw_type(struct hostile *hostile)
{
    const char *wanted;

    if (hostile->type_count == 0)
        return (enum msg_type)random_below(&hostile->random, MSG_TYPE_COUNT);
    wanted = hostile->types[random_below(&hostile->random, (uint64_t)hostile->type_count)];
    for (int i = 0; i < MSG_TYPE_COUNT; i++)
        if (strcmp(msg_type_name((enum msg_type)i), wanted) == 0)
            return (enum msg_type)i;
    fail("no such type");
    return MSG_TYPE_COUNT;
}

static void add_message(struct hostile *hostile, struct buf *out)
{
    struct msg msg;
    struct err err;

    arena_reset(&hostile->arena);
    msg_random(&hostile->random, &hostile->arena, draw_type(hostile), &msg);
    (void)msg_encode(&msg, out, &err); /* a message over a limit is left out */
}

static void add_random(struct hostile *hostile, struct buf *out, size_t byte_count)
{
    for (size_t i = 0; i < byte_count; i++) {
        char byte = (char)random_below(&hostile->random, 256);

        buf_add(out, &byte, 1);
    }
}

/* A valid message, changed until it is no longer valid. */
static void add_damaged(struct hostile *hostile, struct buf *out)
{
    struct msg msg;
    struct err err;

    add_message(hostile, out);
    if (out->byte_count <= FRAME_HEAD_BYTES)
        add_random(hostile, out, 10);
    do {
        uint64_t at = random_below(&hostile->random, out->byte_count - FRAME_HEAD_BYTES);

        out->bytes[FRAME_HEAD_BYTES + at] = (char)random_below(&hostile->random, 256);
        arena_reset(&hostile->arena);
    } while (msg_decode(out->bytes + FRAME_HEAD_BYTES, out->byte_count - FRAME_HEAD_BYTES,
                        &hostile->arena, &msg, &err) == STATUS_OK);
}

static uint32_t make(struct hostile *hostile, struct buf *out)
{
    char head[FRAME_HEAD_BYTES];
    size_t byte_count = 1 + random_below(&hostile->random, BYTES_MAX);

    if (strcmp(hostile->kind, "bytes") == 0) {
        add_random(hostile, out, byte_count);
        assert(out->bytes != NULL);
        out->bytes[0] =
            (char)(out->bytes[0] | 0x40); /* a length too big for the server to wait for */
    } else if (strcmp(hostile->kind, "frames") == 0) {
        frame_head(byte_count, head);
        buf_add(out, head, sizeof head);
        add_random(hostile, out, byte_count);
    } else if (strcmp(hostile->kind, "json") == 0) {
        add_damaged(hostile, out);
    } else {
        for (uint32_t i = 0; i < BATCH; i++)
            add_message(hostile, out);
        return BATCH;
    }
    return 1;
}

static void call(struct hostile *hostile)
{
    struct buf bytes = {0};
    struct caller caller;
    struct err err;
    bool goes_on = true;

    if (caller_open(&caller, &hostile->place, hostile->context, &err) != STATUS_OK)
        fail(err.text);
    while (goes_on && !caller_is_ready(&caller))
        goes_on = turn(hostile, &caller);
    if (!goes_on)
        fail("the server does not take the key");
    if (hostile->context != NULL)
        send_hello(hostile, &caller);
    hostile->sent += make(hostile, &bytes);
    goes_on = caller_send_bytes(&caller, bytes.bytes, bytes.byte_count, &err) == STATUS_OK;
    while (goes_on && caller_is_full(&caller))
        goes_on = turn(hostile, &caller);
    if (goes_on) {
        if (caller.tls != NULL)
            tls_end(caller.tls, &caller.wire);
        (void)caller_flush(&caller, &err);
        (void)shutdown(caller.fd, SHUT_WR);
    }
    while (goes_on)
        goes_on = turn(hostile, &caller);
    caller_close(&caller);
    buf_free(&bytes);
}

static void open_context(struct hostile *hostile, const char *path)
{
    char line[1024] = "";
    struct key key;
    struct err err = {.text = "no key file"};
    FILE *file = fopen(path, "re");

    if (file == NULL || fgets(line, sizeof line, file) == NULL ||
        key_parse(line, &key, &err) != STATUS_OK ||
        tls_client_new(&hostile->context, &key, &err) != STATUS_OK)
        fail(err.text);
    (void)fclose(file);
}

int main(int argc, char **argv)
{
    struct hostile hostile = {.hello = "none"};
    struct err err;
    uint32_t count, calls = 0;

    if (argc < 6)
        fail("usage: hostile ADDRESS KEY COUNT SEED KIND [HELLO [TYPE...]]");
    if (caller_find(argv[1], &hostile.place, &err) != STATUS_OK)
        fail(err.text);
    if (strcmp(argv[2], "-") != 0)
        open_context(&hostile, argv[2]);
    count = (uint32_t)strtoul(argv[3], NULL, 10);
    hostile.random.state = strtoull(argv[4], NULL, 10);
    hostile.kind = argv[5];
    if (argc > 6)
        hostile.hello = argv[6];
    if (argc > 7) {
        hostile.types = argv + 7;
        hostile.type_count = argc - 7;
    }
    for (; hostile.sent < count; calls++)
        call(&hostile);
    printf("{\"sent\":%u,\"connections\":%u,\"errors\":%u,\"welcomes\":%u,\"others\":%u}\n",
           hostile.sent, calls, hostile.errors, hostile.welcomes, hostile.others);
    arena_reset(&hostile.arena);
    tls_context_free(&hostile.context);
    return EXIT_SUCCESS;
}
