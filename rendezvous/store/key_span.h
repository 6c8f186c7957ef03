/* Which part of many keys is asked for next. For each page etcd looks at all keys of the range that it is given, also at those
 * behind the page. So pages that all end where the keys end cost the square of the number of keys; here a range ends
 * about where its page will. */
#ifndef RENDEZVOUS_STORE_KEY_SPAN_H
#define RENDEZVOUS_STORE_KEY_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/store/etcd_types.h"

struct key_span {
    size_t skip;    /* bytes of each key before TABLE/NUMBER... */
    uint64_t width; /* how far the next part goes in numbers; 0: not known yet */
};

#define KEY_SPAN_BYTES_MORE 18u /* that the end of a part may have more than its begin */

/* The end of the part that begins at `from`: behind it, and not behind `to`. Where it is not `to` itself, it is written to `text`. */
struct etcd_bytes key_span_end(const struct key_span *span, struct etcd_bytes from,
                               struct etcd_bytes to, char *text, size_t text_bytes);
/* What the part that began at `from` had: `count` of at most `limit` keys, up to `last`, and more behind it or not. */
void key_span_learn(struct key_span *span, struct etcd_bytes from, struct etcd_bytes last,
                    uint32_t count, uint32_t limit, bool has_more);

#endif
