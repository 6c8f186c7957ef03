/* The last report of a shim, as work for a thread (files/file_work.h): end_files.c touches files and nothing of the
 * loop. */
#ifndef LAUNCHERD_SHIM_END_FILES_H
#define LAUNCHERD_SHIM_END_FILES_H

#include <limits.h>

#include "common/buf.h"
#include "common/msg.h"
#include "common/status.h"
#include "common/io/file_work.h"

struct shim_end;

struct end_files {
    struct file_work work;
    struct shim_end *end; /* for the loop; NULL: it waits no more */
    char dir[PATH_MAX];
    struct buf frame;
    /* Results. */
    bool has_run;
    enum status status;
    struct err err;
};

/* `msg` is encoded now. NULL: no memory. `run` is set. */
struct end_files *end_files_new(const char *dir, struct msg *msg);
void end_files_free(struct end_files *files);
/* `run`: writes end.msg. */
void end_files_write(struct file_work *work);

#endif
