#include "launcherd/node/gauges_files.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/io/conn.h"

static void drop(struct file_work *work)
{
    buf_free(&((struct gauges_files *)work)->made);
    free(work);
}

struct gauges_files *gauges_files_new(const char *logs_dir, void *owner)
{
    struct gauges_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_GAUGES;
    files->work.run = gauges_files_read;
    files->work.drop = drop;
    files->owner = owner;
    (void)snprintf(files->logs_dir, sizeof files->logs_dir, "%s", logs_dir);
    return files;
}

/* The disk comes last: what hangs there must not use the GPUs' watch afterwards, which may be gone. */
void gauges_files_read(struct file_work *work)
{
    struct gauges_files *files = (struct gauges_files *)work;
    struct gauges *reading = &files->reading;

    if (files->watch != NULL && reading->gpu_count > 0 && !file_work_is_late(work))
        gpu_watch_gauges(files->watch, reading->gpu_count, clock_boot_us(), files->fresh_us,
                         files->driver_us, reading->gpus);
    file_work_at(work, FILE_DISK_LOGS, "statvfs");
    host_gauges_read(&reading->host, &files->times, clock_boot_us(), files->logs_dir);
    reading->now_us = clock_boot_us();
    gauges_write(reading, &files->made);
}
