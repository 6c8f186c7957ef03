/* Order on one connection: messages are numbered from 1, and what is not newer than the last one
 * taken is dropped. So a repeated or overtaken message cannot act twice or late; it counts as lost.
 * Pure; one `struct link` for each connection. */
#ifndef COMMON_LINK_H
#define COMMON_LINK_H

#include <stdbool.h>
#include <stdint.h>

struct link {
    uint32_t sent;  /* number of the last message sent */
    uint32_t taken; /* number of the last message taken */
};

static inline uint32_t link_stamp(struct link *link)
{
    return ++link->sent;
}

/* True: act on it. False: drop it. */
static inline bool link_take(struct link *link, uint32_t seq)
{
    if (seq <= link->taken)
        return false;
    link->taken = seq;
    return true;
}

#endif
