#include "rendezvous/server/stage_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "common/io/own_path.h"

#define KEEP_MS (24 * 3600 * (int64_t)1000)
#define KEEP_FULL_MS (600 * (int64_t)1000) /* its submit follows within moments */
#define SUFFIX ".tar"

static void at(struct stage_files *files, const char *call)
{
    file_work_at(&files->work, FILE_DISK_STAGE, call);
}

static void fail(struct stage_files *files, const char *doing, int code)
{
    files->outcome = STAGE_FAILED;
    files->doing = doing;
    files->code = code;
}

static void archive_path(const struct stage_files *files, char path[4200])
{
    (void)snprintf(path, 4200, "%.4000s/%s" SUFFIX, files->dir, files->hash);
}

/* Opens the archive, which counts as a use. -1: the outcome says why not. */
static int touch(struct stage_files *files)
{
    enum status status;
    char path[4200];
    struct err err;
    int fd;

    archive_path(files, path);
    at(files, "open");
    status = own_file_open(path, 1, O_RDONLY, 0, &fd, &err);
    files->outcome = STAGE_MISSING;
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        fail(files, "cannot open it", err.code != 0 ? err.code : EPERM);
    if (status != STATUS_OK)
        return -1;
    at(files, "utimens");
    if (futimens(fd, NULL) == 0)
        return fd;
    fail(files, "cannot note its use", errno);
    (void)close(fd);
    return -1;
}

/* -- the folder ----------------------------------------------------------------------------------- */

/* Whether the name is a hash and then `suffix`. */
static bool has_suffix(const char *name, const char *suffix)
{
    char hash[STAGE_HASH_CHARS + 1];

    (void)snprintf(hash, sizeof hash, "%.*s", (int)STAGE_HASH_CHARS, name);
    return stage_is_hash(hash) && strcmp(name + STAGE_HASH_CHARS, suffix) == 0;
}

/* Whether it is the name of an unfinished upload: HASH-NUMBER.part */
static bool is_part(const char *name)
{
    const size_t end = STAGE_HASH_CHARS;
    size_t digits;

    if (strlen(name) < end + 2 || name[end] != '-')
        return false;
    digits = strspn(name + end + 1, "0123456789");
    return digits > 0 && strcmp(name + end + 1 + digits, ".part") == 0;
}

void stage_files_open(struct file_work *work)
{
    struct stage_files *files = (struct stage_files *)work;
    struct dirent *entry;
    DIR *dir;
    int fd;

    at(files, "mkdir");
    if (own_folder_make(files->dir, 1, 0700, &fd, &files->err) != STATUS_OK)
        return;
    at(files, "opendir");
    dir = own_folder_list(fd);
    (void)close(fd);
    if (dir == NULL) {
        (void)err_set(&files->err, STATUS_IO, errno, "cannot read %.180s: %s", files->dir,
                      strerror(errno));
        return;
    }
    at(files, "unlink");
    while ((entry = readdir(dir)) != NULL) /* an earlier server's unfinished uploads */
        if (is_part(entry->d_name))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    (void)closedir(dir);
}

static int by_hash(const void *a, const void *b)
{
    return strncmp(a, b, STAGE_HASH_CHARS);
}

static bool is_used(const struct stage_files *files, const char *hash)
{
    return bsearch(hash, files->used, files->used_count, sizeof *files->used, by_hash) != NULL;
}

/* Removes archives that nobody has used for that time. Returns the bytes of the others. Sets WANTS if it has to know
 * what jobs use. */
static uint64_t collect(struct stage_files *files, int64_t keep_ms)
{
    const int64_t oldest_ms = clock_wall_ms() - keep_ms;
    struct dirent *entry;
    struct stat info;
    uint64_t total = 0;
    bool is_kept;
    struct err none;
    DIR *dir = NULL;
    int fd;

    at(files, "opendir");
    if (own_folder_open(files->dir, 1, &fd, &none) == STATUS_OK) {
        dir = own_folder_list(fd);
        (void)close(fd);
    }
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        at(files, "stat");
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(info.st_mode))
            continue;
        is_kept = (int64_t)info.st_mtime * 1000 >= oldest_ms || !has_suffix(entry->d_name, SUFFIX);
        if (!is_kept && files->used == NULL) {
            files->outcome = STAGE_WANTS;
        } else if (is_kept || is_used(files, entry->d_name)) {
            total += (uint64_t)info.st_size;
        } else {
            at(files, "unlink");
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL)
        (void)closedir(dir);
    return total;
}

/* Archives may have half of the disk that they and the free space make up, so that there is room left for
 * jobs and keys. False: the outcome says why. */
static bool has_room(struct stage_files *files)
{
    const int64_t keep_ms[] = {KEEP_MS, KEEP_FULL_MS};
    const uint64_t byte_count = files->total + files->bytes_to_come;
    struct statvfs disk;

    files->outcome = STAGE_FULL;
    for (size_t i = 0; i < sizeof keep_ms / sizeof keep_ms[0]; i++) {
        const uint64_t has = collect(files, keep_ms[i]), wanted = has + byte_count;

        if (files->outcome == STAGE_WANTS)
            return false;
        at(files, "statvfs");
        if (statvfs(files->dir, &disk) < 0)
            return true; /* writing it will tell */
        if (wanted <= STAGE_TOTAL_BYTES_MAX &&
            wanted <= (has + (uint64_t)disk.f_bavail * disk.f_frsize) / 2)
            return true;
    }
    return false;
}

/* -- uploads -------------------------------------------------------------------------------------- */

void stage_upload_free(struct stage_upload *upload)
{
    if (upload->fd >= 0)
        (void)close(upload->fd);
    stage_digest_free(&upload->digest);
    free(upload);
}

static void close_part(struct stage_upload *upload)
{
    if (upload->fd >= 0)
        (void)close(upload->fd);
    upload->fd = -1;
}

static void remove_part(struct stage_files *files)
{
    struct err none;

    at(files, "unlink");
    if (files->upload->path[0] != '\0')
        (void)own_file_remove(files->upload->path, 1, &none);
    files->upload->path[0] = '\0';
    close_part(files->upload);
}

static void begin(struct stage_files *files)
{
    struct stage_upload *upload = files->upload;
    struct err err;

    if (!has_room(files))
        return;
    (void)snprintf(upload->path, sizeof upload->path, "%.4000s/%s-%llu.part", files->dir,
                   files->hash, (unsigned long long)files->serial);
    at(files, "open");
    files->outcome = STAGE_TAKEN;
    if (own_file_open(upload->path, 1, O_RDWR | O_CREAT | O_EXCL, 0600, &upload->fd, &err) !=
        STATUS_OK) {
        upload->path[0] = '\0'; /* what has that name is not ours */
        fail(files, "cannot make a file", err.code != 0 ? err.code : EPERM);
    } else if (stage_digest_new(&upload->digest, NULL) != STATUS_OK) {
        fail(files, "cannot make a digest", ENOMEM);
    }
}

/* The bytes are on the disk before the archive has its name. errno's number; 0: it has. */
static int publish(struct stage_files *files)
{
    char path[4200];
    struct err err;
    int dir_fd, code = 0;

    at(files, "fsync");
    if (files->survives_power && fsync(files->upload->fd) < 0)
        return errno;
    archive_path(files, path);
    at(files, "rename");
    if (own_file_rename(files->upload->path, path, 1, &err) != STATUS_OK)
        return err.code != 0 ? err.code : EPERM;
    files->upload->path[0] = '\0';
    at(files, "fsync");
    dir_fd = open(files->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0 || (files->survives_power && fsync(dir_fd) < 0))
        code = errno;
    if (dir_fd >= 0)
        (void)close(dir_fd);
    return code;
}

static void finish(struct stage_files *files)
{
    char hash[STAGE_HASH_CHARS + 1];
    int code;

    stage_digest_end(&files->upload->digest, hash);
    files->outcome = STAGE_OTHER;
    if (strcmp(hash, files->hash) != 0)
        return;
    code = publish(files);
    close_part(files->upload); /* by a thread: a file server may be slow in this, too */
    files->outcome = STAGE_COMPLETE;
    if (code != 0)
        fail(files, "cannot write it to the disk", code);
}

static void take_bytes(struct stage_files *files)
{
    struct stage_upload *upload = files->upload;
    ssize_t written;

    at(files, "write");
    written = pwrite(upload->fd, files->bytes, files->byte_count, (off_t)upload->have);
    if (written != (ssize_t)files->byte_count) {
        fail(files, "cannot write it to the disk", written < 0 ? errno : ENOSPC);
        return;
    }
    stage_digest_add(upload->digest, files->bytes, files->byte_count);
    files->outcome = STAGE_TAKEN;
    if (upload->have + files->byte_count == upload->total)
        finish(files);
}

void stage_files_put(struct file_work *work)
{
    struct stage_files *files = (struct stage_files *)work;
    const int fd = touch(files);

    if (fd >= 0) {
        (void)close(fd);
        files->outcome = STAGE_COMPLETE;
    } else if (files->upload == NULL) {
        files->outcome = STAGE_UNBEGUN;
    } else if (files->byte_count > 0) {
        take_bytes(files);
    } else {
        begin(files);
    }
    /* Nobody goes on with it. */
    if (files->upload != NULL && (files->outcome == STAGE_COMPLETE || file_work_is_late(work)))
        remove_part(files);
}

void stage_files_abandon(struct file_work *work)
{
    remove_part((struct stage_files *)work);
}

/* -- reading -------------------------------------------------------------------------------------- */

void stage_files_get(struct file_work *work)
{
    struct stage_files *files = (struct stage_files *)work;
    struct stat info = {0};
    ssize_t got = -1;
    int fd;

    files->bytes = malloc(STAGE_CHUNK_BYTES_MAX);
    if (files->bytes == NULL) {
        fail(files, "no memory", ENOMEM);
        return;
    }
    fd = touch(files);
    if (fd < 0)
        return;
    at(files, "read");
    if (fstat(fd, &info) == 0)
        got = pread(fd, files->bytes, STAGE_CHUNK_BYTES_MAX, (off_t)files->offset);
    if (got < 0)
        fail(files, "cannot read it", errno);
    else
        files->outcome = STAGE_COMPLETE;
    files->byte_count = got > 0 ? (uint32_t)got : 0;
    files->total = (uint64_t)info.st_size;
    (void)close(fd);
}

void stage_files_check(struct file_work *work)
{
    struct stage_files *files = (struct stage_files *)work;
    const int fd = touch(files);

    if (fd < 0)
        return;
    files->outcome = STAGE_COMPLETE;
    (void)close(fd);
}
