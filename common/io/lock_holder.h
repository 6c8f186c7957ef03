/* Why the process that holds a lock file does not end: it was killed, and hangs in the kernel. Nobody can stop it. */
#ifndef COMMON_IO_LOCK_HOLDER_H
#define COMMON_IO_LOCK_HOLDER_H

#include <stdbool.h>

#define LOCK_HOLDER_BYTES 192u
#define LOCK_HOLDER_NAME_BYTES 32u

/* `pid`: as in the lock file. True: `text` says so, and what to do, as a sentence about "it". It reads /proc and no disk. */
bool lock_holder_hangs(const char *pid, char text[LOCK_HOLDER_BYTES]);

/* The name of its program; "another OWN" if it is `own`; "another process": it cannot be read. */
void lock_holder_name(const char *pid, const char *own, char name[LOCK_HOLDER_NAME_BYTES]);

#endif
