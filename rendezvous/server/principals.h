/* The principals in memory, by name: who has a key, and its secrets. No I/O: keys.c keeps the store
 * in step. Times are the wall clock in milliseconds, for they outlive the process. */
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
    uint64_t serial;           /* never used twice: a removed name may come again */
    uint32_t connection_count; /* that have proved this key */
};

/* Zero it first. A pointer to a principal is valid until the next add, restore or remove. */
struct principals {
    struct principal *items; /* by rising name */
    uint32_t count, capacity;
    uint64_t serial;
};

void principals_free(struct principals *principals); /* forgets every secret */
struct principal *principals_find(const struct principals *principals, const char *name);
/* The first principal behind this name; count: none. */
uint32_t principals_after(const struct principals *principals, const char *name);

/* A new one with a new secret. Errors: STATUS_CONFLICT, the name is in use; STATUS_TOO_BIG,
 * PRINCIPALS_MAX are there; STATUS_MEMORY; STATUS_SYSTEM, no random bytes. */
enum status principals_add(struct principals *principals, const char *name, enum role role,
                           int64_t now_ms, struct principal **added, struct err *err);
/* One of the store. */
enum status principals_restore(struct principals *principals, const struct store_principal *stored,
                               struct err *err);
void principals_remove(struct principals *principals, struct principal *principal);

/* A new secret; the one before is valid until `until_ms` (not above `now_ms`: it is dropped at once).
 * A still older one is dropped. Errors: STATUS_SYSTEM. */
enum status principal_rotate(struct principal *principal, int64_t until_ms, int64_t now_ms,
                             struct err *err);
/* Drops secrets that have ended. True: there was one. */
bool principal_expire(struct principal *principal, int64_t now_ms);
/* How many of its secrets are valid. */
uint32_t principal_secrets(const struct principal *principal, int64_t now_ms);
/* The earliest end of a secret; INT64_MAX: none ends. */
int64_t principals_next_end(const struct principals *principals);

/* The secret of "NAME:ID" of [byte_count], from an unauthenticated peer. False: no valid one. */
bool principals_secret(const struct principals *principals, const char *identity, size_t byte_count,
                       int64_t now_ms, uint8_t secret[KEY_SECRET_BYTES]);

#endif
