/* Encoding requests and decoding answers of etcd's JSON gateway. Pure, apart from the heap. */
#ifndef RENDEZVOUS_STORE_ETCD_JSON_H
#define RENDEZVOUS_STORE_ETCD_JSON_H

#include "common/arena.h"
#include "common/buf.h"
#include "common/status.h"
#include "rendezvous/store/etcd_types.h"

/* Requests; `out->failed`: no memory. */
void etcd_json_txn(const struct etcd_txn *txn, struct buf *out);
void etcd_json_range(const struct etcd_op *range, struct buf *out);
/* A request to watch the changes of that range from `range->revision` on. */
void etcd_json_watch(const struct etcd_op *range, struct buf *out);

/* One struct for all kinds of answers; members that are not listed here are ignored. */
struct etcd_reply {
    struct etcd_answer answer; /* kv/txn, kv/range; watch: the keys that changed */
    int64_t lease;             /* lease/grant */
    int64_t ttl_s;             /* lease/grant, lease/keepalive; 0: none */
    uint64_t database_bytes, used_bytes;
    bool is_full;      /* maintenance/alarm */
    const char *token; /* auth/authenticate; "": none */
    /* watch: */
    bool is_cancelled;         /* nothing more will come */
    int64_t compacted;         /* this revision and earlier ones were dropped; 0: another reason */
    const char *cancel_reason; /* for another reason; "": none given */
};

/* Texts are in `arena`. Errors: STATUS_BAD_INPUT: not JSON, or a field of a wrong kind; STATUS_TOO_BIG;
 * STATUS_MEMORY. */
enum status etcd_json_reply(const char *text, size_t byte_count, struct arena *arena,
                            struct etcd_reply *reply, struct err *err);

/* Decodes an error answer: returns gRPC's code and sets its message as one line; -1: it has
 * none. */
int etcd_json_error(const char *text, size_t byte_count, char *message, size_t message_bytes);

#endif
