/* Shared by the tests of connections: a side that counts what it gets, and one loop for each test.
 * A peer that misbehaves is a plain descriptor, written before the loop runs and read after it. */
#ifndef TESTS_UNIT_COMMON_CONN_TOOLS_H
#define TESTS_UNIT_COMMON_CONN_TOOLS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/io/conn.h"
#include "tests/lib/test.h"

#define TIMEOUT_US 60000000u

struct side {
    struct conn conn;
    uint32_t message_count, closed_count;
    uint64_t last_sent_us; /* of the last beat_ack */
    enum msg_type last_type;
    enum status why;
    char text[256];
    uint32_t moved_count;
    bool answers, closes_on_message, sends_many_on_message, pauses_on_message;
};

extern uv_loop_t loop;
extern const struct conn_handlers handlers; /* handlers of a side, which is the owner of the
                                             * connection */

void open_loop(void);
/* Every handle must be closed by now. */
void close_loop(void);

#define RUN_UNTIL(condition)                                                                       \
    for (uint64_t end_us = clock_boot_us() + TIMEOUT_US; !(condition);) {                          \
        if (clock_boot_us() > end_us)                                                              \
            FAIL("waited in vain for %s", #condition);                                             \
        (void)uv_run(&loop, UV_RUN_ONCE);                                                          \
    }

void open_side(struct side *side, int fd, size_t payload_max);
/* Opens the loop too. One end for the connection, one for the test. */
int open_with_raw_peer(struct side *side);
void write_raw(int fd, const void *bytes, size_t byte_count);
void make_ack(struct buf *buf, uint64_t sent_us);
/* Reads to the end; `text` gets the text of the first frame. */
void read_answer(int fd, char *text, size_t text_bytes);

#endif
