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

/* -1: the outcome says why not. */
static int open_archive(struct stage_files *files)
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
    return status == STATUS_OK ? fd : -1;
}

/* False: the outcome says why not. */
static bool note_use(struct stage_files *files, int fd)
{
    at(files, "utimens");
    if (futimens(fd, NULL) == 0)
        return true;
    fail(files, "cannot note its use", errno);
    return false;
}

/* Another upload may have put a good archive into its place meanwhile, which stays. */
static void remove_damaged(struct stage_files *files, int fd)
{
    struct stat ours, named;
    char path[4200];
    struct err none;

    archive_path(files, path);
    at(files, "unlink");
    if (fstat(fd, &ours) == 0 && lstat(path, &named) == 0 && ours.st_ino == named.st_ino &&
        ours.st_dev == named.st_dev)
        (void)own_file_remove(path, 1, &none);
    files->outcome = STAGE_DAMAGED;
}

/* Whether the file has its hash. False: the outcome says why not; a damaged file is removed. */
static bool check_bytes(struct stage_files *files, int fd)
{
    char hash[STAGE_HASH_CHARS + 1];
    uint64_t byte_count;
    struct err err;

    at(files, "read");
    if (stage_digest_file(fd, hash, &byte_count, &err) != STATUS_OK)
        fail(files, "cannot read it", err.code != 0 ? err.code : EIO);
    else if (strcmp(hash, files->hash) != 0)
        remove_damaged(files, fd);
    else
        return true;
    return false;
}

/* Opens the archive that the client has, too. If its size is another one than the client's, one of the two is wrong. */
static int open_sent(struct stage_files *files)
{
    struct stat info;
    const int fd = open_archive(files);

    at(files, "stat");
    if (fd < 0 || (fstat(fd, &info) == 0 && (uint64_t)info.st_size == files->total) ||
        check_bytes(files, fd))
        return fd;
    (void)close(fd);
    return -1;
}

/* Opens the archive, which counts as a use. -1: the outcome says why not. */
static int touch(struct stage_files *files)
{
    int fd = open_archive(files);

    if (fd >= 0 && !note_use(files, fd)) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
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

static const struct store_staged *find_used(const struct stage_files *files, const char *hash)
{
    return files->used == NULL
               ? NULL
               : bsearch(hash, files->used, files->used_count, sizeof *files->used, by_hash);
}

static bool is_named(const struct stage_files *files, const char *hash)
{
    const struct store_staged *used = find_used(files, hash);

    return used != NULL && used->is_named;
}

/* The bytes in the folder. Those of the user and the others are known if `used` is. */
struct sums {
    uint64_t total, of_user, of_others, of_this; /* the archive of this work */
    bool has_this;                               /* it is one of the user's */
};

static void add_to(struct sums *sums, const struct stage_files *files, const char *name,
                   uint64_t bytes)
{
    const bool is_archive = has_suffix(name, SUFFIX);
    const struct store_staged *used = is_archive ? find_used(files, name) : NULL;

    sums->total += bytes;
    if (used != NULL && used->is_of_user)
        sums->of_user += bytes;
    else if (used != NULL)
        sums->of_others += bytes;
    if (is_archive && by_hash(name, files->hash) == 0) {
        sums->of_this = bytes;
        sums->has_this = used != NULL && used->is_of_user;
    }
}

/* Removes archives that nobody has used for that time, but for that of this work. Returns the bytes of the others. Sets
 * WANTS if it has to know what jobs use. */
static struct sums collect(struct stage_files *files, int64_t keep_ms)
{
    const int64_t oldest_ms = clock_wall_ms() - keep_ms;
    struct sums sums = {0};
    struct dirent *entry;
    struct stat info;
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
        is_kept = (int64_t)info.st_mtime * 1000 >= oldest_ms ||
                  !has_suffix(entry->d_name, SUFFIX) || by_hash(entry->d_name, files->hash) == 0;
        if (!is_kept && files->used == NULL) {
            files->outcome = STAGE_WANTS;
        } else if (is_kept || is_named(files, entry->d_name)) {
            add_to(&sums, files, entry->d_name, (uint64_t)info.st_size);
        } else {
            at(files, "unlink");
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL)
        (void)closedir(dir);
    return sums;
}

/* No user may have more than half of what the others leave of the room. An archive of several users counts for each of
 * them, and not as one of the others. */
static bool is_over_share(struct stage_files *files, const struct sums *sums, uint64_t limit,
                          uint64_t adds_bytes)
{
    const uint64_t others = sums->of_others + files->begun_others_bytes;

    files->has_bytes = sums->of_user + files->begun_bytes;
    files->wants_bytes = adds_bytes > 0 ? adds_bytes : sums->of_this;
    files->most_bytes = others < limit ? (limit - others) / 2 : 0;
    files->is_share = files->has_bytes + files->wants_bytes > files->most_bytes;
    return files->is_share;
}

/* Archives may have half of the disk that they and the free space make up, so that there is room left for
 * jobs and keys. `adds_bytes`: of a new archive; 0: it is there, so it may only become one of this user. False: the
 * outcome says why. */
static bool has_room(struct stage_files *files, uint64_t adds_bytes)
{
    const int64_t keep_ms[] = {KEEP_MS, STAGE_KEEP_FULL_MS};
    struct statvfs disk;
    struct sums sums;
    uint64_t limit, wanted;

    files->outcome = STAGE_FULL;
    if (adds_bytes == 0 && files->is_counted)
        return true;
    for (size_t i = 0; i < sizeof keep_ms / sizeof keep_ms[0]; i++) {
        sums = collect(files, keep_ms[i]);
        if (files->outcome == STAGE_WANTS)
            return false;
        at(files, "statvfs");
        if (statvfs(files->dir, &disk) < 0 || (adds_bytes == 0 && sums.has_this))
            return true; /* writing it will tell */
        limit = (sums.total + (uint64_t)disk.f_bavail * disk.f_frsize) / 2;
        if (limit > STAGE_TOTAL_BYTES_MAX)
            limit = STAGE_TOTAL_BYTES_MAX;
        wanted = sums.total + adds_bytes + files->bytes_to_come;
        if (files->used == NULL && wanted <= limit / 2)
            return true; /* whosever all that is */
        if (files->used == NULL) {
            files->outcome = STAGE_WANTS;
            return false;
        }
        if (is_over_share(files, &sums, limit, adds_bytes))
            return false;
        if (adds_bytes == 0 || wanted <= limit)
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

/* The first request about an archive on its connection. */
static void put_first(struct stage_files *files)
{
    const int fd = open_sent(files);
    const bool is_there = fd >= 0;

    if (!is_there && files->upload == NULL)
        files->outcome = STAGE_UNBEGUN;
    else if (has_room(files, is_there ? 0 : files->total)) {
        if (is_there && note_use(files, fd))
            files->outcome = STAGE_COMPLETE;
        else if (files->upload != NULL)
            begin(files);
    }
    if (is_there)
        (void)close(fd);
}

void stage_files_put(struct file_work *work)
{
    struct stage_files *files = (struct stage_files *)work;
    int fd;

    if (files->byte_count == 0 || files->upload == NULL) {
        put_first(files);
    } else if ((fd = touch(files)) >= 0) {
        (void)close(fd);
        files->outcome = STAGE_COMPLETE;
    } else {
        take_bytes(files);
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

void stage_reading_free(struct stage_reading *reading)
{
    if (reading == NULL)
        return;
    stage_digest_free(&reading->digest);
    free(reading);
}

/* Adds the piece to what was read before. */
static void follow(struct stage_files *files)
{
    struct stage_reading *reading = files->reading;

    if (reading == NULL ||
        (reading->digest == NULL && stage_digest_new(&reading->digest, NULL) != STATUS_OK)) {
        stage_reading_free(reading);
        files->reading = NULL;
        return;
    }
    stage_digest_add(reading->digest, files->bytes, files->byte_count);
    reading->have += files->byte_count;
}

/* The last piece was read. False: the outcome says why the archive is not good. */
static bool is_good(struct stage_files *files, int fd)
{
    char hash[STAGE_HASH_CHARS + 1];
    bool has_hash;

    if (files->reading == NULL) /* it began on a connection that was lost */
        return check_bytes(files, fd);
    stage_digest_end(&files->reading->digest, hash);
    has_hash = strcmp(hash, files->hash) == 0;
    stage_reading_free(files->reading);
    files->reading = NULL;
    /* Another archive may have taken the place between two pieces. */
    return has_hash || check_bytes(files, fd);
}

static void read_piece(struct stage_files *files, int fd)
{
    struct stat info;
    ssize_t got = -1;

    at(files, "read");
    if (fstat(fd, &info) == 0)
        got = pread(fd, files->bytes, STAGE_CHUNK_BYTES_MAX, (off_t)files->offset);
    if (got < 0 && errno == EIO) /* the disk has lost it */
        remove_damaged(files, fd);
    else if (got < 0)
        fail(files, "cannot read it", errno);
    if (got < 0)
        return;
    files->byte_count = (uint32_t)got;
    files->total = (uint64_t)info.st_size;
    follow(files);
    if (files->offset + files->byte_count < files->total || is_good(files, fd))
        files->outcome = STAGE_COMPLETE;
    if (files->outcome != STAGE_COMPLETE)
        files->byte_count = 0;
}

void stage_files_get(struct file_work *work)
{
    struct stage_files *files = (struct stage_files *)work;
    int fd;

    files->bytes = malloc(STAGE_CHUNK_BYTES_MAX);
    if (files->bytes == NULL) {
        fail(files, "no memory", ENOMEM);
        return;
    }
    fd = touch(files);
    if (fd < 0)
        return;
    files->outcome = STAGE_MISSING;
    read_piece(files, fd);
    (void)close(fd);
}

void stage_files_check(struct file_work *work)
{
    struct stage_files *files = (struct stage_files *)work;
    const int fd = open_archive(files);

    if (fd < 0)
        return;
    if (has_room(files, 0) && note_use(files, fd))
        files->outcome = STAGE_COMPLETE;
    (void)close(fd);
}
