/* A client of the c10d store (docs/c10d-store.md) with one connection. Blocking, with a time limit.
 * Not locked: the caller's lock protects it. */
#ifndef LIBDDP_STORE_H
#define LIBDDP_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"

/* How long a call may wait. */
struct store_limit {
    uint64_t until_us;        /* on mono_us(); UINT64_MAX: no limit */
    bool (*is_stopped)(void); /* true ends every wait with STATUS_CLOSED */
};
/* `limit_s` below 0: none. Errors: STATUS_BAD_INPUT (NaN). */
enum status store_limit_from(struct store_limit *limit, double limit_s, bool (*is_stopped)(void),
                             struct err *err);

struct store {
    int fd; /* -1: not connected yet */
    struct buf out;
};

void store_close(struct store *store);
/* Connects to MASTER_ADDR:MASTER_PORT unless it is connected; retries while nobody listens there.
 * Errors: STATUS_UNSUPPORTED (they are not set), STATUS_TIMEOUT, STATUS_CLOSED, STATUS_IO. */
enum status store_connect(struct store *store, const struct store_limit *limit, struct err *err);

/* All of these need a connection. They close it when they fail, since the pending answer could be
 * taken for that of the next request. Keys are given without the "/" that precedes them on the
 * wire. Errors: STATUS_CLOSED, STATUS_IO, STATUS_TIMEOUT, STATUS_BAD_INPUT (not a store's answer),
 * STATUS_MEMORY. */
enum status store_set(struct store *store, const char *key, const void *bytes, size_t byte_count,
                      const struct store_limit *limit, struct err *err);
enum status store_add(struct store *store, const char *key, int64_t addend, int64_t *sum,
                      const struct store_limit *limit, struct err *err);
/* Waits for the key. STATUS_TIMEOUT: it was not set in time. */
enum status store_wait(struct store *store, const char *key, const struct store_limit *limit,
                       struct err *err);
/* Reads a key that exists. `*byte_count`: in: the room; out: the size. STATUS_TOO_BIG keeps the
 * connection. */
enum status store_get(struct store *store, const char *key, void *bytes, size_t *byte_count,
                      const struct store_limit *limit, struct err *err);
enum status store_delete(struct store *store, const char *key, const struct store_limit *limit,
                         struct err *err);

#endif
