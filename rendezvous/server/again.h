/* Starts this process anew, with its pid and its command line. Nothing of the memory is left; connections are closed, and
 * what is in their queues is not sent. */
#ifndef RENDEZVOUS_SERVER_AGAIN_H
#define RENDEZVOUS_SERVER_AGAIN_H

#include <stdbool.h>

/* At the start of main; `argv` outlives the process. */
void again_init(char **argv);
/* Whether again_start has begun this process. */
bool again_is_set(void);
/* What again_start was given; else "". */
const char *again_bound(void);
/* Does not return. From any thread. `bound`: a text for the next start, of at most 4,199 bytes. */
_Noreturn void again_start(const char *bound);

#endif
