/* The owner of a checkpoint folder. `.lock` in the folder names the owner; the owner keeps
 * `.lock-<its number>` locked as long as it lives. The last process that took the folder owns it,
 * and an earlier owner is refused at its next commit. One lock guards both the owner's name and
 * commits. A living owner from another job is not replaced. */
#ifndef LIBDDP_FENCE_H
#define LIBDDP_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

#define FENCE_LOCK_NAME ".lock"
#define FENCE_TEXT_BYTES 128
#define FENCE_PATH_BYTES 1024

struct fence {
    const char *folder;           /* borrowed; at most FENCE_PATH_BYTES - 64 */
    char owner[FENCE_TEXT_BYTES]; /* first line of the lock file while we own the folder */
    int lock_fd;
    char life_path[FENCE_PATH_BYTES];
    int life_fd; /* kept locked as long as we live */
};

/* The process that wants the folder. */
struct fence_claim {
    const char *job_id;  /* "": no launcher */
    const char *cluster; /* of the server that gave the job's id; "": no launcher */
    uint32_t generation;
    bool takes_over;    /* also takes it from a living owner of another job */
    const char *what;   /* the folder in messages: "--checkpoint-dir" */
    const char *remedy; /* advice if another job owns it: "give another folder" */
};

/* Opens the lock file of an existing folder, and this process's own lock. On failure everything is
 * closed. Errors: STATUS_IO. */
enum status fence_open(struct fence *fence, const char *folder, const char *what, struct err *err);
/* This process is no longer seen as a living owner. */
void fence_close(struct fence *fence);
/* Takes the lock that guards the owner's name and each commit; held only briefly. Errors:
 * STATUS_IO. */
enum status fence_lock(const struct fence *fence, struct err *err);
void fence_unlock(const struct fence *fence);
/* With the lock held: makes this process the owner. Errors: STATUS_BUSY (the owner is a living
 * process of another job), STATUS_CONFLICT (the owner is a later generation of this job),
 * STATUS_BAD_INPUT (the lock file has a text that is not ours), STATUS_IO, STATUS_SYSTEM. */
enum status fence_take(struct fence *fence, const struct fence_claim *claim, struct err *err);
/* The owner's random number, 16 hex digits and then more; "" before fence_take. */
const char *fence_id(const struct fence *fence);
/* With the lock held: whether this process still owns the folder. Errors: STATUS_CONFLICT. */
enum status fence_check(const struct fence *fence, struct err *err);

#endif
