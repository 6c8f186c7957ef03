/* A client of etcd (3.4 and newer) by its JSON gateway (POST /v3/...), over libcurl. An edge. Every call
 * blocks until it has an answer or its deadline comes, and tries one member after another meanwhile, the
 * one that answered last first. One client belongs to one thread.
 *
 * A request whose answer is lost may have been carried out, and is sent again. So reads and lease calls
 * are harmless, and a transaction must be made so that a second copy of it does nothing: with comparisons
 * that its own success makes false. `tries` of the answer tells whether there may be such a copy. */
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
#define ETCD_OPS_MAX 128u            /* of one transaction, as etcd has it by default */
#define ETCD_REQUEST_BYTES_MAX                                                                     \
    (1u << 20) /* keys and values of one; etcd takes 1.5 MiB by default */
#define ETCD_PORT 2379u

/* Kinds of failure, in the code of an err. */
enum etcd_code {
    ETCD_NO_SPACE = 8,   /* STATUS_IO: etcd has reached its quota and takes no writes */
    ETCD_COMPACTED = 11, /* STATUS_NOT_FOUND: that revision is no longer there */
};

struct etcd_options {
    char endpoints[ETCD_ENDPOINTS_MAX][ETCD_ENDPOINT_BYTES_MAX]; /* "HOST:PORT", "[::1]:2379" */
    uint32_t endpoint_count;
    bool uses_tls;
    /* NULL: the system's authorities, no certificate of our own. Borrowed for the call. */
    const char *ca_path, *cert_path, *key_path;
    const char *user, *password; /* NULL: none. Copied. */
    /* Asked about once a second during a call, by the thread that made it. False: it ends. NULL: always true. */
    bool (*goes_on)(void *context);
    void *context;
};

struct etcd_health {
    uint64_t database_bytes, used_bytes;
    bool is_full; /* an alarm of NOSPACE is on */
};

struct etcd_client;

/* "etcd://h1:2379,h2,[::1]:2379/prefix" or "etcds://..." (TLS). `prefix` gets "/prefix/", or
 * "/ddp/". Errors: STATUS_BAD_INPUT. */
#define ETCD_PREFIX_BYTES_MAX 128u
enum status etcd_url_parse(const char *url, struct etcd_options *options,
                           char prefix[ETCD_PREFIX_BYTES_MAX], struct err *err);
bool etcd_url_is(const char *text); /* begins with etcd:// or etcds:// */

/* Connects to nothing yet. Errors: STATUS_LIBRARY, STATUS_MEMORY, STATUS_BAD_INPUT. */
enum status etcd_open(struct etcd_client **client, const struct etcd_options *options,
                      struct err *err);
void etcd_close(struct etcd_client **client);
/* The endpoint that answered last, for messages. */
const char *etcd_endpoint(const struct etcd_client *client);

/* `deadline_us` is of clock_boot_us. Errors of all calls: STATUS_TIMEOUT: no member answered (a write may
 * have been done, or may be later); STATUS_REFUSED: user, password or permission; STATUS_TOO_BIG: the
 * request or its answer; STATUS_IO with ETCD_NO_SPACE; STATUS_NOT_FOUND with ETCD_COMPACTED; STATUS_MEMORY;
 * STATUS_BAD_INPUT: etcd does not understand it. */
enum status etcd_transact(struct etcd_client *client, const struct etcd_txn *txn,
                          uint64_t deadline_us, struct arena *arena, struct etcd_answer *answer,
                          struct err *err);
enum status etcd_range(struct etcd_client *client, const struct etcd_op *range,
                       uint64_t deadline_us, struct arena *arena, struct etcd_answer *answer,
                       struct err *err);
/* A lease of `ttl_s` seconds. It lives for that long at least from the time that this call, or
 * etcd_lease_keep, was begun. */
enum status etcd_lease_grant(struct etcd_client *client, uint32_t ttl_s, uint64_t deadline_us,
                             int64_t *lease, struct err *err);
/* STATUS_NOT_FOUND: it has ended, and its keys are gone. `ttl_s` may be NULL. */
enum status etcd_lease_keep(struct etcd_client *client, int64_t lease, uint64_t deadline_us,
                            uint32_t *ttl_s, struct err *err);
/* Its keys are gone then. One that has ended already is no error. */
enum status etcd_lease_revoke(struct etcd_client *client, int64_t lease, uint64_t deadline_us,
                              struct err *err);
/* History before that revision is dropped. One that is dropped already is no error. */
enum status etcd_compact(struct etcd_client *client, int64_t revision, uint64_t deadline_us,
                         struct err *err);
/* Changes of a range, from `range->revision` on, in their order, and those of one revision together. */
struct etcd_watch_options {
    /* False: enough. The rows are freed afterwards. */
    bool (*on_changes)(const struct etcd_answer *changes, void *context);
    void *context;
};
/* Returns when on_changes or goes_on has had enough (STATUS_OK), or when nothing more will come: STATUS_NOT_FOUND with
 * ETCD_COMPACTED: changes that are wanted were dropped; STATUS_TIMEOUT: the stream broke, or was silent for a minute: ask
 * again from the last change on; others as above. It gets no token of etcd's users: make another call before it. */
enum status etcd_watch(struct etcd_client *client, const struct etcd_op *range,
                       const struct etcd_watch_options *options, struct err *err);
/* Of the member that answers. */
enum status etcd_health(struct etcd_client *client, uint64_t deadline_us,
                        struct etcd_health *health, struct err *err);

struct etcd_bytes etcd_text(const char *text);
bool etcd_bytes_are(struct etcd_bytes bytes, const char *text);

#endif
