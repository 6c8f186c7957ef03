/* Restarts this process with exec: same pid and command line. All memory is gone, connections are
 * closed, and data in their queues is not sent. */
#ifndef RENDEZVOUS_SERVER_AGAIN_H
#define RENDEZVOUS_SERVER_AGAIN_H

#include <stdbool.h>

/* Call at the start of main. `argv` must stay valid. */
void again_init(char **argv);
/* Whether this process was started by again_start. */
bool again_is_set(void);
/* The text that again_start was given; "" otherwise. */
const char *again_bound(void);
/* Does not return. May be called from any thread. `bound`: a text for the next start, at most 4,199
 * bytes. */
_Noreturn void again_start(const char *bound);

#endif
