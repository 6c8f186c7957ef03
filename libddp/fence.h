/* Who owns a folder of checkpoints. `.lock` in the folder names the owner, `.lock-<number of the owner>` is
 * locked as long as the owner lives.
 *
 * The last process that took the folder owns it, and an earlier owner is refused at its next commit.
 * Owner and commit are guarded by one lock. An owner of another job is left in place while it lives. */
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
    int life_fd; /* locked as long as we live */
};

/* Who takes the folder. */
struct fence_claim {
    const char *job_id;  /* "": no launcher */
    const char *cluster; /* whose server gave the job's number; "": no launcher */
    uint32_t generation;
    bool takes_over;    /* also from a living owner of another job */
    const char *what;   /* the folder in messages: "--checkpoint-dir" */
    const char *remedy; /* against another owner: "give another folder" */
};

/* Opens the lock file of the folder, which exists, and locks it. On failure all is closed. Errors:
 * STATUS_IO. */
enum status fence_open(struct fence *fence, const char *folder, const char *what, struct err *err);
/* This process is no longer seen as a living owner. */
void fence_close(struct fence *fence);
/* The lock that guards the owner's name and each commit; held for moments. Errors: STATUS_IO. */
enum status fence_lock(const struct fence *fence, struct err *err);
void fence_unlock(const struct fence *fence);
/* With the lock held: makes this process the owner. Errors: STATUS_BUSY (the owner is of another job, and
 * lives), STATUS_CONFLICT (it is a later generation of this job), STATUS_IO, STATUS_SYSTEM. */
enum status fence_take(struct fence *fence, const struct fence_claim *claim, struct err *err);
/* With the lock held: whether this process still owns the folder. Errors: STATUS_CONFLICT. */
enum status fence_check(const struct fence *fence, struct err *err);

#endif
