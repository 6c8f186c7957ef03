/* Describes where the ranks of a hung generation are, as one text for people. Ranks with the same
 * stack are grouped. The smallest group comes first, since the ranks that are elsewhere are usually
 * the cause. Pure. */
#ifndef RENDEZVOUS_SERVER_STACKS_TEXT_H
#define RENDEZVOUS_SERVER_STACKS_TEXT_H

#include "common/msg.h"

/* Sorts `looks`. `missing`: how many ranks sent nothing. If not everything fits, a last line says
 * how much is left out. */
void stacks_text(struct part_rank_look *looks, uint32_t count, uint32_t missing,
                 char text[STACKS_BYTES_MAX]);

#endif
