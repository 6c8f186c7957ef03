#include "worker/metrics/board.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "worker/metrics/append.h"

#define FILE_PREFIX "events.out.tfevents."
#define FILES_A_SECOND_MAX 1000u
#define PATH_BYTES 1024u

struct board {
    struct append_file file;
    int folder_fd;       /* locked while we write */
    uint64_t start_step; /* 0: it begins nothing */
    bool has_older;      /* event files of earlier runs */
    bool has_head;       /* the first records are in the file */
};

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The folder and those above it. */
static enum status make_folders(const char *folder, struct err *err)
{
    char path[PATH_BYTES];

    if ((size_t)snprintf(path, sizeof path, "%s", folder) >= sizeof path)
        return err_set(err, STATUS_TOO_BIG, 0, "the path is over %zu bytes", sizeof path - 1);
    for (char *at = path + 1; *at != '\0'; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        (void)mkdir(path, 0755); /* the last one tells */
        *at = '/';
    }
    if (mkdir(path, 0755) == 0 || errno == EEXIST)
        return STATUS_OK;
    return err_set(err, STATUS_IO, errno, "cannot make the folder: %s", strerror(errno));
}

static enum status lock_folder(struct board *board, const struct board_options *options,
                               struct err *err)
{
    board->folder_fd = open(options->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (board->folder_fd < 0)
        return err_set(err, STATUS_IO, errno, "cannot open the folder: %s", strerror(errno));
    if (flock(board->folder_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK ||
        options->may_share)
        return STATUS_OK; /* a file system without locks is no reason not to train */
    return err_set(err, STATUS_CONFLICT, 0,
                   "another process writes there, and TensorBoard shows one writer a folder: give "
                   "each training its own");
}

/* The time in the newest name of an event file in the folder, in seconds; 0: there is none. Readers
 * take files in the order of their names. */
static uint64_t newest(int folder_fd)
{
    const int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    uint64_t found = 0;

    if (folder == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return 0;
    }
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        uint64_t time_s;

        if (strncmp(entry->d_name, FILE_PREFIX, sizeof FILE_PREFIX - 1) != 0)
            continue;
        time_s = strtoull(entry->d_name + sizeof FILE_PREFIX - 1, NULL, 10);
        if (time_s > found && time_s < 9999999999u) /* a name of ours has ten digits */
            found = time_s;
    }
    (void)closedir(folder);
    return found;
}

/* events.out.tfevents.<seconds>.<host>.<pid>.0, later than all that are there. */
static enum status open_file(struct board *board, const char *folder, struct err *err)
{
    const uint64_t last_s = newest(board->folder_fd);
    uint64_t time_s = (uint64_t)now_s();
    char host[256] = "", path[PATH_BYTES];
    enum status status = STATUS_CONFLICT;

    board->has_older = last_s > 0;
    time_s = time_s > last_s ? time_s : last_s + 1;
    (void)gethostname(host, sizeof host - 1);
    for (uint32_t i = 0; status == STATUS_CONFLICT && i < FILES_A_SECOND_MAX; i++) {
        const int bytes = snprintf(path, sizeof path, "%s/" FILE_PREFIX "%010" PRIu64 ".%s.%d.0",
                                   folder, time_s + i, host, (int)getpid());

        if (bytes < 0 || (size_t)bytes >= sizeof path)
            return err_set(err, STATUS_TOO_BIG, 0, "the path is over %zu bytes", sizeof path - 1);
        status = append_open(&board->file, path, APPEND_NEW, err);
    }
    return status;
}

enum status board_open(struct board **out, const struct board_options *options, struct err *err)
{
    struct board *board = calloc(1, sizeof *board);
    enum status status;

    *out = board;
    if (board == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the run directory's writer");
    board->folder_fd = -1;
    board->file.fd = -1;
    board->start_step = options->is_apart ? 0 : (uint64_t)options->after_step + 1;
    status = make_folders(options->folder, err);
    if (status == STATUS_OK)
        status = lock_folder(board, options, err);
    if (status == STATUS_OK)
        status = open_file(board, options->folder, err);
    if (status != STATUS_OK)
        board_close(out);
    return status;
}

enum status board_write(struct board *board, uint64_t step, const struct event_value *values,
                        size_t count, struct err *err)
{
    const double time_s = now_s();
    struct buf buf = {0};
    enum status status;

    if (board->file.is_torn)
        return err_set(err, STATUS_IO, 0, "the file ends inside a record, nothing can follow");
    if (!board->has_head) {
        event_put_version(&buf, time_s);
        if (board->start_step > 1 || (board->start_step == 1 && board->has_older))
            event_put_start(&buf, time_s, board->start_step);
    }
    if (count > 0)
        event_put_values(&buf, time_s, step, values, count);
    status = buf.failed ? err_set(err, STATUS_MEMORY, 0, "no memory for a record")
                        : append_write(&board->file, buf.bytes, buf.byte_count, err);
    board->has_head = board->has_head || status == STATUS_OK;
    buf_free(&buf);
    return status;
}

void board_close(struct board **out)
{
    struct board *board = *out;

    if (board == NULL)
        return;
    append_close(&board->file);
    if (board->folder_fd >= 0)
        (void)close(board->folder_fd);
    free(board);
    *out = NULL;
}
