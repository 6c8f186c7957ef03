/* Whether this process may have the threads that it needs. libuv aborts without a word if it cannot start its own, and
 * the limit cannot be read: it counts all processes of the user, and root and cgroups have others. */
#ifndef COMMON_IO_SPARE_THREADS_H
#define COMMON_IO_SPARE_THREADS_H

#include <stdint.h>

#include "common/status.h"

#define SPARE_THREADS_MAX 1028u
#define POOL_THREADS 4u /* that libuv starts, unless UV_THREADPOOL_SIZE says another number */

/* Starts so many threads at once, and ends them; glibc keeps their stacks for the next ones. Where it was done once, it
 * does nothing. STATUS_SYSTEM: `err` says which limit it may be. */
enum status spare_threads_check(uint32_t count, struct err *err);

#endif
