/* Which clients wait for which keys. A client may wait for several keys and counts down; a key
 * lists its waiters in the order in which they came. Waking takes time only for the waiters that
 * are woken. */
#ifndef LAUNCHERD_C10D_WAITS_H
#define LAUNCHERD_C10D_WAITS_H

#include <stdbool.h>
#include <stdint.h>

#include "launcherd/c10d/memory.h"
#include "launcherd/c10d/table.h"

struct topic;

/* One key that a client waits for; its topic is NULL once the key exists. */
struct waiter {
    struct waiter *next, *previous;
    struct topic *topic;
    struct waiting *owner;
};

/* The keys that one client waits for. Zero it first. */
struct waiting {
    struct waiter *waiters; /* [capacity], `count` of them in use; NULL: it waits for nothing */
    uint32_t count, capacity, missing;
};

struct waits {
    struct memory *memory;
    struct table topics;
};

/* Called when `waiting` waits for nothing any more; it is zeroed before. */
typedef void waits_woken(void *owner, struct waiting *waiting);

bool waits_init(struct waits *waits, struct memory *memory, const uint64_t seed[2]);
/* Everything that waits must have been dropped. */
void waits_close(struct waits *waits);
/* Reserves room for `capacity` keys. False: no memory, and nothing was changed. */
bool waits_reserve(struct waits *waits, struct waiting *waiting, uint32_t capacity);
/* Waits for one more key. False: no memory; call waits_drop then. */
bool waits_add(struct waits *waits, struct waiting *waiting, struct text key);
/* Stops waiting. Does nothing if it does not wait. */
void waits_drop(struct waits *waits, struct waiting *waiting);
/* The key exists now: all its waiters, or only the first, have one key less to wait for. */
void waits_wake(struct waits *waits, struct text key, bool only_first, waits_woken *woken,
                void *owner);
struct text waits_key(const struct waits *waits, const struct waiter *waiter);

#endif
