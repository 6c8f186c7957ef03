/* Who gets a place for a question to this node: one user takes at most half of the places, and the last one is kept for
 * administrators, so that nobody can keep them from looking. */
#ifndef LAUNCHERD_NODE_ASK_SHARE_H
#define LAUNCHERD_NODE_ASK_SHARE_H

#include <stdint.h>

#define ASK_SHARE 4u /* of a user; NODE_ANSWERS_YOU names it */

/* `ids`: of the questions that have a place (msg.h: NODE_ASKER_BITS). NULL: there is one for `id`; else why not. */
const char *ask_share(const uint64_t *ids, uint32_t count, uint32_t places, uint64_t id);

#endif
