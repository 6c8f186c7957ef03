/* Shared by the tests of the codec. */
#ifndef TESTS_UNIT_COMMON_MSG_TOOLS_H
#define TESTS_UNIT_COMMON_MSG_TOOLS_H

#include <stdint.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/msg.h"
#include "common/msg_table.h"

extern struct arena made, got; /* for messages made here; for decoded messages */
extern struct buf out, again;

/* Frees the four above. */
void clean(void);
void *field_of(struct msg *msg, const struct msg_field *field);
void make(uint64_t seed, enum msg_type type, struct msg *msg);
/* Makes a message with one entry in every list, so that the fields of entries can be tested. */
void make_with_parts(enum msg_type type, struct msg *msg);
/* Encodes into `out`, decodes, encodes into `again`: the same bytes. */
void check_round_trip(const struct msg *msg);
/* U32, I32, U64, I64 */
void set_integer(const struct msg_field *field, uint64_t bits, void *at);

#endif
