#include "launcherd/node/node_logs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcherd/process/rundir.h"

#define SCAN_BYTES 16384

struct log_wait {
    struct node_logs *logs;
    struct log_wait *next;
    struct msg_log_read request;
    uv_timer_t timer;
    uv_fs_event_t watch;
    uint32_t handles_open;
    bool done;
};

void node_logs_init(struct node_logs *logs, const struct node_host *host)
{
    *logs = (struct node_logs){.host = host};
}

static void answer(struct node_logs *logs, uint64_t request_id, uint64_t offset,
                   struct msg_bytes bytes, bool is_final, const char *problem)
{
    assert(problem != NULL && bytes.count <= LOG_CHUNK_BYTES_MAX);
    struct msg msg = {.type = MSG_TYPE_LOG_DATA};
    msg.log_data = (struct msg_log_data){.request_id = request_id,
                                         .offset = offset,
                                         .bytes = bytes,
                                         .is_final = is_final,
                                         .problem = problem};
    logs->host->send_server(logs->host->owner, &msg);
}

static void make_path(const struct node_logs *logs, const struct msg_log_read *request,
                      char path[PATH_MAX])
{
    char dir[PATH_MAX];
    rundir_log_dir(dir, logs->host->logs_dir, logs->host->core->cluster, request->job_id);
    rundir_rank_log(path, dir, request->generation, request->rank);
}

/* More may still be written: its shim is known, has that rank, and has not ended. */
static bool may_grow(const struct node_logs *logs, const struct msg_log_read *request)
{
    const struct launcher_shim *shim =
        launcher_find(logs->host->core, request->job_id, request->generation);
    return shim != NULL && shim->phase != SHIM_ENDED && request->rank >= shim->rank_base &&
           request->rank - shim->rank_base < shim->local_count;
}

/* The next offset from `offset` on that is not in the hole of a log whose middle was cut
 * (shim/output.h). */
static uint64_t skip_hole(int fd, uint64_t offset, uint64_t size)
{
    off_t data = offset < size ? lseek(fd, (off_t)offset, SEEK_DATA) : -1;
    return data > (off_t)offset ? (uint64_t)data : offset;
}

/* Reads up to `byte_count` bytes of one piece, at the next offset that is not in a hole. A read
 * that met a cut gave zeros: it is done again. */
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

/* The offset at which the last `lines` lines of the first `size` bytes begin; those before a cut do
 * not count. */
static uint64_t tail_offset(int fd, uint64_t size, uint32_t lines)
{
    char bytes[SCAN_BYTES];
    off_t hole = lseek(fd, 0, SEEK_HOLE);
    uint64_t begin = hole > 0 && (uint64_t)hole < size ? skip_hole(fd, (uint64_t)hole, size) : 0;
    uint64_t at = size;
    uint32_t seen = 0;
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

/* False: there is nothing to answer yet. `must`: answer all the same. */
static bool try_answer(struct node_logs *logs, const struct msg_log_read *request, bool must)
{
    char path[PATH_MAX], text[REASON_BYTES_MAX];
    static uint8_t bytes[LOG_CHUNK_BYTES_MAX]; /* one thread, one loop */
    struct stat stat;
    bool grows = may_grow(
        logs, request); /* read before the size: the log of an ended rank no longer grows */

    make_path(logs, request, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat) != 0) {
        if (grows && !must)
            return false;
        (void)snprintf(text, sizeof text, "node %s has no log of job %llu, generation %u, rank %u",
                       logs->host->core->options.name, (unsigned long long)request->job_id,
                       request->generation, request->rank);
        answer(logs, request->request_id, 0, (struct msg_bytes){0}, !grows, grows ? "" : text);
        return true;
    }
    uint64_t size = (uint64_t)stat.st_size, offset = request->offset;
    if (request->tail_lines > 0)
        offset = tail_offset(fd, size, request->tail_lines);
    ssize_t got = read_piece(fd, &offset, size, bytes, request->bytes_max);
    close(fd);
    if (got <= 0 && grows && !must)
        return false;
    uint32_t count = got > 0 ? (uint32_t)got : 0;
    answer(logs, request->request_id, offset, (struct msg_bytes){.items = bytes, .count = count},
           !grows && offset + count >= size, "");
    return true;
}

static void on_wait_closed(uv_handle_t *handle)
{
    struct log_wait *wait = handle->data;
    assert(wait->handles_open > 0);
    if (--wait->handles_open == 0)
        free(wait);
}

static void end_wait(struct log_wait *wait)
{
    assert(wait->handles_open == 2);
    struct log_wait **at = &wait->logs->waits;
    while (*at != wait)
        at = &(*at)->next;
    *at = wait->next;
    uv_close((uv_handle_t *)&wait->timer, on_wait_closed);
    uv_close((uv_handle_t *)&wait->watch, on_wait_closed);
}

static void on_wait_timer(uv_timer_t *timer)
{
    struct log_wait *wait = timer->data;
    try_answer(wait->logs, &wait->request, true);
    end_wait(wait);
}

static void on_changed(uv_fs_event_t *watch, const char *name, int events, int status)
{
    struct log_wait *wait = watch->data;
    (void)name;
    (void)events;
    (void)status;
    if (try_answer(wait->logs, &wait->request, false))
        end_wait(wait);
}

static void begin_wait(struct node_logs *logs, const struct msg_log_read *request)
{
    char dir[PATH_MAX];
    struct log_wait *wait = calloc(1, sizeof *wait);
    if (wait == NULL) {
        try_answer(logs, request, true);
        return;
    }
    wait->logs = logs;
    wait->request = *request;
    wait->handles_open = 2;
    uv_timer_init(logs->host->loop, &wait->timer);
    uv_fs_event_init(logs->host->loop, &wait->watch);
    wait->timer.data = wait->watch.data = wait;
    wait->next = logs->waits;
    logs->waits = wait;
    rundir_log_dir(dir, logs->host->logs_dir, logs->host->core->cluster, request->job_id);
    uv_update_time(logs->host->loop);
    uv_timer_start(&wait->timer, on_wait_timer, request->wait_us / 1000, 0);
    uv_fs_event_start(&wait->watch, on_changed, dir, 0); /* if this fails, the timer answers */
    if (try_answer(logs, request, false))
        end_wait(wait); /* written between the first look and the watch */
}

void node_logs_read(struct node_logs *logs, const struct msg_log_read *request)
{
    if (!try_answer(logs, request, request->wait_us == 0))
        begin_wait(logs, request);
}

void node_logs_check(struct node_logs *logs)
{
    for (struct log_wait *wait = logs->waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        if (!may_grow(logs, &wait->request) && try_answer(logs, &wait->request, false))
            end_wait(wait);
    }
}

void node_logs_close(struct node_logs *logs)
{
    while (logs->waits != NULL)
        end_wait(logs->waits);
}
