/* One c10d core on the test's heap, requests to it, and the bytes that it sends to each client. */
#ifndef TESTS_LIB_C10D_TOOLS_H
#define TESTS_LIB_C10D_TOOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "launcherd/c10d/c10d.h"

#define TOOL_CLIENTS_MAX 1100u

struct c10d_tools {
    struct c10d *core;
    uint64_t now_us;
    struct buf got[TOOL_CLIENTS_MAX];          /* sent to each client and not checked yet */
    bool is_open[TOOL_CLIENTS_MAX];            /* connected, and not closed by the core */
    bool is_paused[TOOL_CLIENTS_MAX];          /* by the core; no DRAINED event since */
    enum c10d_reason reason[TOOL_CLIENTS_MAX]; /* for clients that the core closed */
    const char *command[TOOL_CLIENTS_MAX];
    uint64_t allocations_left; /* after this many, allocations fail; UINT64_MAX: no limit */
    uint64_t blocks;           /* not freed yet */
};

extern const struct c10d_limits tool_limits;

void tools_open(struct c10d_tools *tools, const struct c10d_limits *limits);
/* Opens a core whose allocations fail after that many. False: too few to open it. */
bool tools_try_open(struct c10d_tools *tools, const struct c10d_limits *limits,
                    uint64_t allocations);
/* Closes and checks that all memory was freed. */
void tools_close(struct c10d_tools *tools);
void tools_connect(struct c10d_tools *tools, uint32_t client);
void tools_send(struct c10d_tools *tools, uint32_t client, const void *bytes, size_t byte_count);
void tools_event(struct c10d_tools *tools, enum c10d_event_type type, uint32_t client);

/* A request by the letters of its fields: k a key and b a blob (const char *), 4 a uint32_t, 8 an int64_t, n a count
 * (uint64_t); request(&buf, 1, "kb", "/key", "value"). */
void request_add(struct buf *buf, unsigned command, const char *fields, ...);

#endif
