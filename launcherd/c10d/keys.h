/* The store's content: values by key, and queues by key. A value and a queue may have the same key;
 * they are independent. */
#ifndef LAUNCHERD_C10D_KEYS_H
#define LAUNCHERD_C10D_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "launcherd/c10d/c10d.h"
#include "launcherd/c10d/memory.h"
#include "launcherd/c10d/table.h"

struct keys {
    struct memory *memory;
    struct table values, queues;
    uint64_t count, limit; /* values and entries of queues */
};

/* KEYS_REFUSED: *reason says why, and nothing was changed. */
enum keys_result { KEYS_DONE, KEYS_REFUSED };

bool keys_init(struct keys *keys, struct memory *memory, uint64_t limit, const uint64_t seed[2]);
void keys_close(struct keys *keys);

/* The value, borrowed until the next change. False: there is none. */
bool keys_get(const struct keys *keys, struct text key, struct text *value);
enum keys_result keys_set(struct keys *keys, struct text key, struct text value,
                          enum c10d_reason *reason);
enum keys_result keys_append(struct keys *keys, struct text key, struct text value,
                             enum c10d_reason *reason);
/* Adds to a value, which must be a decimal number; a missing one counts as 0. */
enum keys_result keys_add(struct keys *keys, struct text key, int64_t delta, int64_t *sum,
                          enum c10d_reason *reason);
/* False: there was none. */
bool keys_delete(struct keys *keys, struct text key);

enum keys_result keys_push(struct keys *keys, struct text key, struct text value,
                           enum c10d_reason *reason);
/* The first entry, borrowed until keys_drop_first. Returns the number of entries. */
uint64_t keys_first(const struct keys *keys, struct text key, struct text *value);
void keys_drop_first(struct keys *keys, struct text key);

/* Whether the key has a value or a queue with an entry. */
bool keys_has(const struct keys *keys, struct text key);

#endif
