/* log_read: bytes of one rank's log, from where the reader stands. A reader that has all there is
 * waits here, watching the job's folder, until there is more, the log is final, or its time is
 * over. A log is final once its generation has no process left on this node. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcherd/node_state.h"

#define SCAN_BYTES 16384

struct log_wait {
    struct node *node;
    struct log_wait *next;
    struct msg_log_read request;
    uv_timer_t timer;
    uv_fs_event_t watch;
    uint32_t handles_open;
    bool done;
};

static void answer(struct node *node, uint64_t request_id, uint64_t offset, struct msg_bytes bytes,
                   bool is_final, const char *problem)
{
    struct msg msg = {.type = MSG_TYPE_LOG_DATA};
    msg.log_data = (struct msg_log_data){.request_id = request_id,
                                         .offset = offset,
                                         .bytes = bytes,
                                         .is_final = is_final,
                                         .problem = problem};
    node_send_server(node, &msg);
}

static void make_path(const struct node *node, const struct msg_log_read *request,
                      char path[PATH_MAX])
{
    char dir[PATH_MAX];
    rundir_log_dir(dir, node->options.state_dir, node->core.cluster, request->job_id);
    rundir_rank_log(path, dir, request->generation, request->rank);
}

/* More may still be written: its shim is known, has that rank, and has not ended. */
static bool may_grow(const struct node *node, const struct msg_log_read *request)
{
    const struct launcher_shim *shim =
        launcher_shim(&node->core, request->job_id, request->generation);
    return shim != NULL && shim->phase != SHIM_ENDED && request->rank >= shim->rank_base &&
           request->rank - shim->rank_base < shim->local_count;
}

/* The offset at which the last `lines` lines of the first `size` bytes begin. */
static uint64_t tail_offset(int fd, uint64_t size, uint32_t lines)
{
    char bytes[SCAN_BYTES];
    uint64_t at = size;
    uint32_t seen = 0;
    while (at > 0) {
        uint64_t from = at > SCAN_BYTES ? at - SCAN_BYTES : 0;
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
    return 0;
}

/* False: there is nothing to say yet. `must`: say so then. */
static bool try_answer(struct node *node, const struct msg_log_read *request, bool must)
{
    char path[PATH_MAX], text[REASON_BYTES_MAX];
    static uint8_t bytes[LOG_CHUNK_BYTES_MAX]; /* one thread, one loop */
    struct stat stat;
    bool grows = may_grow(node, request); /* before the size: what ended has its whole size */

    make_path(node, request, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat) != 0) {
        if (grows && !must)
            return false;
        (void)snprintf(text, sizeof text, "node %s has no log of job %llu, generation %u, rank %u",
                       node->options.core.name, (unsigned long long)request->job_id,
                       request->generation, request->rank);
        answer(node, request->request_id, 0, (struct msg_bytes){0}, !grows, grows ? "" : text);
        return true;
    }
    uint64_t size = (uint64_t)stat.st_size, offset = request->offset;
    if (request->tail_lines > 0)
        offset = tail_offset(fd, size, request->tail_lines);
    size_t want = offset < size ? (size_t)(size - offset) : 0;
    if (want > request->bytes_max)
        want = request->bytes_max;
    ssize_t got = want == 0 ? 0 : pread(fd, bytes, want, (off_t)offset);
    close(fd);
    if (got <= 0 && grows && !must)
        return false;
    uint32_t count = got > 0 ? (uint32_t)got : 0;
    answer(node, request->request_id, offset, (struct msg_bytes){.items = bytes, .count = count},
           !grows && offset + count >= size, "");
    return true;
}

static void on_wait_closed(uv_handle_t *handle)
{
    struct log_wait *wait = handle->data;
    if (--wait->handles_open == 0)
        free(wait);
}

static void end_wait(struct log_wait *wait)
{
    struct log_wait **at = &wait->node->log_waits;
    while (*at != wait)
        at = &(*at)->next;
    *at = wait->next;
    uv_close((uv_handle_t *)&wait->timer, on_wait_closed);
    uv_close((uv_handle_t *)&wait->watch, on_wait_closed);
}

static void on_wait_timer(uv_timer_t *timer)
{
    struct log_wait *wait = timer->data;
    try_answer(wait->node, &wait->request, true);
    end_wait(wait);
}

static void on_changed(uv_fs_event_t *watch, const char *name, int events, int status)
{
    struct log_wait *wait = watch->data;
    (void)name;
    (void)events;
    (void)status;
    if (try_answer(wait->node, &wait->request, false))
        end_wait(wait);
}

static void begin_wait(struct node *node, const struct msg_log_read *request)
{
    char dir[PATH_MAX];
    struct log_wait *wait = calloc(1, sizeof *wait);
    if (wait == NULL) {
        try_answer(node, request, true);
        return;
    }
    wait->node = node;
    wait->request = *request;
    wait->handles_open = 2;
    uv_timer_init(node->loop, &wait->timer);
    uv_fs_event_init(node->loop, &wait->watch);
    wait->timer.data = wait->watch.data = wait;
    wait->next = node->log_waits;
    node->log_waits = wait;
    rundir_log_dir(dir, node->options.state_dir, node->core.cluster, request->job_id);
    uv_update_time(node->loop);
    uv_timer_start(&wait->timer, on_wait_timer, request->wait_us / 1000, 0);
    uv_fs_event_start(&wait->watch, on_changed, dir, 0); /* fails: then the timer answers */
    if (try_answer(node, request, false))
        end_wait(wait); /* written between the first look and the watch */
}

void node_log_read(struct node *node, const struct msg_log_read *request)
{
    if (!try_answer(node, request, request->wait_us == 0))
        begin_wait(node, request);
}

void node_logs_check(struct node *node)
{
    for (struct log_wait *wait = node->log_waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        if (!may_grow(node, &wait->request) && try_answer(node, &wait->request, false))
            end_wait(wait);
    }
}

void node_logs_close(struct node *node)
{
    while (node->log_waits != NULL)
        end_wait(node->log_waits);
}
