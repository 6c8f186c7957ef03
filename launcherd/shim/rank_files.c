#include "launcherd/shim/rank_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/io/address.h"
#include "launcherd/process/rundir.h"

/* Cleaners of temporary folders (tmpfiles.d(5)) leave a folder alone that is locked: --log-dir may be in /tmp.
 * The descriptor stays open until the process ends. Another generation's shim may have the lock still. */
static void hold_folder(const char *dir)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0)
        (void)close(fd);
}

/* A log is made even if its rank never runs: a request for its output then gets no output, and not an error. */
static void open_logs(struct rank_files *files)
{
    struct file_work *work = &files->work;
    char path[PATH_MAX];

    file_work_at(work, FILE_DISK_LOGS, "open");
    hold_folder(files->log_dir);
    for (uint32_t i = 0; i < files->count && !file_work_is_late(work); i++) {
        rundir_rank_log(path, files->log_dir, files->generation, files->rank_base + i);
        files->status = log_file_open(&files->logs[i], path, files->log_max, &files->err);
        if (files->status != STATUS_OK)
            return;
        files->open_count++;
    }
}

static void make_socket(struct rank_files *files)
{
    struct stat made;

    file_work_at(&files->work, FILE_DISK_STATE, "bind");
    files->status =
        address_listen(files->store_address, 0600, &files->store_fd, &made, &files->err);
}

static void make(struct file_work *work)
{
    struct rank_files *files = (struct rank_files *)work;

    open_logs(files);
    if (files->status == STATUS_OK && files->store_address[0] != '\0' && !file_work_is_late(work))
        make_socket(files);
}

static void drop(struct file_work *work)
{
    struct rank_files *files = (struct rank_files *)work;

    if (files->store_fd >= 0)
        close(files->store_fd);

    for (uint32_t i = 0; i < files->open_count; i++)
        log_file_close(&files->logs[i]);
    free(files);
}

struct rank_files *rank_files_new(uint32_t count)
{
    struct rank_files *files = calloc(1, sizeof *files + count * sizeof files->logs[0]);

    if (files == NULL)
        return NULL;
    files->work.run = make;
    files->work.drop = drop;
    files->count = count;
    files->store_fd = -1;
    return files;
}
