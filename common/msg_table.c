/* Each function here contains the table of one struct. Inside, `self` is a typedef of that struct,
 * since the declarations of msg.h do not name it. (These are the only typedefs of structs; each
 * ends with its function.) */
#include "common/msg_table.h"

#include <assert.h>

static_assert(sizeof(enum job_state) == sizeof(uint32_t), "enumerations are stored as 32 bits");
static_assert(sizeof(struct msg_list) == sizeof(((struct msg_beat *)0)->shims),
              "all lists have one layout");

#define RANGE_INTEGER(lo, hi) .min = (int64_t)(lo), .max = (uint64_t)(hi)
#define RANGE_U32(lo, hi) RANGE_INTEGER(lo, hi)
#define RANGE_I32(lo, hi) RANGE_INTEGER(lo, hi)
#define RANGE_U64(lo, hi) RANGE_INTEGER(lo, hi)
#define RANGE_I64(lo, hi) RANGE_INTEGER(lo, hi)
#define RANGE_F64(lo, hi) .real_min = (lo), .real_max = (hi)
#define RANGE_BOOL(lo, hi) RANGE_INTEGER(0, 1)
#define RANGE_TEXT(lo, hi) RANGE_INTEGER(lo, hi)
#define RANGE_LINE(lo, hi) RANGE_INTEGER(lo, hi)
#define RANGE_NAME(lo, hi) RANGE_INTEGER(lo, hi)
#define RANGE_TEXTS(lo, hi) RANGE_INTEGER(lo, hi)
#define RANGE_PAIRS(lo, hi) RANGE_INTEGER(lo, hi)
#define RANGE_BYTES(lo, hi) RANGE_INTEGER(lo, hi)

#define FIELD_F(field_kind, field, lo, hi)                                                         \
    {.name = #field,                                                                               \
     .kind = MSG_KIND_##field_kind,                                                                \
     .offset = offsetof(self, field),                                                              \
     RANGE_##field_kind(lo, hi)},
#define FIELD_E(field, tag, TABLE)                                                                 \
    {.name = #field, .kind = MSG_KIND_ENUM, .offset = offsetof(self, field), .names = &tag##_names},
#define FIELD_L(field, part_tag, limit)                                                            \
    {.name = #field,                                                                               \
     .kind = MSG_KIND_LIST,                                                                        \
     .offset = offsetof(self, field),                                                              \
     .min = 0,                                                                                     \
     .max = (limit),                                                                               \
     .part = shape_part_##part_tag},

#define SHAPE(function, tag, title, FIELDS, bytes)                                                 \
    static const struct msg_shape *function(void)                                                  \
    {                                                                                              \
        typedef struct tag self;                                                                   \
        static const struct msg_field fields[] = {FIELDS(FIELD_F, FIELD_E, FIELD_L)};              \
        static const struct msg_shape shape = {.name = (title),                                    \
                                               .fields = fields,                                   \
                                               .field_count = sizeof fields / sizeof fields[0],    \
                                               .byte_count = sizeof(self),                         \
                                               .frame_bytes_max = (bytes)};                        \
        static_assert(sizeof fields / sizeof fields[0] <= 64, "one bit for each field");           \
        return &shape;                                                                             \
    }
#define PART(tag, FIELDS) SHAPE(shape_part_##tag, part_##tag, #tag, FIELDS, 0)
#define MESSAGE(NAME, message, bytes)                                                              \
    static_assert(offsetof(struct msg, message) == MSG_BODY_OFFSET,                                \
                  "all bodies begin at one offset");                                               \
    SHAPE(shape_msg_##message, msg_##message, #message, MSG_##NAME, bytes)

MSG_PART_TABLE(PART)
MSG_TABLE(MESSAGE)

const struct msg_shape *msg_shape(enum msg_type type)
{
#define CASE(NAME, message, bytes)                                                                 \
    case MSG_TYPE_##NAME:                                                                          \
        return shape_msg_##message();
    switch (type) {
        MSG_TABLE(CASE)
    case MSG_TYPE_COUNT:
        break;
    }
#undef CASE
    return NULL;
}
