#include "launcherd/node/warm_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/log.h"
#include "launcherd/node/shim_files.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/rundir.h"

static void drop(struct file_work *work)
{
    struct warm_files *files = (struct warm_files *)work;

    if (files->log_fd >= 0)
        (void)close(files->log_fd);
    if (files->link_fd >= 0)
        (void)close(files->link_fd);
    if (files->stdin_fd >= 0)
        (void)close(files->stdin_fd);
    child_order_drop(&files->order);
    free(files);
}

struct warm_files *warm_files_new(const char *dir)
{
    struct warm_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->log_fd = files->link_fd = files->stdin_fd = -1;
    files->work.drop = drop;
    files->work.key = file_work_key(dir);
    (void)snprintf(files->dir, sizeof files->dir, "%s", dir);
    return files;
}

static enum status start_process(struct warm_files *files)
{
    enum status status;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set(&files->err, STATUS_SYSTEM, errno, "cannot make a socket pair: %s",
                       strerror(errno));
    files->link_fd = pair[0];
    status = child_files_start(&files->work, &files->order, files->stdin_fd, files->log_fd,
                               files->log_fd, pair[1], &files->err);
    (void)close(pair[1]);
    return status;
}

void warm_files_make(struct file_work *work)
{
    struct warm_files *files = (struct warm_files *)work;

    file_work_at(work, FILE_DISK_LOGS, "mkdir");
    files->status = rundir_make(files->log_dir, files->log_mode, &files->err);
    file_work_at(work, FILE_DISK_STATE, "mkdir");
    if (files->status == STATUS_OK && !file_work_is_late(work))
        files->status = rundir_make_dir(files->dir, &files->err);
    if (files->status != STATUS_OK || file_work_is_late(work))
        return;
    file_work_at(work, FILE_DISK_LOGS, "open");
    files->status = own_file_open(files->log, 1, O_WRONLY | O_CREAT | O_APPEND, 0600,
                                  &files->log_fd, &files->err);
    if (files->status == STATUS_OK && !file_work_is_late(work))
        files->status = start_process(files);
}

void warm_files_sweep(struct file_work *work)
{
    struct warm_files *files = (struct warm_files *)work;
    struct rundir_shim process;

    file_work_at(work, FILE_DISK_STATE, "read");
    files->status = rundir_read_shim(files->dir, &process, &files->err);
    /* One that is there, but cannot be read now, says nothing. */
    files->has_left = files->status == STATUS_IO || files->status == STATUS_MEMORY;
    if (files->status == STATUS_OK) {
        file_work_at(work, FILE_DISK_PROC, "read");
        files->has_left = shim_files_kill(&process) > 0;
        if (!files->has_left && process.cgroup[0] != '\0')
            cgroup_remove(process.cgroup);
    }
    if (files->has_left)
        return;
    file_work_at(work, FILE_DISK_STATE, "unlink");
    if (files->status == STATUS_OK || files->status == STATUS_NOT_FOUND)
        rundir_remove(files->dir);
    else
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "what is left of %s is not known: %s", files->dir,
                 files->err.text); /* it stays for the next start */
}

void warm_files_remove(struct file_work *work)
{
    struct warm_files *files = (struct warm_files *)work;

    file_work_at(work, FILE_DISK_STATE, "unlink");
    rundir_remove(files->dir);
}
