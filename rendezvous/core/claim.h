/* Which launcherd may have the name of a node.
 *
 * Of two processes with one name, one that still beats keeps it. A silent one is replaced by a
 * launcherd that knows what was started under the name, or proves its end: the same one, or the same
 * machine after a restart (identity.h). Any other one waits until nothing that was started can still
 * run: else two machines would take the name from each other, and a second generation of a job would
 * run beside the first. A hello on an older connection of the same process is out of date and is
 * refused, too. */
#ifndef RENDEZVOUS_CORE_CLAIM_H
#define RENDEZVOUS_CORE_CLAIM_H

#include "rendezvous/core/roster.h"

/* Closes a connection. `why` STATUS_CONFLICT: another process has the name of the node. */
struct rdzv_action *claim_close(struct rdzv *rdzv, uint64_t conn, enum status why);
/* False: the hello may take the node, whose last connection is closed if it had one. */
bool claim_is_refused(struct rdzv *rdzv, struct node *node, uint64_t conn,
                      const struct msg_node_hello *hello, enum kinship kin);

/* What the launcherd of this hello is to the last one of the node. */
enum kinship claim_kinship(const struct rdzv *rdzv, const struct node *node,
                           const struct msg_node_hello *hello);
/* The node has the launcherd of this hello. What the last one may still run stays held if this one cannot know of it. */
void claim_take(struct rdzv *rdzv, struct node *node, enum kinship kin,
                const struct msg_node_hello *hello);
/* Nothing of an earlier launcherd is on the node's slots any more. */
void claim_drop_hold(struct rdzv *rdzv, struct node *node);

/* How long what runs when a server begins may run on: the longest lease, as --lease may have been longer before, and
 * LEASE_MARGIN_US. */
uint64_t claim_longest_lease_us(const struct rdzv *rdzv);
/* Until when ranks on a node that is not heard any more may run: the end of its lease, and LEASE_MARGIN_US. */
uint64_t claim_lease_end_us(const struct rdzv *rdzv, const struct node *node);

#endif
