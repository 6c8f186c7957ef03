#include "launcherd/node/guard_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcherd/node/child_files.h"
#include "launcherd/process/spawn.h"
#include "launcherd/shim/guard.h"

static enum status start(struct guard_files *files)
{
    struct err *err = &files->err;
    const int null_fd = spawn_open_null(O_RDWR);
    enum status status;

    if (null_fd < 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot open /dev/null: %s", strerror(errno));
    status = child_files_start(&files->work, &files->order, null_fd, null_fd, null_fd,
                               files->page_fd, err);
    (void)close(null_fd);
    return status;
}

static void run(struct file_work *work)
{
    struct guard_files *files = (struct guard_files *)work;

    file_work_at(work, FILE_DISK_PROC, "read");
    files->page = lease_page_find(files->pid, &files->page_fd);
    if (files->page == NULL)
        files->status = err_set(&files->err, STATUS_NOT_FOUND, 0,
                                "process %d has no page with its lease", (int)files->pid);
    else if (!lease_page_is_guarded(files->page_fd))
        files->status = start(files);
}

static void drop(struct file_work *work)
{
    struct guard_files *files = (struct guard_files *)work;

    lease_page_unmap(files->page);
    if (files->page_fd >= 0)
        (void)close(files->page_fd);
    child_order_drop(&files->order);
    free(files);
}

struct guard_files *guard_files_new(struct node_child *child, pid_t pid)
{
    struct guard_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_ASK;
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.run = run;
    files->work.drop = drop;
    files->pid = pid;
    files->page_fd = -1;
    child_order_new(&files->order, child, GUARD_ARGUMENT);
    return files;
}
