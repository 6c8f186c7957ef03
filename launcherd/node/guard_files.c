#include "launcherd/node/guard_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcherd/node/child_files.h"
#include "launcherd/process/spawn.h"
#include "launcherd/shim/guard.h"

/* The guard gets the descriptor that was opened here, and with it the only hold of the lock that it takes. */
static void run(struct file_work *work)
{
    struct guard_files *files = (struct guard_files *)work;
    const int null_fd = spawn_open_null(O_RDWR);
    int page_fd = -1;

    file_work_at(work, FILE_DISK_PROC, "read");
    files->page = lease_page_find(files->pid, &page_fd);
    if (files->page == NULL)
        files->status = err_set(&files->err, STATUS_NOT_FOUND, 0,
                                "process %d has no page with its lease", (int)files->pid);
    else if (null_fd < 0)
        files->status = err_set(&files->err, STATUS_SYSTEM, errno, "cannot open /dev/null: %s",
                                strerror(errno));
    else
        files->status =
            child_files_start(work, &files->order, null_fd, null_fd, null_fd, page_fd, &files->err);
    if (page_fd >= 0)
        (void)close(page_fd);
    if (null_fd >= 0)
        (void)close(null_fd);
}

static void drop(struct file_work *work)
{
    struct guard_files *files = (struct guard_files *)work;

    lease_page_unmap(files->page);
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
    child_order_new(&files->order, child, GUARD_ARGUMENT);
    return files;
}
