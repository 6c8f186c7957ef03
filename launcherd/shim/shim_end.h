/* Keeps the last report of a shim in its run directory, so that it is known how the workers ended even if the shim is
 * killed. A disk that does not answer holds up the report for SHIM_END_LATE_MS and no more; the thread that waits for
 * it writes the file when the disk answers again. Part of the edge of the shim. */
#ifndef LAUNCHERD_SHIM_SHIM_END_H
#define LAUNCHERD_SHIM_SHIM_END_H

#include "common/msg.h"
#include "common/io/file_work.h"

#define SHIM_END_LATE_MS 2000u

struct end_files;

struct shim_end {
    struct file_works *files; /* the owner sets this and the next two */
    void *owner;
    /* In the loop: `problem` says why it is not stored; NULL: it is. After a problem it may be called once more, with
     * NULL: the disk has answered. */
    void (*on_stored)(void *owner, const char *problem);
    struct end_files *work; /* NULL: none */
    bool is_late;
};

/* Call once, with a shim_report, which is borrowed for the call. NULL: on_stored follows. Else it does not, and this says
 * why nothing is stored. */
const char *shim_end_store(struct shim_end *end, const char *run_dir, struct msg *msg);
/* on_stored is not called any more; the file is still written. Call it before file_works_close. */
void shim_end_close(struct shim_end *end);

#endif
