/* What a shim's ranks need of disks before they begin, as work for a thread (files/file_work.h): their logs, and the
 * socket at which their store answers launcherd. */
#ifndef LAUNCHERD_SHIM_RANK_FILES_H
#define LAUNCHERD_SHIM_RANK_FILES_H

#include <limits.h>
#include <stdint.h>

#include "common/status.h"
#include "common/io/file_work.h"
#include "launcherd/shim/log_file.h"

struct shim_prepare;

struct rank_files {
    struct file_work work;
    struct shim_prepare *prepare; /* for the loop; NULL: it waits no more */
    char log_dir[PATH_MAX];
    char store_address[PATH_MAX + 16]; /* empty: no store */
    uint32_t generation, rank_base, count;
    uint64_t log_max; /* bytes of a log; 0: no limit */
    /* Results. */
    enum status status;
    struct err err;
    int store_fd;           /* listens; -1: not, or taken */
    uint32_t open_count;    /* those that are closed with this */
    struct log_file logs[]; /* [count] */
};

/* `run`, `drop` and `count` are set. NULL: no memory. */
struct rank_files *rank_files_new(uint32_t count);

#endif
