#include "launcherd/shim/rank_log_files.h"

#include <stdlib.h>

#include "launcherd/process/rundir.h"

/* A log is made even if its rank never runs: a request for its output then gets no output, and not an error. */
static void open_logs(struct file_work *work)
{
    struct rank_log_files *files = (struct rank_log_files *)work;
    char path[PATH_MAX];

    file_work_at(work, FILE_DISK_LOGS, "open");
    for (uint32_t i = 0; i < files->count && !file_work_is_late(work); i++) {
        rundir_rank_log(path, files->log_dir, files->generation, files->rank_base + i);
        files->status = log_file_open(&files->logs[i], path, files->log_max, &files->err);
        if (files->status != STATUS_OK)
            return;
        files->open_count++;
    }
}

static void drop(struct file_work *work)
{
    struct rank_log_files *files = (struct rank_log_files *)work;

    for (uint32_t i = 0; i < files->open_count; i++)
        log_file_close(&files->logs[i]);
    free(files);
}

struct rank_log_files *rank_log_files_new(uint32_t count)
{
    struct rank_log_files *files = calloc(1, sizeof *files + count * sizeof files->logs[0]);

    if (files == NULL)
        return NULL;
    files->work.run = open_logs;
    files->work.drop = drop;
    files->count = count;
    return files;
}
