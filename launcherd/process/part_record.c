#include "launcherd/process/part_record.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/log.h"
#include "common/io/write_all.h"

#define END_START ".start"
#define END_SHIM ".shim"

/* STATE/parts of STATE/run/NAME, and NAME. False: it is no run directory, but one of warm processes. */
static bool split(const char *run_dir, char parts[PATH_MAX], const char **name)
{
    static const char run[] = "/run";
    const char *slash = strrchr(run_dir, '/');
    const size_t bytes = slash == NULL ? 0 : (size_t)(slash - run_dir);

    if (bytes < sizeof run - 1 || strncmp(slash - (sizeof run - 1), run, sizeof run - 1) != 0 ||
        !rundir_is_name(slash + 1))
        return false;
    (void)snprintf(parts, PATH_MAX, "%.*s/" PART_RECORD_DIR, (int)(bytes - (sizeof run - 1)),
                   run_dir);
    *name = slash + 1;
    return true;
}

static void join(char out[NAME_MAX + 1], const char *name, const char *file)
{
    (void)snprintf(out, NAME_MAX + 1, "%.200s%s", name,
                   strcmp(file, "shim.json") == 0 ? END_SHIM : END_START);
}

static enum status fail(struct err *err, const char *what, const char *run_dir)
{
    return err_set(err, STATUS_IO, errno, "cannot %s the record of %.150s: %s", what, run_dir,
                   strerror(errno));
}

/* For a file system without hard links. */
static enum status copy(const char *run_dir, const char *file, int to_fd, const char *to,
                        struct err *err)
{
    struct arena arena = {0};
    char *bytes = NULL;
    size_t byte_count = 0;
    int fd = -1;
    enum status status = rundir_read(run_dir, file, &arena, &bytes, &byte_count, err);

    if (status == STATUS_OK) {
        fd = openat(to_fd, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 ? errno != EEXIST : !write_all(fd, bytes, byte_count))
            status = fail(err, "write", run_dir);
    }
    if (fd >= 0)
        (void)close(fd);
    arena_reset(&arena);
    return status;
}

static bool has_no_links(int code)
{
    return code == EPERM || code == EOPNOTSUPP || code == ENOSYS || code == EXDEV || code == EMLINK;
}

/* A launcherd that is started while its shim keeps the record keeps it, too. */
static bool is_kept(int from_fd, const char *file, int to_fd, const char *to)
{
    struct stat from, kept;

    return fstatat(from_fd, file, &from, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(to_fd, to, &kept, AT_SYMLINK_NOFOLLOW) == 0 && from.st_dev == kept.st_dev &&
           from.st_ino == kept.st_ino;
}

enum status part_record_keep(const char *run_dir, const char *file, struct err *err)
{
    char parts[PATH_MAX], to[NAME_MAX + 1];
    const char *name;
    int from_fd = -1, to_fd = -1;
    enum status status;

    if (!split(run_dir, parts, &name))
        return STATUS_OK;
    join(to, name, file);
    status = rundir_state_check(run_dir, err);
    if (status == STATUS_OK)
        status = own_folder_open(run_dir, 2, &from_fd, err);
    if (status == STATUS_OK)
        status = own_folder_make(parts, 1, 0700, &to_fd, err);
    if (status == STATUS_OK) {
        (void)unlinkat(to_fd, to, 0); /* of a start before this one */
        if (linkat(from_fd, file, to_fd, to, 0) != 0) {
            status = has_no_links(errno) ? copy(run_dir, file, to_fd, to, err)
                                         : fail(err, "write", run_dir);
            if (status != STATUS_OK && is_kept(from_fd, file, to_fd, to))
                status = STATUS_OK;
        }
    }
    if (from_fd >= 0)
        (void)close(from_fd);
    if (to_fd >= 0)
        (void)close(to_fd);
    return status;
}

static bool drop_one(int fd, const char *run_dir, const char *name, const char *file)
{
    char part[NAME_MAX + 1];

    join(part, name, file);
    if (unlinkat(fd, part, 0) == 0 || errno == ENOENT)
        return true;
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "the record %s of %s cannot be removed: %s", part,
             run_dir, strerror(errno));
    return false;
}

bool part_record_drop(const char *run_dir)
{
    char parts[PATH_MAX];
    const char *name;
    enum status status;
    struct err err;
    bool is_dropped;
    int fd;

    if (!split(run_dir, parts, &name))
        return true;
    status = own_folder_open(parts, 1, &fd, &err);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "the record of %s is left: %s", run_dir, err.text);
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND;
    is_dropped =
        drop_one(fd, run_dir, name, "start.msg") && drop_one(fd, run_dir, name, "shim.json");
    (void)close(fd);
    return is_dropped;
}

enum status part_record_read_shim(const char *run_dir, struct rundir_shim *shim, struct err *err)
{
    char parts[PATH_MAX], file[NAME_MAX + 1];
    const char *name;

    if (!split(run_dir, parts, &name))
        return err_set(err, STATUS_NOT_FOUND, 0, "it has no record");
    join(file, name, "shim.json");
    return rundir_read_shim_of(parts, file, 1, shim, err);
}

enum status part_record_list(const char *state_dir,
                             void (*take)(void *owner, const char *run_dir, const char *name),
                             void *owner, struct err *err)
{
    char parts[PATH_MAX], run[PATH_MAX], run_dir[PATH_MAX], name[NAME_MAX + 1];
    struct dirent *entry;
    DIR *dir;
    int fd;
    enum status status;

    rundir_join(parts, state_dir, PART_RECORD_DIR);
    rundir_join(run, state_dir, "run");
    status = own_folder_open(parts, 1, &fd, err);
    if (status != STATUS_OK)
        return status;
    dir = own_folder_list(fd);
    while (dir != NULL && (errno = 0, entry = readdir(dir)) != NULL) {
        const size_t length = strlen(entry->d_name), end = sizeof END_START - 1;

        if (length <= end || strcmp(entry->d_name + length - end, END_START) != 0)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)(length - end), entry->d_name);
        if (!rundir_is_name(name))
            continue;
        rundir_join(run_dir, run, name);
        take(owner, run_dir, name);
    }
    if (dir == NULL || errno != 0)
        status = fail(err, "read", parts);
    if (dir != NULL)
        (void)closedir(dir);
    (void)close(fd);
    return status;
}

/* Its description comes first: with an order and without it, the part would look as if it had never begun. */
static enum status link_back(int parts_fd, int run_fd, const char *name, const char *run_dir,
                             struct err *err)
{
    char file[NAME_MAX + 1];

    join(file, name, "shim.json");
    if (linkat(parts_fd, file, run_fd, "shim.json", 0) != 0 && errno != ENOENT)
        return fail(err, "use", run_dir);
    join(file, name, "start.msg");
    if (linkat(parts_fd, file, run_fd, "start.msg", 0) != 0)
        return fail(err, "use", run_dir);
    return STATUS_OK;
}

enum status part_record_restore(const char *run_dir, struct err *err)
{
    char parts[PATH_MAX];
    const char *name = NULL;
    int parts_fd = -1, run_fd = -1;
    enum status status;
    const bool is_run = split(run_dir, parts, &name);

    assert(is_run);
    status = own_folder_open(parts, 1, &parts_fd, err);
    if (status == STATUS_OK)
        status = own_folder_make(run_dir, 2, 0700, &run_fd, err);
    if (status == STATUS_OK)
        status = link_back(parts_fd, run_fd, name, run_dir, err);
    if (parts_fd >= 0)
        (void)close(parts_fd);
    if (run_fd >= 0)
        (void)close(run_fd);
    return status;
}
