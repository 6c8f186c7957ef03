#include "launcherd/shim/end_files.h"

#include <stdio.h>
#include <stdlib.h>

#include "launcherd/process/rundir.h"

struct end_files *end_files_new(const char *dir, struct msg *msg)
{
    struct end_files *files = calloc(1, sizeof *files);
    struct err err;

    if (files == NULL)
        return NULL;
    files->work.run = end_files_write;
    (void)snprintf(files->dir, sizeof files->dir, "%s", dir);
    if (msg_encode(msg, &files->frame, &err) == STATUS_OK)
        return files;
    end_files_free(files);
    return NULL;
}

void end_files_free(struct end_files *files)
{
    buf_free(&files->frame);
    free(files);
}

void end_files_write(struct file_work *work)
{
    struct end_files *files = (struct end_files *)work;

    file_work_at(work, FILE_DISK_STATE, "write");
    files->status = rundir_write(files->dir, "end.msg", files->frame.bytes, files->frame.byte_count,
                                 &files->err);
    files->has_run = true;
}
