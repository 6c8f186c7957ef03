/* Finds where the first request in a stream of bytes ends, and reads its fields in order. Private
 * to the core. */
#ifndef LAUNCHERD_C10D_SCAN_H
#define LAUNCHERD_C10D_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcherd/c10d/c10d.h"
#include "launcherd/c10d/memory.h"

/* X(name, number, fields): k is a key and b a blob (u64 length, then bytes), 4 a u32, 8 an i64, n a
 * u64 count of repetitions of the fields after it. Numbers are little-endian. */
#define COMMAND_TABLE(X)                                                                           \
    X(VALIDATE, 0, "4")                                                                            \
    X(SET, 1, "kb")                                                                                \
    X(COMPARE_SET, 2, "kbb")                                                                       \
    X(GET, 3, "k")                                                                                 \
    X(ADD, 4, "k8")                                                                                \
    X(CHECK, 5, "nk")                                                                              \
    X(WAIT, 6, "nk")                                                                               \
    X(GETNUMKEYS, 7, "")                                                                           \
    X(DELETE_KEY, 8, "k")                                                                          \
    X(APPEND, 9, "kb")                                                                             \
    X(MULTI_GET, 10, "nk")                                                                         \
    X(MULTI_SET, 11, "nkb")                                                                        \
    X(CANCEL_WAIT, 12, "")                                                                         \
    X(PING, 13, "4")                                                                               \
    X(QUEUE_PUSH, 14, "kb")                                                                        \
    X(QUEUE_POP, 15, "k")                                                                          \
    X(QUEUE_LEN, 16, "k")                                                                          \
    X(LIST_KEYS, 17, "")                                                                           \
    X(BARRIER, 18, "k8")

enum command {
#define COMMAND_ENUM(name, number, fields) COMMAND_##name = (number),
    COMMAND_TABLE(COMMAND_ENUM)
#undef COMMAND_ENUM
};

/* The progress of the scan of one request, so that each byte is scanned once. Zero it for the next
 * request. */
struct scan {
    size_t at; /* bytes of the request seen so far; its length once it is complete */
    uint64_t items_left;
    unsigned field;
    uint8_t command; /* valid when at > 0 */
};

enum scan_result { SCAN_WHOLE, SCAN_MORE, SCAN_BAD };

/* `text` begins with the request: the bytes that `scan` has seen, and possibly more. */
enum scan_result scan_request(struct scan *scan, struct text text, uint64_t message_bytes_max,
                              enum c10d_reason *reason);
/* "SET"; "" for unknown commands. */
const char *scan_command_name(unsigned command);

/* The fields of a complete request, in order. */
struct fields {
    const char *bytes;
    size_t at;
};

uint64_t fields_number(struct fields *fields, size_t byte_count);
struct text fields_text(struct fields *fields);

#endif
