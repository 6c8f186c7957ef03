/* Requests to etcd and its answers. */
#ifndef RENDEZVOUS_STORE_ETCD_TYPES_H
#define RENDEZVOUS_STORE_ETCD_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct etcd_bytes {
    const char *bytes; /* NULL: none */
    size_t byte_count;
};

enum etcd_target { ETCD_CREATED, ETCD_MODIFIED, ETCD_VALUE };

/* True if the key's revision of that kind (0: no such key), or its value, equals this one. */
struct etcd_compare {
    enum etcd_target target;
    struct etcd_bytes key;
    int64_t revision;
    struct etcd_bytes value;
};

enum etcd_op_kind { ETCD_PUT, ETCD_DELETE, ETCD_RANGE };

struct etcd_op {
    enum etcd_op_kind kind;
    struct etcd_bytes key;
    struct etcd_bytes end;   /* not PUT: keys from `key` to before this; none: `key` alone */
    struct etcd_bytes value; /* PUT */
    int64_t lease;           /* PUT; 0: none */
    int64_t revision;        /* RANGE: as it was at that revision; 0: now */
    uint32_t limit;          /* RANGE; 0: none */
};

struct etcd_txn {
    const struct etcd_compare *compares;
    const struct etcd_op *then, *otherwise;
    uint32_t compare_count, then_count, otherwise_count;
};

struct etcd_row {
    struct etcd_bytes key, value;
    int64_t created, modified, lease;
    bool is_removed; /* in a watch: the key was removed at revision `modified` */
};

/* Lives in the arena that was passed to the call. */
struct etcd_answer {
    bool is_met;        /* of a transaction: all comparisons held, and `then` was done */
    bool has_more;      /* of a range: the limit cut it off */
    int64_t revision;   /* etcd's revision when it answered */
    uint32_t tries;     /* how often the request was sent, at least 1 */
    uint32_t row_count; /* of all ranges, in order */
    int64_t key_count;  /* keys in the last range, with those beyond the limit */
    struct etcd_row *rows;
};

#endif
