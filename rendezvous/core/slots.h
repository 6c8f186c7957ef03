/* Which slots of a node may be given out. A node closes a slot by listing it in its beats (a GPU
 * that is not known to be free yet, or has a fault). An operator drains a slot or a node until it
 * is resumed. */
#ifndef RENDEZVOUS_CORE_SLOTS_H
#define RENDEZVOUS_CORE_SLOTS_H

#include "rendezvous/core/roster.h"

/* Takes the list of closed slots from a hello or a beat. Slots that are not listed are open. */
void slots_take(struct rdzv *rdzv, struct node *node, const struct part_slot_closed *closed,
                uint32_t count);
/* A shim has left these slots. Those with a GPU are closed until the node's next list. */
void slots_left(struct rdzv *rdzv, struct node *node, uint64_t mask);
uint64_t slots_closed_mask(const struct node *node);
/* The slots that do not open by themselves within seconds. */
uint64_t slots_closed_long_mask(const struct node *node);
/* Why a slot is closed, as text: "slot 3 of gpu01 is quarantined: ..." */
void slots_why(const struct rdzv *rdzv, const struct node *node, uint32_t slot,
               char out[REASON_BYTES_MAX]);
/* Sets the node's drain fields from the table of drains. */
void slots_apply_drains(const struct rdzv *rdzv, struct node *node);
/* The drain of that node or slot; NULL: none. */
const struct rdzv_drain *slots_drain_of(const struct rdzv *rdzv, const char *node, uint32_t slot);
/* Asks the node to open a slot that the node itself drained for a fault. The fault's incident
 * number goes along. */
void slots_send_resume(struct rdzv *rdzv, const struct node *node, uint32_t slot);

#endif
