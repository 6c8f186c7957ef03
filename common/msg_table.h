/* The declarations of msg.h as tables, for code that treats all messages alike: the codec, and
 * tests that make random messages. Other code should not use it. */
#ifndef COMMON_MSG_TABLE_H
#define COMMON_MSG_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/msg.h"

enum msg_kind {
    MSG_KIND_U32,
    MSG_KIND_I32,
    MSG_KIND_F64,
    MSG_KIND_U64,
    MSG_KIND_I64,
    MSG_KIND_BOOL,
    MSG_KIND_TEXT,
    MSG_KIND_LINE,
    MSG_KIND_NAME,
    MSG_KIND_TEXTS,
    MSG_KIND_PAIRS,
    MSG_KIND_BYTES,
    MSG_KIND_ENUM, /* E */
    MSG_KIND_LIST, /* L; of parts, which hold no lists */
};

struct msg_names {
    const char *const *items;
    uint32_t count;
};
#define MSG_NAMES_DECLARE(tag, TABLE) extern const struct msg_names tag##_names;
MSG_ENUM_TABLE(MSG_NAMES_DECLARE)
#undef MSG_NAMES_DECLARE

struct msg_field {
    const char *name;
    enum msg_kind kind;
    size_t offset;             /* in its struct msg_x or part_x */
    int64_t min;               /* of integers; least bytes or items of the others */
    uint64_t max;              /* the same, at most */
    double real_min, real_max; /* of F64 */
    const struct msg_names *names;
    const struct msg_shape *(*part)(void); /* of LIST */
};

/* One struct: a message or a part. */
struct msg_shape {
    const char *name;
    const struct msg_field *fields; /* [field_count], at most 64 */
    uint32_t field_count;
    size_t byte_count;      /* sizeof the struct */
    size_t frame_bytes_max; /* 0 for a part */
};
const struct msg_shape *msg_shape(enum msg_type type);

/* The layout of a list of any part. */
struct msg_list {
    const void *items;
    uint32_t count;
};

/* Where the members of every message begin in struct msg. */
#define MSG_BODY_OFFSET offsetof(struct msg, error)

#endif
