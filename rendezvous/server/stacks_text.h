/* Where the ranks of a hung generation stand, as one text for people: ranks with the same stack together,
 * the fewest first, since those that stand elsewhere are the cause. Pure. */
#ifndef RENDEZVOUS_SERVER_STACKS_TEXT_H
#define RENDEZVOUS_SERVER_STACKS_TEXT_H

#include "common/msg.h"

/* `looks` is sorted for it. `missing`: ranks of which nothing came. What does not fit is left out, and a
 * last line says so. */
void stacks_text(struct part_rank_look *looks, uint32_t count, uint32_t missing,
                 char text[STACKS_BYTES_MAX]);

#endif
