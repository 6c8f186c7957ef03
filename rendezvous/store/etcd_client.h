/* A client of etcd (3.4 and newer) over its JSON gateway (POST /v3/...), with libcurl. An edge. Every call
 * blocks until it has an answer or reaches its deadline. It tries one member after another, starting with the
 * one that answered last. A client may only be used by one thread.
 *
 * A request whose answer is lost is sent again although etcd may have carried it out. That is harmless for
 * reads and lease calls. A transaction must be written so that a second copy of it does nothing: with
 * comparisons that fail once the first copy has succeeded. `tries` in the answer tells whether there may be
 * such a copy. */
#ifndef RENDEZVOUS_STORE_ETCD_CLIENT_H
#define RENDEZVOUS_STORE_ETCD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/status.h"
#include "rendezvous/store/etcd_types.h"

#define ETCD_ENDPOINTS_MAX 16u
#define ETCD_ENDPOINT_BYTES_MAX 264u /* HOST:PORT */
#define ETCD_OPS_MAX 128u            /* in one transaction; etcd's default limit */
#define ETCD_REQUEST_BYTES_MAX                                                                     \
    (1u << 20) /* keys and values of one request; etcd's default limit is 1.5 MiB */
#define ETCD_PORT 2379u

/* Kinds of failure, in err.code. */
enum etcd_code {
    ETCD_NO_SPACE = 8,     /* STATUS_IO: etcd has reached its quota and takes no writes */
    ETCD_COMPACTED = 11,   /* STATUS_NOT_FOUND: that revision is no longer there */
    ETCD_FUTURE = 1011,    /* likewise: that revision is not there yet */
    ETCD_WENT_BACK = 1012, /* likewise: etcd has another history (remote_history.h) */
};

struct etcd_options {
    char endpoints[ETCD_ENDPOINTS_MAX][ETCD_ENDPOINT_BYTES_MAX]; /* "HOST:PORT", "[::1]:2379" */
    uint32_t endpoint_count;
    bool uses_tls;
    /* NULL: the system's certificate authorities; no client certificate. Borrowed for the call. */
    const char *ca_path, *cert_path, *key_path;
    const char *user, *password; /* NULL: none. Copied. */
    /* Called about once a second during a call, on the caller's thread. False: the call ends. NULL:
     * never called. */
    bool (*goes_on)(void *context);
    void *context;
};

struct etcd_health {
    uint64_t database_bytes, used_bytes;
    bool is_full; /* etcd's alarm NOSPACE is on */
};

struct etcd_client;

/* "etcd://h1:2379,h2,[::1]:2379/prefix" or "etcds://..." (TLS). `prefix` gets "/prefix/", or
 * "/ddp/". Errors: STATUS_BAD_INPUT. */
#define ETCD_PREFIX_BYTES_MAX 128u
enum status etcd_url_parse(const char *url, struct etcd_options *options,
                           char prefix[ETCD_PREFIX_BYTES_MAX], struct err *err);
bool etcd_url_is(const char *text); /* begins with etcd:// or etcds:// */

/* For how many seconds the first certificate in a file is still valid; below 0: it has ended.
 * False: the file cannot be read. */
bool etcd_files_left(const char *path, int64_t *left_s);

/* Makes a client; it does not connect yet. Errors: STATUS_LIBRARY, STATUS_MEMORY, STATUS_BAD_INPUT. */
enum status etcd_open(struct etcd_client **client, const struct etcd_options *options,
                      struct err *err);
void etcd_close(struct etcd_client **client);
/* The endpoint that answered last, for messages. */
const char *etcd_endpoint(const struct etcd_client *client);

/* `deadline_us`: on clock_boot_us. Errors of all calls: STATUS_TIMEOUT: no member answered (a write
 * may have been carried out, or may be later); STATUS_REFUSED: user, password or permission;
 * STATUS_TOO_BIG: the request or its answer; STATUS_IO with ETCD_NO_SPACE; STATUS_NOT_FOUND with
 * ETCD_COMPACTED; STATUS_MEMORY; STATUS_BAD_INPUT: etcd does not understand the request. */
enum status etcd_transact(struct etcd_client *client, const struct etcd_txn *txn,
                          uint64_t deadline_us, struct arena *arena, struct etcd_answer *answer,
                          struct err *err);
enum status etcd_range(struct etcd_client *client, const struct etcd_op *range,
                       uint64_t deadline_us, struct arena *arena, struct etcd_answer *answer,
                       struct err *err);
/* Grants a lease of `ttl_s` seconds. It lives at least that long from the beginning of this call,
 * or of the latest etcd_lease_keep. */
enum status etcd_lease_grant(struct etcd_client *client, uint32_t ttl_s, uint64_t deadline_us,
                             int64_t *lease, struct err *err);
/* Renews a lease. STATUS_NOT_FOUND: it has expired, and its keys are gone. `ttl_s` may be NULL. */
enum status etcd_lease_keep(struct etcd_client *client, int64_t lease, uint64_t deadline_us,
                            uint32_t *ttl_s, struct err *err);
/* Revokes a lease and so removes its keys. STATUS_OK also if it has expired already. */
enum status etcd_lease_revoke(struct etcd_client *client, int64_t lease, uint64_t deadline_us,
                              struct err *err);
/* Drops the history before that revision. STATUS_OK also if it has been dropped already. */
enum status etcd_compact(struct etcd_client *client, int64_t revision, uint64_t deadline_us,
                         struct err *err);
/* A watch: the changes of a range from `range->revision` on, in order. Changes of one revision come
 * together. */
struct etcd_watch_options {
    /* False: end the watch. `changes` is freed after the call. */
    bool (*on_changes)(const struct etcd_answer *changes, void *context);
    void *context;
};
/* Blocks until on_changes or goes_on returns false (STATUS_OK), or until no more changes can come.
 * STATUS_NOT_FOUND with ETCD_COMPACTED: changes of the range were dropped from the history.
 * STATUS_TIMEOUT: the stream broke or was silent for a minute; start again after the last change.
 * Others as above. A watch does not log in to etcd: make another call before it. */
enum status etcd_watch(struct etcd_client *client, const struct etcd_op *range,
                       const struct etcd_watch_options *options, struct err *err);
/* The state of the member that answers. */
enum status etcd_health(struct etcd_client *client, uint64_t deadline_us,
                        struct etcd_health *health, struct err *err);

struct etcd_bytes etcd_text(const char *text);
bool etcd_bytes_are(struct etcd_bytes bytes, const char *text);

#endif
