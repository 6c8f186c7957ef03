/* The c10d store: the server for PyTorch's TCPStore clients (2.x), so that init_process_group works without a rank
 * that serves the store. A core: bytes of clients in, bytes to clients out; no socket, no clock, and memory only from
 * the caller. docs/c10d-store.md describes the bytes on the wire.
 *
 * The happy path: a client connects, sends VALIDATE and PING, sets and gets keys, waits for keys that others set, and
 * closes. A request is carried out once all of it has arrived, however the stream is split. The protocol has no error
 * reply. So a client that sends something that cannot be answered is closed, with a reason for the log; other clients
 * and what it stored are not affected. */
#ifndef LAUNCHERD_C10D_C10D_H
#define LAUNCHERD_C10D_C10D_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define C10D_KEY_BYTES_MAX 8192u /* as in PyTorch's own server */
#define C10D_VALUE_BYTES_MAX (8u * 1024u * 1024u)
#define C10D_KEYS_A_MESSAGE_MAX 131072u

/* X(name, words): why a client is closed. The words complete "store client ADDRESS closed: COMMAND:
 * ". */
#define C10D_REASON_TABLE(X)                                                                       \
    X(NOT_VALIDATED, "not VALIDATE, which a client sends first: no PyTorch 2.x")                   \
    X(OLD_DIALECT, "this looks like PyTorch 1.x, which speaks another protocol: use PyTorch 2.x, " \
                   "or submit with --no-store")                                                    \
    X(WRONG_MAGIC, "a magic number that is not PyTorch's")                                         \
    X(NOT_HTTP, "no HTTP request as Horovod sends them")                                           \
    X(UNKNOWN_COMMAND, "no such command")                                                          \
    X(KEY_TOO_LONG, "a key of more than 8192 bytes")                                               \
    X(VALUE_TOO_LONG, "a value of more than 8 MiB")                                                \
    X(TOO_MANY_KEYS, "more than 131072 keys in one request")                                       \
    X(MESSAGE_TOO_LONG, "a request over the store's limit of one message")                         \
    X(REPLY_TOO_LONG, "the reply would be over the store's limit of one message")                  \
    X(NOT_A_NUMBER, "the key's value is no number")                                                \
    X(OUT_OF_RANGE, "the sum does not fit in 64 bits")                                             \
    X(WAITS_ALREADY, "a second wait while the first has no answer")                                \
    X(STORE_FULL, "the store holds as many keys as it may")                                        \
    X(NO_MEMORY, "the store's memory is used up")                                                  \
    X(ASKED, "it asked for that")                                                                  \
    X(SILENT, "nothing that a client would send, for too long after connecting")                   \
    X(TOO_MANY_CLIENTS, "the store has as many clients as it may")

enum c10d_reason {
#define C10D_REASON_ENUM(name, words) C10D_REASON_##name,
    C10D_REASON_TABLE(C10D_REASON_ENUM)
#undef C10D_REASON_ENUM
};

struct c10d_limits {
    uint32_t clients_max;
    uint64_t keys_max;          /* keys and queue entries */
    uint64_t bytes_max;         /* all memory of the store, including requests and replies */
    uint64_t message_bytes_max; /* one request, and the reply to one */
    uint64_t hello_us;          /* the time from connecting to a complete VALIDATE */
    uint64_t hash_seed[2];      /* secret and random, so that nobody can choose keys that collide */
};

/* Like realloc; byte_count 0 frees and returns NULL. Otherwise NULL means no memory, and `bytes` is
 * unchanged. */
struct c10d_heap {
    void *(*resize)(void *owner, void *bytes, size_t byte_count);
    void *owner;
};

enum c10d_event_type {
    C10D_EVENT_CONNECTED, /* client: a number < clients_max of the caller's choice that is not in use */
    C10D_EVENT_BYTES,     /* client, bytes */
    C10D_EVENT_CLOSED,  /* client: it closed by itself; not after C10D_CLOSE */
    C10D_EVENT_DRAINED, /* client: everything sent before C10D_PAUSE has been written */
    C10D_EVENT_TICK,    /* about once a second */
};

struct c10d_event {
    enum c10d_event_type type;
    uint64_t now_us;
    uint32_t client;
    const void *bytes; /* borrowed for the call */
    size_t byte_count;
};

enum c10d_action_type {
    C10D_SEND,  /* bytes to the client */
    C10D_CLOSE, /* close the client; its number is free again. reason, and command if it sent one */
    C10D_PAUSE, /* read no more until the client's bytes are written; then C10D_EVENT_DRAINED */
};

struct c10d_action {
    enum c10d_action_type type;
    uint32_t client;
    const char *bytes; /* valid until the next step */
    size_t byte_count;
    enum c10d_reason reason;
    const char *command; /* "SET"; "" before the first byte */
};

struct c10d_actions {
    const struct c10d_action *items; /* in order; valid until the next step */
    size_t count;
};

struct c10d;

/* NULL: no memory. */
struct c10d *c10d_new(const struct c10d_limits *limits, const struct c10d_heap *heap);
void c10d_free(struct c10d **core);
struct c10d_actions c10d_step(struct c10d *core, const struct c10d_event *event);

const char *c10d_reason_words(enum c10d_reason reason);

/* For people: which clients are connected and what they wait for. Changes nothing. */
enum c10d_waits { C10D_WAITS_NOT, C10D_WAITS_FOR_KEYS, C10D_WAITS_AT_BARRIER };

struct c10d_client_info {
    uint32_t client;
    bool is_validated;
    enum c10d_waits waits;
    uint32_t pid; /* from its PING; 0: it has sent none */
    uint64_t connected_us, waits_since_us;
    uint32_t missing_keys; /* how many keys it still waits for */
};

/* The first client with a number >= `from`. False: none. */
bool c10d_next_client(const struct c10d *core, uint32_t from, struct c10d_client_info *info);
/* The keys that `client` waits for, one a call; start with *at = 0. False: no more. The key is
 * borrowed until the next step. It has the prefix "/" of the wire and may contain any bytes. */
bool c10d_next_missing(const struct c10d *core, uint32_t client, uint32_t *at, const char **key,
                       size_t *byte_count);

struct c10d_totals {
    uint32_t clients;
    uint64_t keys, bytes;
};
struct c10d_totals c10d_totals(const struct c10d *core);

#endif
