/* Random valid messages, made from the tables of common/msg_table.h, so that every message that is
 * declared is covered. The same seed makes the same messages. */
#ifndef TESTS_FUZZ_MSG_RANDOM_H
#define TESTS_FUZZ_MSG_RANDOM_H

#include <stdint.h>

#include "common/arena.h"
#include "common/msg.h"
#include "common/msg_table.h"

struct random {
    uint64_t state; /* any seed */
};

uint64_t random_next(struct random *random);
/* 0..limit-1; limit > 0 */
uint64_t random_below(struct random *random, uint64_t limit);

/* Every field in its range; ends of ranges are frequent. Lists are short but for a few. */
void msg_random(struct random *random, struct arena *arena, enum msg_type type, struct msg *msg);
/* UTF-8 of exactly `byte_count` bytes that suits `kind` (TEXT, LINE, NAME). */
const char *text_random(struct random *random, struct arena *arena, enum msg_kind kind,
                        size_t byte_count);

#endif
