/* The lock of a folder that one process at a time may use. The kernel releases it when the process ends, so there is no
 * stale lock. The folder itself is locked, since a file in it can be removed while it is locked, and a second process
 * would lock another one of that name. FOLDER/lock is locked, too: it has the pid of the process for people, and it is
 * what release 0.1.0 locks. */
#ifndef COMMON_IO_FOLDER_LOCK_H
#define COMMON_IO_FOLDER_LOCK_H

#include <stdbool.h>

#include "common/status.h"

struct folder_lock {
    int file_fd, dir_fd; /* owned; -1: none */
};
#define FOLDER_LOCK_NONE ((struct folder_lock){.file_fd = -1, .dir_fd = -1})

/* STATUS_BUSY: another process has it; `holder` is its pid, or "unknown". Others: `err` says why. A file system that
 * cannot lock folders (NFS) has only the lock of the file. */
enum status folder_lock_take(struct folder_lock *lock, const char *folder, char holder[32],
                             struct err *err);
void folder_lock_release(struct folder_lock *lock);
/* Whether this process holds the folder that `fd` is. May be called from any thread. */
bool folder_lock_is_ours(int fd);

#endif
