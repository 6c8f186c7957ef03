#include "launcherd/node/node_logs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "launcherd/process/foreign_file.h"
#include "launcherd/process/log_index.h"
#include "launcherd/process/rundir.h"

enum {
    SCAN_BYTES = 16384,
    TAIL_SCAN_BYTES_MAX = 1 << 20 /* lines are only sought in this much before the end */
};

/* A request, from its arrival to its answer. */
struct log_wait {
    struct node_logs *logs;
    struct log_wait *next;
    struct msg_log_read request;
    uv_timer_t timer;
    uv_fs_event_t watch;
    uint32_t handles_open;     /* 0 until the first look has found nothing */
    bool is_watched;           /* the watch is on the file's own folder */
    bool must_answer;          /* its time is over: answer even without anything new */
    bool is_wanted;            /* a look is to be made */
    struct log_reader *reader; /* the one that looks now */
};

void node_logs_init(struct node_logs *logs, const struct node_host *host)
{
    *logs = (struct node_logs){.host = host};
}

static void answer(struct node_logs *logs, struct msg_log_data data)
{
    assert(data.problem != NULL && data.bytes.count <= LOG_CHUNK_BYTES_MAX);
    struct msg msg = {.type = MSG_TYPE_LOG_DATA, .log_data = data};
    logs->host->send_server(logs->host->owner, &msg);
}

/* The folder that has the file of a request. */
static void make_dir(const struct node_logs *logs, const struct msg_log_read *request,
                     char dir[PATH_MAX])
{
    char log_dir[PATH_MAX];
    rundir_log_dir(log_dir, logs->host->logs_dir, logs->host->core->cluster, request->job_id);
    if (request->what == LOG_OUTPUT)
        rundir_join(dir, log_dir, ".");
    else
        rundir_rank_dir(dir, log_dir, request->generation);
}

static void make_path(const struct node_logs *logs, const struct msg_log_read *request,
                      char path[PATH_MAX])
{
    char dir[PATH_MAX];
    make_dir(logs, request, dir);
    if (request->what == LOG_METRICS)
        rundir_rank_metrics(path, dir, request->rank);
    else if (request->what == LOG_ERROR_FILE)
        rundir_rank_error(path, dir, request->rank);
    else
        rundir_rank_log(path, dir, request->generation, request->rank);
}

/* Whether more may still be written: the shim is known, has that rank, and has not ended. */
static bool may_grow(const struct node_logs *logs, const struct msg_log_read *request)
{
    const struct launcher_shim *shim =
        launcher_find(logs->host->core, request->job_id, request->generation);
    return shim != NULL && shim->phase != SHIM_ENDED && request->rank >= shim->rank_base &&
           request->rank - shim->rank_base < shim->local_count;
}

/* -- in a thread of the pool -- */

/* The next offset, from `offset` on, that is outside the hole of a log whose middle was cut out
 * (shim/log_file.h). */
static uint64_t skip_hole(int fd, uint64_t offset, uint64_t size)
{
    off_t data = offset < size ? lseek(fd, (off_t)offset, SEEK_DATA) : -1;
    return data > (off_t)offset ? (uint64_t)data : offset;
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
        ssize_t got = pread(fd, bytes, count, (off_t)*offset);
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
        ssize_t got = pread(fd, bytes, (size_t)(at - from), (off_t)from);
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
    case FOREIGN_STRANGE:
        *access = LOG_FOREIGN;
        break;
    }
    return fd;
}

/* Determines which of the bytes are stderr. If there are too many runs for one answer, the answer
 * gets fewer bytes. */
static void read_runs(struct log_reader *reader)
{
    uint32_t known;

    reader->run_count = 0;
    if (reader->request.what != LOG_OUTPUT || reader->got <= 0)
        return;
    known = log_index_read(reader->path, reader->offset, (uint32_t)reader->got, reader->runs,
                           &reader->run_count);
    if (known > 0)
        reader->got = (ssize_t)known;
}

static void on_work(uv_work_t *work)
{
    struct log_reader *reader = work->data;
    const struct msg_log_read *request = &reader->request;
    struct stat stat = {0};
    struct err none;
    int fd;

    if (request->what != LOG_OUTPUT) {
        fd = open_rank_file(reader->path, &reader->access);
    } else {
        (void)own_file_open(reader->path, 1, O_RDONLY, 0, &fd, &none);
        reader->access = fd < 0 ? LOG_MISSING : LOG_READABLE;
    }
    if (fd >= 0 && fstat(fd, &stat) != 0)
        reader->access = LOG_MISSING;
    reader->got = 0;
    reader->run_count = 0;
    reader->size = reader->offset = 0;
    if (reader->access == LOG_READABLE) {
        reader->size = (uint64_t)stat.st_size;
        reader->offset = request->tail_lines > 0
                             ? tail_offset(fd, reader->size, request->tail_lines)
                             : request->offset;
        reader->got =
            read_piece(fd, &reader->offset, reader->size, reader->bytes, request->bytes_max);
        read_runs(reader);
    }
    if (fd >= 0)
        close(fd);
}

/* -- in the loop -- */

static void look(struct log_wait *wait);

static void on_wait_closed(uv_handle_t *handle)
{
    struct log_wait *wait = handle->data;
    assert(wait->handles_open > 0);
    if (--wait->handles_open == 0)
        free(wait);
}

static void end_wait(struct log_wait *wait)
{
    struct log_wait **at = &wait->logs->waits;
    while (*at != wait)
        at = &(*at)->next;
    *at = wait->next;
    if (wait->reader != NULL)
        wait->reader->wait = NULL;
    if (wait->handles_open == 0) {
        free(wait);
        return;
    }
    uv_close((uv_handle_t *)&wait->timer, on_wait_closed);
    uv_close((uv_handle_t *)&wait->watch, on_wait_closed);
}

/* False: there is nothing to answer yet. */
static bool try_answer(struct node_logs *logs, const struct log_reader *reader, bool must)
{
    uint32_t count = reader->got > 0 ? (uint32_t)reader->got : 0;
    struct msg_bytes bytes = {.items = reader->bytes, .count = count};
    const struct msg_log_read *request = &reader->request;
    bool may_come = reader->may_grow && reader->access != LOG_FOREIGN;
    static const char *const names[] = {
        [LOG_OUTPUT] = "log", [LOG_METRICS] = "metrics", [LOG_ERROR_FILE] = "error file"};
    char text[REASON_BYTES_MAX];

    assert(request->what < sizeof names / sizeof names[0]);
    if (count == 0 && may_come && !must)
        return false;
    if (reader->access == LOG_READABLE || reader->access == LOG_NEVER_WRITTEN) {
        answer(logs, (struct msg_log_data){.request_id = request->request_id,
                                           .offset = reader->offset,
                                           .bytes = bytes,
                                           .is_final = !reader->may_grow &&
                                                       reader->offset + count >= reader->size,
                                           .problem = "",
                                           .size = reader->size,
                                           .runs = {reader->runs, reader->run_count}});
        return true;
    }
    (void)snprintf(
        text, sizeof text, "node %s has no %s of job %llu, generation %u, rank %u%s",
        logs->host->core->options.name, names[request->what], (unsigned long long)request->job_id,
        request->generation, request->rank,
        reader->access == LOG_FOREIGN ? ": what is there is no plain file of the job's user" : "");
    answer(logs, (struct msg_log_data){.request_id = request->request_id,
                                       .is_final = !may_come,
                                       .problem = may_come ? "" : text});
    return true;
}

static void on_wait_timer(uv_timer_t *timer)
{
    struct log_wait *wait = timer->data;
    wait->must_answer = true;
    look(wait);
}

static void on_changed(uv_fs_event_t *watch, const char *name, int events, int status)
{
    (void)name;
    (void)events;
    (void)status;
    look(watch->data);
}

/* Watches the folder of the file. While that folder does not exist, watches the one in which it
 * will be made. */
static void watch(struct log_wait *wait)
{
    const struct node_logs *logs = wait->logs;
    char dir[PATH_MAX];

    (void)uv_fs_event_stop(&wait->watch);
    make_dir(logs, &wait->request, dir);
    wait->is_watched = uv_fs_event_start(&wait->watch, on_changed, dir, 0) == 0;
    if (wait->is_watched)
        return;
    rundir_log_dir(dir, logs->host->logs_dir, logs->host->core->cluster, wait->request.job_id);
    uv_fs_event_start(&wait->watch, on_changed, dir, 0); /* if this fails, the timer answers */
}

static void begin_wait(struct log_wait *wait)
{
    struct node_logs *logs = wait->logs;

    wait->handles_open = 2;
    uv_timer_init(logs->host->loop, &wait->timer);
    uv_fs_event_init(logs->host->loop, &wait->watch);
    wait->timer.data = wait->watch.data = wait;
    uv_update_time(logs->host->loop);
    uv_timer_start(&wait->timer, on_wait_timer, wait->request.wait_us / 1000, 0);
    watch(wait);
}

static void on_worked(uv_work_t *work, int status)
{
    struct log_reader *reader = work->data;
    struct node_logs *logs = reader->logs;
    struct log_wait *wait = reader->wait, *next;

    (void)status; /* only dropped requests are cancelled */
    if (wait != NULL) {
        wait->reader = NULL;
        if (try_answer(logs, reader, wait->must_answer)) {
            end_wait(wait);
        } else if (wait->handles_open == 0) {
            begin_wait(wait);
            wait->is_wanted = true; /* for what was written before the watch started */
        } else if (!wait->is_watched) {
            watch(wait);
            wait->is_wanted = wait->is_watched;
        }
    }
    reader->is_busy = false;
    for (wait = logs->waits; wait != NULL; wait = next) {
        next = wait->next;
        if (wait->is_wanted)
            look(wait);
    }
}

static struct log_reader *idle_reader(struct node_logs *logs)
{
    for (uint32_t i = 0; i < NODE_LOGS_READERS; i++)
        if (!logs->readers[i].is_busy)
            return &logs->readers[i];
    return NULL;
}

/* Starts a thread that looks at the file, now or when one is free. */
static void look(struct log_wait *wait)
{
    struct node_logs *logs = wait->logs;
    struct log_reader *reader = wait->reader == NULL ? idle_reader(logs) : NULL;
    int rc;

    wait->is_wanted = reader == NULL;
    if (reader == NULL)
        return;
    reader->logs = logs;
    reader->wait = wait;
    reader->request = wait->request;
    reader->may_grow = may_grow(logs, &wait->request);
    make_path(logs, &wait->request, reader->path);
    reader->is_busy = true;
    reader->work.data = reader;
    wait->reader = reader;
    rc = uv_queue_work(logs->host->loop, &reader->work, on_work, on_worked);
    assert(rc == 0); /* fails without a function only */
    (void)rc;
}

void node_logs_read(struct node_logs *logs, const struct msg_log_read *request)
{
    struct log_wait *wait = calloc(1, sizeof *wait), **at = &logs->waits;

    if (wait == NULL) {
        log_line(LOG_WARNING, node_about(logs->host), "no memory to read a log");
        answer(logs, (struct msg_log_data){.request_id = request->request_id,
                                           .offset = request->offset,
                                           .problem = ""});
        return;
    }
    wait->logs = logs;
    wait->request = *request;
    wait->must_answer = request->wait_us == 0;
    while (*at != NULL)
        at = &(*at)->next;
    *at = wait;
    look(wait);
}

void node_logs_check(struct node_logs *logs)
{
    struct log_wait *next;

    for (struct log_wait *wait = logs->waits; wait != NULL; wait = next) {
        next = wait->next;
        if (!may_grow(logs, &wait->request))
            look(wait);
    }
}

void node_logs_close(struct node_logs *logs)
{
    struct log_wait *next;

    for (uint32_t i = 0; i < NODE_LOGS_READERS; i++)
        if (logs->readers[i].is_busy)
            (void)uv_cancel(
                (uv_req_t *)&logs->readers[i].work); /* unless a thread has it already */
    for (struct log_wait *wait = logs->waits; wait != NULL; wait = next) {
        next = wait->next;
        end_wait(wait);
    }
}
