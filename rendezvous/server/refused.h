/* The nodes whose hello was refused because of their build. They are in no list of the core, and would be taken
 * for machines that are off. Pure: the time is in the call. */
#ifndef RENDEZVOUS_SERVER_REFUSED_H
#define RENDEZVOUS_SERVER_REFUSED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"

#define REFUSED_NODES_MAX 256u /* more: the one that has been silent for longest is replaced */
#define REFUSED_FOR_US                                                                             \
    3600000000ull /* since its last hello; one that has ended does not stay for ever */

struct refused_node {
    char name[NODE_NAME_BYTES_MAX]; /* empty: a free place */
    char address[ADDRESS_BYTES_MAX], version[32], why[REASON_BYTES_MAX];
    uint32_t protocol, pid;
    int64_t since_ms; /* wall clock, of the first of these hellos */
    uint64_t at_us;   /* of the last */
};

struct refused_nodes {
    struct refused_node items[REFUSED_NODES_MAX];
};

/* Its hello is refused, and carried a valid key of that name. */
void refused_note(struct refused_nodes *refused, const struct msg_node_hello *hello,
                  const char *why, uint64_t now_us, int64_t now_ms);
/* Its hello is accepted. */
void refused_forget(struct refused_nodes *refused, const char *name);
/* NULL: it is not refused, as far as is known. */
const struct refused_node *refused_find(const struct refused_nodes *refused, const char *name,
                                        uint64_t now_us);
/* The first name after `name`, and before `end` unless that is NULL. NULL: there is none. */
const char *refused_after(const struct refused_nodes *refused, const char *name, const char *end,
                          uint64_t now_us);
/* Adds it to what the core knows of a node of that name, if only its name. The texts are those of `node`. */
void refused_add(const struct refused_node *node, uint64_t now_us, struct part_node *out);

#endif
