/* Looks at the files of logs, as work for threads (file_work.h). */
#ifndef LAUNCHERD_NODE_LOG_FILES_H
#define LAUNCHERD_NODE_LOG_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/limits.h"
#include "common/msg.h"
#include "common/io/file_work.h"
#include "launcherd/process/log_place.h"

enum log_access {
    LOG_READABLE,
    LOG_MISSING,
    LOG_NEVER_WRITTEN, /* a rank that wrote no metrics or error file */
    LOG_FOREIGN,       /* metrics, error file: it is no plain file of the job's user */
    LOG_UNREADABLE,    /* `code` says why; it may be there */
    LOG_TOO_LONG,      /* the same: no more of it is read (RANK_FILE_BYTES_MAX) */
};

/* How much is read of a file that the job's user writes. */
#define RANK_FILE_BYTES_MAX (UINT64_C(1) << 30)

/* Folders whose changes are reported, by inotify: threads add and remove them, since a path may hang, and the loop
 * reads the events. Each work that may use it keeps it. */
struct log_watches;

/* One look, for one request. */
struct log_files {
    struct file_work work;
    void *owner; /* for the loop */
    struct msg_log_read request;
    struct log_place place; /* of the next two: */
    char cluster[33], logs_dir[PATH_MAX], owner_id[IDENTITY_BYTES_MAX];
    bool is_other; /* the shim with this number is of another job */
    char path[PATH_MAX], dir[PATH_MAX],
        job_dir[PATH_MAX]; /* path: found by the thread; dir, job_dir: to watch */
    bool wants_watch;
    bool may_grow; /* determined before the size: the log of an ended rank no longer grows */
    struct log_watches *watches; /* owned, as one of its users */
    /* Results. */
    int wd;          /* the watch; -1: none */
    bool is_watched; /* it is on the file's own folder */
    enum log_access access;
    int code; /* errno of LOG_UNREADABLE */
    uint64_t size, offset;
    ssize_t got;
    uint8_t bytes[LOG_CHUNK_BYTES_MAX];
    uint32_t run_count; /* runs of bytes: which are stderr, and when they came */
    struct part_log_run runs[LOG_RUNS_MAX];
};

/* NULL: no memory. `watches`: NULL: none. `drop` and `run` are set. */
struct log_files *log_files_new(struct log_watches *watches, void *owner);
/* Removes a use of a watch. */
struct log_files *log_files_new_unwatch(struct log_watches *watches, int wd);
/* `run`. */
void log_files_read(struct file_work *work);

/* NULL: the kernel gives none. */
struct log_watches *log_watches_new(void);
/* To read events from. */
int log_watches_fd(const struct log_watches *watches);
/* NULL: nothing. */
void log_watches_drop(struct log_watches *watches);

#endif
