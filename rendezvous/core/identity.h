/* Who a launcherd is, apart from the name of its node. A name alone proves nothing: it may come back
 * from another machine with the same key, from a machine that was installed anew, or with another
 * state directory. What a launcherd does not list is gone only if this one would know of it. */
#ifndef RENDEZVOUS_CORE_IDENTITY_H
#define RENDEZVOUS_CORE_IDENTITY_H

#include "common/msg.h"
#include "rendezvous/core/record.h"

enum kinship {
    KIN_SAME, /* the same state directory, and no other boot: it knows every shim that is not gone */
    KIN_REBOOTED, /* the same machine in a later boot: whatever ran on it before is gone */
    KIN_OTHER,    /* another machine, or another state directory: it knows nothing of those shims */
    KIN_UNKNOWN,  /* one of the two says too little: no proof of anything */
};

/* Whether the kernel of one launcherd started after the other was last known to live. Ids of machines are copied, and
 * containers have ids of boots of their own: a kernel that ran already is not that machine's next one. */
enum kernel_age { KERNEL_LATER, KERNEL_NOT_LATER, KERNEL_AGE_UNKNOWN };

/* What struct rdzv_identity has of it; 0: it is not known. */
uint64_t identity_boot(const char *boot_id);
/* The identity that a hello states. */
struct rdzv_identity identity_of(const struct msg_node_hello *hello);
/* What a launcherd with the identity `now` is to one with the identity `before`. */
enum kinship identity_kinship(const struct rdzv_identity *before, const struct rdzv_identity *now,
                              enum kernel_age age);
/* One identity for both; an empty one if they are not the same, so that nothing is proved by it. */
struct rdzv_identity identity_join(const struct rdzv_identity *a, const struct rdzv_identity *b);

#endif
