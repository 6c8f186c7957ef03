/* The principals in memory, by name: who has a key, and its secrets. No I/O: keys.c keeps the store
 * up to date. Times are on the wall clock in milliseconds, since they must survive a restart. */
#ifndef RENDEZVOUS_SERVER_PRINCIPALS_H
#define RENDEZVOUS_SERVER_PRINCIPALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/key.h"
#include "common/status.h"
#include "rendezvous/store/store.h"

struct principal {
    struct store_principal stored;
    char ids[SECRETS_PER_PRINCIPAL_MAX][KEY_ID_CHARS + 1]; /* of its secrets */
    uint64_t serial;           /* never reused: a removed name may be added again */
    uint32_t connection_count; /* connections that have proved this key */
};

/* Zero it first. A pointer to a principal is valid until the next add, restore or remove. */
struct principals {
    struct principal *items; /* sorted by name */
    uint32_t count, capacity;
    uint64_t serial;
    bool is_partial; /* a key of the store could not be read, and is not here */
};

void principals_free(struct principals *principals); /* forgets every secret */
struct principal *principals_find(const struct principals *principals, const char *name);
/* The index of the first principal after this name; count: none. */
uint32_t principals_after(const struct principals *principals, const char *name);

/* Adds a principal with a new secret. Errors: STATUS_CONFLICT: the name is in use; STATUS_TOO_BIG:
 * there are PRINCIPALS_MAX; STATUS_MEMORY; STATUS_SYSTEM: no random bytes. */
enum status principals_add(struct principals *principals, const char *name, enum role role,
                           int64_t now_ms, struct principal **added, struct err *err);
/* Adds a principal from the store. */
enum status principals_restore(struct principals *principals, const struct store_principal *stored,
                               struct err *err);
void principals_remove(struct principals *principals, struct principal *principal);

/* Makes a new secret. The previous one stays valid until `until_ms` (if that is not after `now_ms`,
 * it is dropped at once). Older ones are dropped. Errors: STATUS_SYSTEM. */
enum status principal_rotate(struct principal *principal, int64_t until_ms, int64_t now_ms,
                             struct err *err);
/* Drops expired secrets. True: there were some. */
bool principal_expire(struct principal *principal, int64_t now_ms);
/* How many of its secrets are valid. */
uint32_t principal_secrets(const struct principal *principal, int64_t now_ms);
/* When the next secret expires; INT64_MAX: none does. */
int64_t principals_next_end(const struct principals *principals);

/* Finds the secret for "NAME:ID" [byte_count], which comes from an unauthenticated peer. False:
 * there is no valid one. */
bool principals_secret(const struct principals *principals, const char *identity, size_t byte_count,
                       int64_t now_ms, uint8_t secret[KEY_SECRET_BYTES]);

#endif
