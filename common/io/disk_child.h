/* Work on files in a child, for programs that run once and end (ddpctl report, rendezvous --backup): if a disk does not
 * answer, a process that waits for it cannot end, whatever signal it gets. So the child hangs there, and its parent says
 * so and ends. What runs on a loop has file_work.h. */
#ifndef COMMON_IO_DISK_CHILD_H
#define COMMON_IO_DISK_CHILD_H

#include <stdint.h>

#include "common/status.h"

/* Runs `work` in a child, and returns its result with its `err`. STATUS_TIMEOUT: for `limit_ms` it has read nothing,
 * written nothing and not computed either; it is killed, which takes effect when the disk answers. STATUS_SYSTEM: no
 * process, or it was killed. What `work` changes in memory stays in the child. */
enum status disk_child_run(enum status (*work)(void *context, struct err *err), void *context,
                           uint32_t limit_ms, struct err *err);

#endif
