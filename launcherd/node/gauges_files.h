/* A reading of the gauges, as work for a thread (file_work.h). */
#ifndef LAUNCHERD_NODE_GAUGES_FILES_H
#define LAUNCHERD_NODE_GAUGES_FILES_H

#include <limits.h>
#include <stdint.h>

#include "common/buf.h"
#include "launcherd/gpu/gauges.h"
#include "launcherd/gpu/gpu_watch.h"
#include "common/io/file_work.h"

struct gauges_files {
    struct file_work work;
    void *owner;             /* for the loop */
    struct gpu_watch *watch; /* NULL: none */
    uint64_t fresh_us, driver_us;
    char logs_dir[PATH_MAX];
    struct cpu_times times; /* in and out */
    struct gauges reading;  /* in and out */
    struct buf made;        /* out: JSON */
};

/* NULL: no memory. `drop` is set. */
struct gauges_files *gauges_files_new(const char *logs_dir, void *owner);
/* `run`. */
void gauges_files_read(struct file_work *work);

#endif
