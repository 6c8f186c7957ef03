#include "launcherd/node/shim_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/own_path.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/part_record.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/spawn.h"

/* -- the start of a shim -------------------------------------------------------------------------- */

struct start_files *start_files_new(const struct msg_start *start)
{
    struct start_files *files = calloc(1, sizeof *files);
    struct msg msg = {.type = MSG_TYPE_START};
    struct err err;

    if (files == NULL)
        return NULL;
    files->work.run = start_files_make;
    files->work.drop = start_files_drop;
    files->log_fd = files->link_fd = -1;
    if (start == NULL)
        return files;
    msg.start = *start;
    files->job_id = start->job_id;
    files->generation = start->generation;
    files->cwd = strdup(start->cwd);
    if (files->cwd == NULL || msg_encode(&msg, &files->frame, &err) != STATUS_OK) {
        start_files_drop(&files->work);
        return NULL;
    }
    return files;
}

void start_files_drop(struct file_work *work)
{
    struct start_files *files = (struct start_files *)work;

    if (files->log_fd >= 0)
        (void)close(files->log_fd);
    if (files->link_fd >= 0)
        (void)close(files->link_fd);
    child_order_drop(&files->order);
    buf_free(&files->frame);
    free(files->cwd);
    free(files);
}

static enum status make_log(struct start_files *files)
{
    enum status status;

    file_work_at(&files->work, FILE_DISK_LOGS, "mkdir");
    status = rundir_make(files->log_dir, files->log_mode, &files->err);
    if (status != STATUS_OK)
        return status;
    file_work_at(&files->work, FILE_DISK_LOGS, "open");
    return own_file_open(files->log, 1, O_WRONLY | O_CREAT | O_APPEND, 0600, &files->log_fd,
                         &files->err);
}

static enum status make_run_dir(struct start_files *files)
{
    enum status status;

    file_work_at(&files->work, FILE_DISK_STATE, "unlink");
    rundir_remove(files->dir); /* left by a start that was refused half-way */
    file_work_at(&files->work, FILE_DISK_STATE, "mkdir");
    status = rundir_make_dir(files->dir, &files->err);
    if (status != STATUS_OK)
        return status;
    file_work_at(&files->work, FILE_DISK_STATE, "link");
    status = rundir_link_stage(files->dir, files->state_dir, files->cwd, &files->err);
    if (status != STATUS_OK)
        return status;
    file_work_at(&files->work, FILE_DISK_STATE, "write");
    status = rundir_write(files->dir, "start.msg", files->frame.bytes, files->frame.byte_count,
                          &files->err);
    if (status != STATUS_OK)
        return status;
    file_work_at(&files->work, FILE_DISK_STATE, "link");
    return part_record_keep(files->dir, "start.msg", &files->err);
}

/* With one rename: at any moment exactly one directory describes the processes. */
static bool move_description(struct start_files *files, bool to_run_dir)
{
    struct err err;

    file_work_at(&files->work, FILE_DISK_STATE, "rename");
    if (!to_run_dir)
        return rundir_move_shim(files->dir, files->warm);
    if (!rundir_move_shim(files->warm, files->dir))
        return false;
    if (part_record_keep(files->dir, "shim.json", &err) == STATUS_OK)
        return true;
    (void)rundir_move_shim(files->dir, files->warm);
    return false;
}

static void start_process(struct start_files *files)
{
    const int null_fd = spawn_open_null(O_RDONLY);
    int pair[2] = {-1, -1};

    if (null_fd < 0)
        files->status = err_set(&files->err, STATUS_SYSTEM, errno, "cannot open /dev/null: %s",
                                strerror(errno));
    else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        files->status = err_set(&files->err, STATUS_SYSTEM, errno, "cannot make a socket pair: %s",
                                strerror(errno));
    else
        files->status = child_files_start(&files->work, &files->order, null_fd, files->log_fd,
                                          files->log_fd, pair[1], &files->err);
    files->has_child = files->status == STATUS_OK;
    files->link_fd = pair[0];
    if (pair[1] >= 0)
        (void)close(pair[1]);
    if (null_fd >= 0)
        (void)close(null_fd);
}

void start_files_make(struct file_work *work)
{
    struct start_files *files = (struct start_files *)work;

    file_work_at(work, FILE_DISK_STATE, "stat");
    files->status = rundir_state_check(files->dir, &files->err);
    if (files->status == STATUS_OK)
        files->status = make_log(files);
    if (files->status == STATUS_OK && !file_work_is_late(work))
        files->status = make_run_dir(files);
    file_work_at(work, FILE_DISK_STATE, "stat");
    if (files->status ==
        STATUS_OK) /* all of it was made there: the shim reads it by its path, or ends */
        files->status = rundir_state_check(files->dir, &files->err);
    if (files->status != STATUS_OK || file_work_is_late(work))
        return;
    if (files->warm[0] != '\0')
        files->has_moved = move_description(files, true);
    else
        start_process(files);
}

void start_files_start(struct file_work *work)
{
    struct start_files *files = (struct start_files *)work;

    if (files->has_moved)
        (void)move_description(files, false);
    file_work_at(work, FILE_DISK_STATE, "stat");
    files->status = rundir_state_check(files->dir, &files->err);
    if (files->status == STATUS_OK)
        start_process(files);
}

/* -- run directories ------------------------------------------------------------------------------ */

static void drop_files(struct file_work *work)
{
    struct shim_files *files = (struct shim_files *)work;

    arena_reset(&files->arena);
    free(files);
}

struct shim_files *shim_files_new(const char *dir)
{
    struct shim_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.drop = drop_files;
    files->work.key = file_work_key(dir);
    (void)snprintf(files->dir, sizeof files->dir, "%s", dir);
    return files;
}

static void remove_cgroup(struct shim_files *files)
{
    struct rundir_shim process;
    struct err err;

    file_work_at(&files->work, FILE_DISK_STATE, "read");
    if (rundir_read_shim(files->dir, &process, &err) == STATUS_OK && process.cgroup[0] != '\0')
        cgroup_remove(process.cgroup);
}

void shim_files_read_order(struct file_work *work)
{
    struct shim_files *files = (struct shim_files *)work;

    file_work_at(work, FILE_DISK_STATE, "read");
    files->has_msg = rundir_read_msg(files->dir, "start.msg", &files->arena, &files->msg,
                                     &files->err) == STATUS_OK &&
                     files->msg.type == MSG_TYPE_START;
    if (files->has_msg)
        remove_cgroup(files); /* the next process writes its own shim.json */
}

uint32_t shim_files_kill(const struct rundir_shim *process)
{
    uint32_t count = 0;

    if (process->cgroup[0] != '\0' && cgroup_is_populated(process->cgroup)) {
        (void)cgroup_kill(process->cgroup);
        count++;
    }
    return count + proc_kill_token(process->token);
}

/* Without shim.json, and without one in the record, the shim had not started anything. One that is there, but cannot be
 * read now, says nothing. */
void shim_files_sweep(struct file_work *work)
{
    struct shim_files *files = (struct shim_files *)work;
    struct rundir_shim process;
    enum status status;

    file_work_at(work, FILE_DISK_STATE, "read");
    status = rundir_read_msg(files->dir, "end.msg", &files->arena, &files->msg, &files->err);
    files->has_msg = status == STATUS_OK;
    if (files->has_msg)
        return;
    files->is_unknown = status == STATUS_IO || status == STATUS_MEMORY;
    status = rundir_read_shim(files->dir, &process, &files->err);
    files->is_unknown = files->is_unknown || status == STATUS_IO || status == STATUS_MEMORY;
    if (status != STATUS_OK && !files->is_unknown) {
        status = part_record_read_shim(files->dir, &process, &files->err);
        files->is_unknown = status == STATUS_IO || status == STATUS_MEMORY;
    }
    file_work_at(work, FILE_DISK_PROC, "read");
    if (status == STATUS_OK)
        files->found = shim_files_kill(&process);
}

void shim_files_remove(struct file_work *work)
{
    struct shim_files *files = (struct shim_files *)work;

    remove_cgroup(files);
    file_work_at(work, FILE_DISK_STATE, "unlink");
    rundir_remove(files->dir);
}

void shim_files_touch(struct file_work *work)
{
    const struct shim_files *files = (struct shim_files *)work;
    char path[64];
    struct err err;
    int fd;

    file_work_at(work, FILE_DISK_LOGS, "utimens");
    if (own_folder_open(files->log_dir, 1, &fd, &err) != STATUS_OK)
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    (void)utimensat(AT_FDCWD, path, NULL, 0);
    (void)close(fd);
}

/* -- sockets -------------------------------------------------------------------------------------- */

static void drop_connect(struct file_work *work)
{
    struct connect_files *files = (struct connect_files *)work;

    if (files->fd >= 0)
        (void)close(files->fd);
    free(files);
}

struct connect_files *connect_files_new(void)
{
    struct connect_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->fd = -1;
    files->work.run = connect_files_open;
    files->work.drop = drop_connect;
    return files;
}

void connect_files_open(struct file_work *work)
{
    struct connect_files *files = (struct connect_files *)work;

    file_work_at(work, FILE_DISK_STATE, "connect");
    files->status = address_connect(files->address, &files->fd, &files->err);
}
