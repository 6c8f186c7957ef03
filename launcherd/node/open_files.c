#include "launcherd/node/open_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/lock_holder.h"
#include "common/io/own_path.h"
#include "launcherd/node/key_mark.h"
#include "launcherd/process/rundir.h"

static void drop(struct file_work *work)
{
    struct open_files *files = (struct open_files *)work;

    folder_lock_release(&files->lock);
    free(files);
}

struct open_files *open_files_new(const char *dir, void *owner)
{
    struct open_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_START;
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.drop = drop;
    files->owner = owner;
    files->lock = FOLDER_LOCK_NONE;
    (void)snprintf(files->dir, sizeof files->dir, "%s", dir);
    return files;
}

/* When we are root, users of jobs may pass through this folder to their own files (error files), but not list it. */
void open_files_logs(struct file_work *work)
{
    struct open_files *files = (struct open_files *)work;
    int fd;

    file_work_at(work, FILE_DISK_LOGS, "mkdir");
    files->status = own_folder_make(files->dir, 0, geteuid() == 0 ? 0711 : 0700, &fd, &files->err);
    if (files->status == STATUS_OK)
        (void)close(fd);
}

/* Another process has the lock. */
static enum status say_locked(struct open_files *files, const char *pid)
{
    char why[LOCK_HOLDER_BYTES];

    if (lock_holder_hangs(pid, why))
        return err_set(&files->err, STATUS_BUSY, 0,
                       "launcherd, pid %s, holds the state directory %.70s: %s", pid, files->dir,
                       why);
    return err_set(&files->err, STATUS_BUSY, 0,
                   "another launcherd (pid %s) uses the state directory %.120s: stop it, or "
                   "choose another with --state-dir",
                   pid, files->dir);
}

static enum status lock_state(struct open_files *files)
{
    char holder[32];
    struct err why;
    const enum status status = folder_lock_take(&files->lock, files->dir, holder, &why);

    if (status == STATUS_BUSY)
        return say_locked(files, holder);
    if (status != STATUS_OK)
        files->err = why;
    return status;
}

/* The state directory must be of somebody who may name a place for us. `run` must be readable: if it is not,
 * that is no proof that no shim runs. */
static enum status check_state(const char *state_dir, const char *run, struct err *err)
{
    struct stat info = {0};
    int fd;
    DIR *dir;
    enum status status = own_folder_open(state_dir, 0, &fd, err);

    if (status == STATUS_OK && fstat(fd, &info) == 0 && !own_is_trusted(info.st_uid))
        status = err_set(err, STATUS_REFUSED, 0,
                         "the state directory %.120s belongs to user %u: choose another with "
                         "--state-dir",
                         state_dir, (unsigned)info.st_uid);
    if (status == STATUS_OK && !own_folder_is_private(&info, fd))
        status = err_set(err, STATUS_REFUSED, 0,
                         "other users may write in the state directory %.120s (mode %04o): make it "
                         "private, with chmod go-w",
                         state_dir, (unsigned)(info.st_mode & 07777));
    if (fd >= 0)
        close(fd);
    if (status == STATUS_OK)
        status = own_folder_open(run, 1, &fd, err);
    if (status != STATUS_OK)
        return status;
    dir = own_folder_list(fd);
    if (dir == NULL)
        status = err_set(err, STATUS_IO, errno, "cannot read %.180s: %s", run, strerror(errno));
    else
        closedir(dir);
    close(fd);
    return status;
}

void open_files_state(struct file_work *work)
{
    struct open_files *files = (struct open_files *)work;
    char run[PATH_MAX];

    file_work_at(work, FILE_DISK_STATE, "mkdir");
    rundir_join(run, files->dir, "run");
    files->status = rundir_make(run, 0700, &files->err);
    if (files->status == STATUS_OK)
        files->status = check_state(files->dir, run, &files->err);
    file_work_at(work, FILE_DISK_STATE, "write");
    if (files->status == STATUS_OK)
        files->status = lock_state(files);
    if (files->status == STATUS_OK)
        rundir_state_opened(files->dir, files->lock.dir_fd);
    if (files->status == STATUS_OK)
        files->status = state_id_load(files->dir, files->boot_id, files->machine_id,
                                      files->state_id, &files->found, files->aside, &files->err);
    if (files->status == STATUS_OK && files->key_name[0] != '\0')
        key_mark_write(files->dir, files->key_name);
    else if (files->status == STATUS_OK && files->wants_key)
        files->status = key_mark_check(files->dir, &files->err);
}
