#include "launcherd/node/log_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/read_all.h"
#include "launcherd/process/foreign_file.h"
#include "launcherd/process/log_index.h"
#include "launcherd/process/rundir.h"

enum {
    SCAN_BYTES = 16384,
    TAIL_SCAN_BYTES_MAX = 1 << 20, /* lines are only sought in this much before the end */
    WATCHES_MAX = 1024 /* folders; requests beyond it are answered when their time is over */
};

/* -- watches -------------------------------------------------------------------------------------- */

struct log_watches {
    atomic_uint users; /* work that has it, and the loop */
    int fd;
    pthread_mutex_t lock; /* threads only: a call about a folder may hang */
    uint32_t count;
    struct {
        int wd;
        uint32_t uses;
    } items[WATCHES_MAX];
};

struct log_watches *log_watches_new(void)
{
    struct log_watches *watches = calloc(1, sizeof *watches);

    if (watches == NULL)
        return NULL;
    watches->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watches->fd < 0) {
        free(watches);
        return NULL;
    }
    atomic_init(&watches->users, 1);
    (void)pthread_mutex_init(&watches->lock, NULL);
    return watches;
}

int log_watches_fd(const struct log_watches *watches)
{
    return watches->fd;
}

static struct log_watches *keep(struct log_watches *watches)
{
    atomic_fetch_add(&watches->users, 1);
    return watches;
}

void log_watches_drop(struct log_watches *watches)
{
    if (watches == NULL || atomic_fetch_sub(&watches->users, 1) > 1)
        return;
    (void)close(watches->fd);
    (void)pthread_mutex_destroy(&watches->lock);
    free(watches);
}

/* One folder has one number, whoever watches it. -1: it cannot be watched. */
static int watch(struct log_watches *watches, const char *dir)
{
    uint32_t i = 0;
    int wd;

    (void)pthread_mutex_lock(&watches->lock);
    wd = inotify_add_watch(watches->fd, dir, IN_CREATE | IN_MODIFY | IN_MOVED_TO | IN_ONLYDIR);
    while (wd >= 0 && i < watches->count && watches->items[i].wd != wd)
        i++;
    if (wd >= 0 && i == WATCHES_MAX) {
        (void)inotify_rm_watch(watches->fd, wd);
        wd = -1;
    }
    if (wd >= 0 && i == watches->count) {
        watches->items[i].wd = wd;
        watches->items[i].uses = 0;
        watches->count++;
    }
    if (wd >= 0)
        watches->items[i].uses++;
    (void)pthread_mutex_unlock(&watches->lock);
    return wd;
}

static void unwatch(struct log_watches *watches, int wd)
{
    (void)pthread_mutex_lock(&watches->lock);
    for (uint32_t i = 0; i < watches->count; i++) {
        if (watches->items[i].wd != wd || --watches->items[i].uses > 0)
            continue;
        (void)inotify_rm_watch(watches->fd, wd); /* fails if the folder is gone */
        watches->items[i] = watches->items[--watches->count];
        break;
    }
    (void)pthread_mutex_unlock(&watches->lock);
}

/* While the folder of the file does not exist, watches the one in which it will be made. */
static void add_watch(struct log_files *files)
{
    file_work_at(&files->work, FILE_DISK_LOGS, "open");
    files->wd = watch(files->watches, files->dir);
    files->is_watched = files->wd >= 0;
    if (!files->is_watched)
        files->wd = watch(files->watches, files->job_dir);
}

/* -- the file ------------------------------------------------------------------------------------- */

/* The next offset, from `offset` on, that is outside the hole of a log whose middle was cut out
 * (shim/log_file.h). `size`: only a hole follows. */
static uint64_t skip_hole(int fd, uint64_t offset, uint64_t size)
{
    off_t data = offset < size ? lseek(fd, (off_t)offset, SEEK_DATA) : (off_t)offset;

    if (data < 0 && errno == ENXIO)
        return size;
    return data > (off_t)offset ? (uint64_t)data : offset;
}

/* A log that is one hole, in place of which readers get a line at its end (LOG_LOST_BYTES). False: it is
 * another one. */
static bool read_lost(struct log_files *files, int fd)
{
    const uint64_t size = files->size;
    char note[128];
    uint64_t begin, length;

    if (files->request.what != LOG_OUTPUT || files->may_grow || size <= LOG_LOST_BYTES ||
        skip_hole(fd, 0, size) < size)
        return false;
    length = (uint64_t)snprintf(note, sizeof note,
                                "[... all output, %llu bytes, is lost: it could not be written to "
                                "the disk of the logs ...]\n",
                                (unsigned long long)(size - LOG_LOST_BYTES));
    begin = size - length;
    if (files->request.tail_lines > 0 || files->request.offset < begin)
        files->offset = begin;
    else
        files->offset = files->request.offset < size ? files->request.offset : size;
    length = size - files->offset;
    if (length > files->request.bytes_max)
        length = files->request.bytes_max;
    memcpy(files->bytes, note + (files->offset - begin), length);
    files->got = (ssize_t)length;
    files->run_count = length > 0 ? 1 : 0;
    files->runs[0] = (struct part_log_run){.bytes = (uint32_t)length, .is_error = true};
    return true;
}

/* Reads up to `byte_count` bytes of one piece, from the next offset outside a hole. If the middle
 * was cut out during the read, the bytes are zeros, and the read is repeated. */
static ssize_t read_piece(int fd, uint64_t *offset, uint64_t size, uint8_t *bytes,
                          size_t byte_count)
{
    for (;;) {
        *offset = skip_hole(fd, *offset, size);
        if (*offset >= size)
            return 0;
        size_t count = size - *offset < byte_count ? (size_t)(size - *offset) : byte_count;
        off_t hole = lseek(fd, (off_t)*offset, SEEK_HOLE);
        if (hole > (off_t)*offset && (uint64_t)hole - *offset < count)
            count = (size_t)((uint64_t)hole - *offset);
        ssize_t got = pread_all(fd, bytes, count, (off_t)*offset);
        if (got < 0)
            return got;
        if (skip_hole(fd, *offset, size) == *offset)
            return got;
    }
}

/* The offset at which the last `lines` lines of the first `size` bytes begin. Only lines after a
 * hole, and within TAIL_SCAN_BYTES_MAX of the end, are counted. */
static uint64_t tail_offset(int fd, uint64_t size, uint32_t lines)
{
    char bytes[SCAN_BYTES];
    off_t hole = lseek(fd, 0, SEEK_HOLE);
    uint64_t begin = hole > 0 && (uint64_t)hole < size ? skip_hole(fd, (uint64_t)hole, size) : 0;
    uint64_t at = size;
    uint32_t seen = 0;
    if (size - begin > TAIL_SCAN_BYTES_MAX)
        begin = size - TAIL_SCAN_BYTES_MAX;
    while (at > begin) {
        uint64_t from = at - begin > SCAN_BYTES ? at - SCAN_BYTES : begin;
        ssize_t got = pread_all(fd, bytes, (size_t)(at - from), (off_t)from);
        if (got != (ssize_t)(at - from))
            return at;
        for (uint64_t i = at; i > from; i--) {
            if (bytes[i - 1 - from] != '\n' || i == size)
                continue; /* the last line feed ends the last line */
            if (++seen == lines)
                return i;
        }
        at = from;
    }
    return begin;
}

/* Opens a file that a rank wrote into the folder of the job's user. -1: `*access` says why. */
static int open_rank_file(const char *path, enum log_access *access)
{
    enum foreign_file what;
    int fd = foreign_file_open(path, &what);

    switch (what) {
    case FOREIGN_READABLE:
        *access = LOG_READABLE;
        break;
    case FOREIGN_NO_FOLDER:
        *access = LOG_MISSING;
        break;
    case FOREIGN_NO_FILE:
        *access = LOG_NEVER_WRITTEN;
        break;
    case FOREIGN_UNREADABLE:
        *access = LOG_UNREADABLE;
        break;
    case FOREIGN_STRANGE:
        *access = LOG_FOREIGN;
        break;
    }
    return fd;
}

/* Opens a log, which is ours. */
static int open_log(const char *path, enum log_access *access, int *code)
{
    struct err err;
    int fd;

    switch (own_file_open(path, 1, O_RDONLY, 0, &fd, &err)) {
    case STATUS_OK:
        *access = LOG_READABLE;
        break;
    case STATUS_IO:
        *access = LOG_UNREADABLE;
        *code = err.code;
        break;
    default: /* it is not there, or not ours */
        *access = LOG_MISSING;
        break;
    }
    return fd;
}

/* Determines which of the bytes are stderr. If there are too many runs for one answer, the answer
 * gets fewer bytes. */
static void read_runs(struct log_files *files)
{
    uint32_t known;

    files->run_count = 0;
    if (files->request.what != LOG_OUTPUT || files->got <= 0)
        return;
    known = log_index_read(files->path, files->offset, (uint32_t)files->got, files->runs,
                           &files->run_count);
    if (known > 0)
        files->got = (ssize_t)known;
}

/* The folder may be one of release 0.1.0. */
static void find_path(struct log_files *files)
{
    const struct msg_log_read *request = &files->request;
    char name[64], log_dir[PATH_MAX], dir[PATH_MAX];

    if (request->what == LOG_OUTPUT)
        (void)snprintf(name, sizeof name, "g%u-rank%u.log", request->generation, request->rank);
    else
        (void)snprintf(name, sizeof name, "g%u-errors", request->generation);
    log_place_find(log_dir, &files->place, name);
    rundir_rank_dir(dir, log_dir, request->generation);
    if (request->what == LOG_METRICS)
        rundir_rank_metrics(files->path, dir, request->rank);
    else if (request->what == LOG_ERROR_FILE)
        rundir_rank_error(files->path, dir, request->rank);
    else
        rundir_rank_log(files->path, log_dir, request->generation, request->rank);
}

/* The user of a job can make a file with any size, at no cost. */
static void read_bytes(struct log_files *files, int fd)
{
    const struct msg_log_read *request = &files->request;
    const bool is_too_long = request->what != LOG_OUTPUT && files->size > RANK_FILE_BYTES_MAX;
    const uint64_t size = is_too_long ? RANK_FILE_BYTES_MAX : files->size;

    if (read_lost(files, fd))
        return;
    files->offset =
        request->tail_lines > 0 ? tail_offset(fd, size, request->tail_lines) : request->offset;
    files->got = read_piece(fd, &files->offset, size, files->bytes, request->bytes_max);
    if (files->got < 0) {
        files->code = errno;
        files->access = LOG_UNREADABLE;
        return;
    }
    if (is_too_long && files->offset >= size)
        files->access = LOG_TOO_LONG;
    read_runs(files);
}

void log_files_read(struct file_work *work)
{
    struct log_files *files = (struct log_files *)work;
    const struct msg_log_read *request = &files->request;
    struct stat stat = {0};
    int fd = -1;

    if (files->wants_watch && !file_work_is_late(work))
        add_watch(files); /* before the file is read, so that nothing is missed */
    file_work_at(work, FILE_DISK_LOGS, "open");
    find_path(files);
    files->access = LOG_MISSING;
    if (files->is_other) {
        fd = -1;
    } else if (request->what != LOG_OUTPUT) {
        fd = open_rank_file(files->path, &files->access);
        files->code = errno;
    } else {
        fd = open_log(files->path, &files->access, &files->code);
    }
    if (fd >= 0 && fstat(fd, &stat) != 0)
        files->access = LOG_MISSING;
    file_work_at(work, FILE_DISK_LOGS, "read");
    files->got = 0;
    files->run_count = 0;
    files->size = files->offset = 0;
    if (files->access == LOG_READABLE) {
        files->size = (uint64_t)stat.st_size;
        read_bytes(files, fd);
    }
    if (fd >= 0)
        close(fd);
    if (files->wd >= 0 && file_work_is_late(work)) {
        unwatch(files->watches, files->wd); /* nobody takes it */
        files->wd = -1;
    }
}

static void log_files_unwatch(struct file_work *work)
{
    struct log_files *files = (struct log_files *)work;

    file_work_at(work, FILE_DISK_LOGS, "open");
    unwatch(files->watches, files->wd);
    files->wd = -1;
}

static void drop(struct file_work *work)
{
    struct log_files *files = (struct log_files *)work;

    log_watches_drop(files->watches);
    free(files);
}

struct log_files *log_files_new(struct log_watches *watches, void *owner)
{
    struct log_files *files = calloc(1, sizeof *files);

    if (files == NULL)
        return NULL;
    files->work.lane = FILE_LANE_LOGS;
    files->work.run = log_files_read;
    files->work.drop = drop;
    files->owner = owner;
    files->wd = -1;
    files->watches = watches != NULL ? keep(watches) : NULL;
    return files;
}

struct log_files *log_files_new_unwatch(struct log_watches *watches, int wd)
{
    struct log_files *files = log_files_new(watches, NULL);

    if (files == NULL)
        return NULL;
    files->work.run = log_files_unwatch;
    files->wd = wd;
    return files;
}
