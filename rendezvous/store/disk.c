/* The store's files on the machine's own file system. */
#include "rendezvous/store/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/io/lock_holder.h"
#include "common/io/own_path.h"
#include "rendezvous/store/seen.h"
#include "rendezvous/store/store.h"
#include "rendezvous/store/witness.h"

#define REWRITE_BYTES ((size_t)1 << 20)

/* Like mkdir -p. New folders get mode 0700. Who may write in it may take every secret. */
static enum status make_dir(const char *dir, struct err *err)
{
    struct stat info = {0};
    struct err why;
    bool is_private;
    int fd;

    if (dir[0] == '\0' || strlen(dir) >= 4096 - 32)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "state directory: a path of %zu bytes, 1 to %d wanted", strlen(dir),
                       4096 - 33);
    if (own_folder_make(dir, 0, 0700, &fd, &why) != STATUS_OK)
        return err_set(err, why.status == STATUS_NOT_FOUND ? STATUS_IO : why.status, why.code,
                       "state directory: %.200s", why.text);
    is_private = fstat(fd, &info) == 0 && own_folder_is_private(&info, fd);
    (void)close(fd);
    if (own_is_trusted(info.st_uid) && is_private)
        return STATUS_OK;
    if (!own_is_trusted(info.st_uid))
        return err_set(err, STATUS_REFUSED, 0,
                       "state directory %.120s: it belongs to another user (uid %u; we are %u): "
                       "give another --state-dir, or chown it",
                       dir, (unsigned)info.st_uid, (unsigned)geteuid());
    return err_set(err, STATUS_REFUSED, 0,
                   "state directory %.120s: others may write in it (mode %04o): chmod go-w it, or "
                   "give another --state-dir",
                   dir, (unsigned)(info.st_mode & 07777));
}

static enum status hold(const char *dir, struct folder_lock *lock, struct err *err)
{
    char holder[32], text[LOCK_HOLDER_BYTES], name[LOCK_HOLDER_NAME_BYTES];
    struct err why;
    enum status status = make_dir(dir, err);

    *lock = FOLDER_LOCK_NONE;
    if (status != STATUS_OK)
        return status;
    status = folder_lock_take(lock, dir, holder, &why);
    if (status == STATUS_BUSY && lock_holder_hangs(holder, text))
        return err_set(err, STATUS_BUSY, 0,
                       "rendezvous, pid %s, holds the state directory %.70s: %s", holder, dir,
                       text);
    if (status == STATUS_BUSY) {
        lock_holder_name(holder, "rendezvous", name);
        return err_set(
            err, STATUS_BUSY, 0,
            "state directory %.120s is in use by %s, pid %s: stop it, or give another --state-dir",
            dir, name, holder);
    }
    if (status != STATUS_OK)
        *err = why;
    return status;
}

static enum status look(const char *path, struct err *err)
{
    int fd;
    enum status status = own_file_open(path, 0, O_RDONLY, 0, &fd, err);

    if (status == STATUS_OK)
        (void)close(fd);
    return status;
}

static int64_t byte_count(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

/* Closes and returns `rc`. An error of close does not matter: writes that must be durable were
 * synced before. */
static int close_with(int fd, int rc)
{
    int code = errno;

    if (fd >= 0)
        (void)close(fd);
    errno = code;
    return rc;
}

static int make(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    return close_with(fd, fd < 0 ? -1 : 0);
}

static int make_private(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC), rc = -1;

    if (fd >= 0 && fstat(fd, &info) == 0) {
        errno = EPERM;
        if (S_ISREG(info.st_mode) && info.st_uid == geteuid())
            rc = fchmod(fd, 0600);
    }
    return close_with(fd, rc);
}

static int sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    return close_with(fd, fd < 0 ? -1 : fsync(fd));
}

/* Writes one piece again in place. Returns its length; 0: end of file; -1 with errno. */
static ssize_t rewrite_piece(int fd, char *bytes, off_t at)
{
    ssize_t count = pread(fd, bytes, REWRITE_BYTES, at), done = 0, rc;

    while (done < count) {
        rc = pwrite(fd, bytes + done, (size_t)(count - done), at + done);
        if (rc < 0)
            return -1;
        done += rc;
    }
    return count;
}

static int rewrite(const char *path)
{
    char *bytes = malloc(REWRITE_BYTES);
    int fd = bytes != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    ssize_t count = fd < 0 ? -1 : 1;
    off_t at = 0;

    for (; count > 0; at += count)
        count = rewrite_piece(fd, bytes, at);
    free(bytes);
    return close_with(fd, count < 0 ? -1 : fsync(fd));
}

static int64_t read_at(const char *path, void *bytes, size_t count, int64_t at)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? -1 : pread(fd, bytes, count, (off_t)at);

    (void)close_with(fd, 0);
    return got;
}

/* The size stays the same, because SQLite takes the end of the file from it. */
static int allocate(const char *path, int *kept_fd, uint64_t wanted_bytes)
{
    int fd = kept_fd != NULL && *kept_fd >= 0 ? *kept_fd : open(path, O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)wanted_bytes);

    if (kept_fd == NULL)
        return close_with(fd, rc);
    *kept_fd = fd;
    return rc;
}

static uint64_t allocated_bytes(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 ? (uint64_t)info.st_blocks * 512 : 0;
}

static uint64_t free_bytes(const char *path)
{
    struct statvfs info;

    if (statvfs(path, &info) != 0)
        return UINT64_MAX;
    return (uint64_t)info.f_bavail * info.f_frsize;
}

static void end(struct store *store, int code)
{
    (void)store;
    _exit(code);
}

const struct store_disk store_disk_usual = {
    .hold = hold,
    .look = look,
    .byte_count = byte_count,
    .make = make,
    .make_private = make_private,
    .rename = rename,
    .remove = unlink,
    .sync = sync_path,
    .rewrite = rewrite,
    .read_at = read_at,
    .allocate = allocate,
    .allocated_bytes = allocated_bytes,
    .free_bytes = free_bytes,
    .witness = witness_open,
    .seen_read = seen_read,
    .seen_write = seen_write,
    .end = end,
};

enum status store_hold(const char *dir, struct folder_lock *lock, struct err *err)
{
    return hold(dir, lock, err);
}
