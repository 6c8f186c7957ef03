/* The requests and answers of etcd's JSON gateway. Pure: the heap alone. */
#ifndef RENDEZVOUS_STORE_ETCD_JSON_H
#define RENDEZVOUS_STORE_ETCD_JSON_H

#include "common/arena.h"
#include "common/buf.h"
#include "common/status.h"
#include "rendezvous/store/etcd_types.h"

/* Requests; `out->failed`: no memory. */
void etcd_json_txn(const struct etcd_txn *txn, struct buf *out);
void etcd_json_range(const struct etcd_op *range, struct buf *out);
/* Changes of that range, from `range->revision` on. */
void etcd_json_watch(const struct etcd_op *range, struct buf *out);

/* Answers. Of all of them what is wanted is taken, and the rest is passed over. */
struct etcd_reply {
    struct etcd_answer answer; /* kv/txn, kv/range; watch: the keys that changed */
    int64_t lease;             /* lease/grant */
    int64_t ttl_s;             /* lease/grant, lease/keepalive; 0: none */
    uint64_t database_bytes, used_bytes;
    bool is_full;      /* maintenance/alarm */
    const char *token; /* auth/authenticate; "": none */
    /* watch: */
    bool is_cancelled; /* nothing more will come */
    int64_t compacted; /* because this revision and earlier ones were dropped; 0: not that */
    const char *cancel_reason; /* otherwise; "": no reason given */
};

/* Texts are in `arena`. Errors: STATUS_BAD_INPUT: not JSON, or a field of a wrong kind; STATUS_TOO_BIG;
 * STATUS_MEMORY. */
enum status etcd_json_reply(const char *text, size_t byte_count, struct arena *arena,
                            struct etcd_reply *reply, struct err *err);

/* The body of an answer that is no success: gRPC's code, and its message as one line; -1: it has none. */
int etcd_json_error(const char *text, size_t byte_count, char *message, size_t message_bytes);

#endif
