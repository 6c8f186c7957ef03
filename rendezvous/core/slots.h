/* Which slots of a node may be given out: what the node reports of them, and what operators have
 * drained. A node closes a slot by listing it in its beats (a GPU that is not proved free, or has a
 * fault); an operator drains a slot, or a node, until it is resumed. */
#ifndef RENDEZVOUS_CORE_SLOTS_H
#define RENDEZVOUS_CORE_SLOTS_H

#include "rendezvous/core/roster.h"

/* The list of closed slots in a hello or a beat; what it does not name is open. */
void slots_take(struct rdzv *rdzv, struct node *node, const struct part_slot_closed *closed,
                uint32_t count);
/* A shim has left them: those with a GPU are closed until the node's next list. */
void slots_left(struct rdzv *rdzv, struct node *node, uint64_t mask);
uint64_t slots_closed_mask(const struct node *node);
/* Those that do not open by themselves within seconds. */
uint64_t slots_closed_long_mask(const struct node *node);
/* Why a slot is closed, as text: "slot 3 of gpu01 is quarantined: ..." */
void slots_why(const struct rdzv *rdzv, const struct node *node, uint32_t slot,
               char out[REASON_BYTES_MAX]);
/* The drains of this node, into the node. */
void slots_apply_drains(const struct rdzv *rdzv, struct node *node);
/* NULL: none of that node, or slot. */
const struct rdzv_drain *slots_drain_of(const struct rdzv *rdzv, const char *node, uint32_t slot);
/* Asks the node to open a slot that it has drained for a fault, by the fault's incident. */
void slots_send_resume(struct rdzv *rdzv, const struct node *node, uint32_t slot);

#endif
