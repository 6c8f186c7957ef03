/* Who waits for which key. A client waits for several keys and is counted down; a key knows its waiters in the order in
 * which they came. Waking takes time for each waiter woken, whatever else waits. */
#ifndef LAUNCHERD_C10D_WAITS_H
#define LAUNCHERD_C10D_WAITS_H

#include <stdbool.h>
#include <stdint.h>

#include "launcherd/c10d/memory.h"
#include "launcherd/c10d/table.h"

struct topic;

/* One key that a client waits for; its topic is NULL once the key is there. */
struct waiter {
    struct waiter *next, *previous;
    struct topic *topic;
    struct waiting *owner;
};

/* What a client waits for. Zero it first. */
struct waiting {
    struct waiter *waiters; /* [capacity], `count` of them in use; NULL: it waits for nothing */
    uint32_t count, capacity, missing;
};

struct waits {
    struct memory *memory;
    struct table topics;
};

/* `waiting` waits for nothing any more, and is zeroed by then. */
typedef void waits_woken(void *owner, struct waiting *waiting);

bool waits_init(struct waits *waits, struct memory *memory, const uint64_t seed[2]);
/* All waiting must have been dropped. */
void waits_close(struct waits *waits);
/* Room for `capacity` keys. False: no memory, and nothing has changed. */
bool waits_reserve(struct waits *waits, struct waiting *waiting, uint32_t capacity);
/* One more key. False: no memory; then waits_drop. */
bool waits_add(struct waits *waits, struct waiting *waiting, struct text key);
/* It waits for nothing; also where it did not. */
void waits_drop(struct waits *waits, struct waiting *waiting);
/* The key is there: every waiter of it, or only the first, has one key less to wait for. */
void waits_wake(struct waits *waits, struct text key, bool only_first, waits_woken *woken,
                void *owner);
struct text waits_key(const struct waits *waits, const struct waiter *waiter);

#endif
