/* What warm processes need of the file system, as work for threads (file_work.h). */
#ifndef LAUNCHERD_NODE_WARM_FILES_H
#define LAUNCHERD_NODE_WARM_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/status.h"
#include "common/io/file_work.h"
#include "launcherd/node/child_files.h"

struct node_warm;

struct warm_files {
    struct file_work work;
    struct node_warm *warm; /* for the loop */
    char dir[PATH_MAX], log_dir[PATH_MAX], log[PATH_MAX];
    mode_t log_mode;
    struct child_order order; /* the process to start */
    int stdin_fd;             /* for it; owned; -1: none */
    /* Results. */
    enum status status;
    struct err err;
    int log_fd, link_fd; /* owned; -1: none. link_fd: the connection to the process */
    bool has_left;       /* processes were left, and were killed: look again */
};

/* NULL: no memory. `drop` is set. */
struct warm_files *warm_files_new(const char *dir);
/* `run`: makes the folders, opens the log and starts the process. */
void warm_files_make(struct file_work *work);
/* `run`: kills what an ended `launcherd --warm` has left. If it ended in order it has removed its shim.json, and
 * left none. Removes the folder when nothing is left. */
void warm_files_sweep(struct file_work *work);
/* `run`: removes the folder. */
void warm_files_remove(struct file_work *work);

#endif
