/* Reads many keys of etcd in pages. For each page etcd scans all keys of the given range, also
 * those beyond the page. If every page's range ended at the last key, the cost would be quadratic.
 * So each range is chosen to end about where its page will end. */
#ifndef RENDEZVOUS_STORE_KEY_SPAN_H
#define RENDEZVOUS_STORE_KEY_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/store/etcd_types.h"

struct key_span {
    size_t skip;    /* bytes of each key before TABLE/NUMBER... */
    uint64_t width; /* the length of the next range, in numbers; 0: unknown yet */
};

#define KEY_SPAN_BYTES_MORE 18u /* the end of a range may be this much longer than its begin */

/* The end of the range that begins at `from`: after `from`, at most `to`. If it is not `to` itself,
 * it is written to `text`. */
struct etcd_bytes key_span_end(const struct key_span *span, struct etcd_bytes from,
                               struct etcd_bytes to, char *text, size_t text_bytes);
/* Learns from the answer to the range that began at `from`: it had `count` keys, at most `limit`,
 * the last one `last`, and there are more in the range or not. */
void key_span_learn(struct key_span *span, struct etcd_bytes from, struct etcd_bytes last,
                    uint32_t count, uint32_t limit, bool has_more);

#endif
