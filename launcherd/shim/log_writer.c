#include "launcherd/shim/log_writer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/thread_start.h"
#include "common/log.h"
#include "common/io/write_all.h"

struct log_item {
    struct log_item *next;
    struct log_file *file; /* NULL: a line for stderr, or work */
    bool closes, is_error;
    int64_t at_ms;
    void (*work)(void *argument); /* NULL: none */
    void *argument;
    size_t byte_count;
    char bytes[];
};

static struct log_writer
    *_Atomic log_lines; /* the writer for the lines of log_line; NULL: none is open */

/* -- the thread -------------------------------------------------------------------------------- */

static void carry_out(const struct log_item *item)
{
    if (item->work != NULL) {
        item->work(item->argument);
        return;
    }
    if (item->closes) {
        log_file_close(item->file);
        return;
    }
    if (item->file != NULL) {
        log_file_write(item->file, &(struct log_piece){.is_error = item->is_error,
                                                       .at_ms = item->at_ms,
                                                       .bytes = item->bytes,
                                                       .byte_count = item->byte_count});
        return;
    }
    /* There is no other place to report a failure. */
    (void)write_all(STDERR_FILENO, item->bytes, item->byte_count);
}

/* An item stays in the queue until it is written, so an empty queue means that all is written. */
static void *run(void *argument)
{
    struct log_writer *writer = argument;

    (void)pthread_mutex_lock(&writer->lock);
    for (;;) {
        struct log_item *item = writer->first;
        if (item == NULL && writer->ending)
            break;
        if (item == NULL) {
            (void)pthread_cond_wait(&writer->changed, &writer->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&writer->lock);
        carry_out(item);
        (void)pthread_mutex_lock(&writer->lock);
        writer->first = item->next;
        if (writer->first == NULL)
            writer->last = NULL;
        writer->queued_bytes -= item->byte_count;
        writer->done_count++;
        free(item);
        if (writer->notice_wanted)
            (void)uv_async_send(&writer->async);
    }
    writer->ended = true;
    (void)pthread_cond_broadcast(&writer->changed);
    (void)pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* -- the loop ---------------------------------------------------------------------------------- */

/* Takes ownership of the item. False: it is freed, because the queue is full. */
static bool enqueue(struct log_writer *writer, struct log_item *item)
{
    const size_t byte_count = item->byte_count;
    bool fits;

    (void)pthread_mutex_lock(&writer->lock);
    fits = byte_count == 0 ||
           writer->queued_bytes + byte_count <= LOG_WRITER_BYTES_MAX + LOG_WRITER_RESERVE;
    if (fits) {
        if (writer->last != NULL)
            writer->last->next = item;
        else
            writer->first = item;
        writer->last = item;
        writer->queued_bytes += byte_count;
        (void)pthread_cond_signal(&writer->changed);
    }
    (void)pthread_mutex_unlock(&writer->lock);
    if (!fits)
        free(item);
    return fits;
}

static bool add(struct log_writer *writer, struct log_file *file, bool closes,
                const struct log_piece *piece)
{
    const size_t byte_count = piece->byte_count;
    struct log_item *item = malloc(sizeof *item + byte_count);

    if (item == NULL)
        return false;
    *item = (struct log_item){.file = file,
                              .closes = closes,
                              .is_error = piece->is_error,
                              .at_ms = piece->at_ms,
                              .byte_count = byte_count};
    if (byte_count > 0)
        memcpy(item->bytes, piece->bytes, byte_count);
    return enqueue(writer, item);
}

/* Queues a line of log_line, also from the writer's own thread. If there is no room the line is
 * lost: there is no other place for it. */
static void add_line(const char *bytes, size_t byte_count)
{
    struct log_writer *writer = log_lines; /* the thread may log during log_writer_close */

    if (writer != NULL)
        (void)add(writer, NULL, false,
                  &(struct log_piece){.bytes = bytes, .byte_count = byte_count});
}

struct state {
    size_t queued_bytes;
    uint64_t done_count;
    bool is_empty;
};

static struct state look(struct log_writer *writer)
{
    struct state state;

    (void)pthread_mutex_lock(&writer->lock);
    state = (struct state){.queued_bytes = writer->queued_bytes,
                           .done_count = writer->done_count,
                           .is_empty = writer->first == NULL};
    (void)pthread_mutex_unlock(&writer->lock);
    return state;
}

/* If `is_wanted`, on_async is called after items are done (once for several, if they are done
 * quickly). */
static void want_notice(struct log_writer *writer, bool is_wanted)
{
    (void)pthread_mutex_lock(&writer->lock);
    writer->notice_wanted = is_wanted;
    (void)pthread_mutex_unlock(&writer->lock);
}

static void give_room(struct log_writer *writer)
{
    writer->is_waiting = false;
    writer->on_room(writer->owner);
}

static void end_flush(struct log_writer *writer)
{
    writer->is_flushing = false;
    writer->on_flushed(writer->owner, look(writer).queued_bytes);
}

static void rest_if_nobody_waits(struct log_writer *writer)
{
    if (!writer->is_open || writer->is_waiting || writer->is_flushing || writer->is_stuck)
        return;
    want_notice(writer, false);
    (void)uv_timer_stop(&writer->timer);
}

static void on_async(uv_async_t *async)
{
    struct log_writer *writer = async->data;
    struct state state = look(writer);

    if (!writer->is_open)
        return;
    if (writer->is_stuck && state.done_count != writer->seen_count)
        writer->is_stuck = false;
    if (writer->is_waiting && state.queued_bytes <= LOG_WRITER_BYTES_MAX / 2)
        give_room(writer);
    if (writer->is_flushing && state.is_empty)
        end_flush(writer);
    rest_if_nobody_waits(writer);
}

static void become_stuck(struct log_writer *writer)
{
    writer->is_stuck = true;
    log_line(LOG_ERROR, LOG_ABOUT_NONE,
             "the disk of the logs has taken nothing for %u s: output that does not fit into "
             "%u MiB is lost until it does",
             LOG_WRITER_STUCK_MS / 1000, LOG_WRITER_BYTES_MAX >> 20);
    give_room(writer);
}

static void on_timer(uv_timer_t *timer);

static void go_on_flushing(struct log_writer *writer, uint64_t done_count)
{
    if (log_patience_ends(&writer->patience, done_count))
        end_flush(writer);
    else
        (void)uv_timer_start(&writer->timer, on_timer, LOG_LOOK_MS, LOG_WRITER_STUCK_MS);
}

static void on_timer(uv_timer_t *timer)
{
    struct log_writer *writer = timer->data;
    struct state state = look(writer);

    if (writer->is_waiting && state.done_count == writer->seen_count)
        become_stuck(writer);
    if (!writer->is_stuck)
        writer->seen_count = state.done_count;
    if (writer->is_flushing)
        go_on_flushing(writer, state.done_count);
    rest_if_nobody_waits(writer);
}

/* Has on_async called after items are done, and on_timer within `timeout_ms`. */
static void watch(struct log_writer *writer, uint64_t timeout_ms)
{
    want_notice(writer, true);
    if (uv_is_active((uv_handle_t *)&writer->timer) &&
        uv_timer_get_due_in(&writer->timer) <= timeout_ms)
        return;
    writer->seen_count = look(writer).done_count;
    (void)uv_timer_start(&writer->timer, on_timer, timeout_ms, LOG_WRITER_STUCK_MS);
}

enum status log_writer_open(struct log_writer *writer, uv_loop_t *loop, struct err *err)
{
    int rc;

    assert(!writer->is_open && writer->on_room != NULL && writer->on_flushed != NULL);
    rc = pthread_mutex_init(&writer->lock, NULL);
    assert(rc == 0);
    rc = pthread_cond_init(&writer->changed, NULL);
    assert(rc == 0);
    rc = uv_async_init(loop, &writer->async, on_async);
    if (rc == 0)
        rc = uv_timer_init(loop, &writer->timer);
    writer->async.data = writer->timer.data = writer;
    if (rc == 0) {
        uv_unref((uv_handle_t *)&writer->async);
        rc = thread_start(&writer->thread, 0, run, writer);
        if (rc != 0) {
            uv_close((uv_handle_t *)&writer->async, NULL);
            uv_close((uv_handle_t *)&writer->timer, NULL);
        }
    }
    if (rc != 0)
        return err_set(err, STATUS_SYSTEM, rc, "no thread for the logs: error %d", rc);
    writer->is_open = true;
    log_lines = writer;
    log_use(add_line);
    return STATUS_OK;
}

/* Until the thread has ended, for LOG_LOOK_MS at most. Holds the lock. */
static void wait_until_look(struct log_writer *writer)
{
    struct timespec until;
    int rc = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOG_LOOK_MS / 1000;
    while (!writer->ended && rc == 0)
        rc = pthread_cond_clockwait(&writer->changed, &writer->lock, CLOCK_MONOTONIC, &until);
}

static bool wait_for_end(struct log_writer *writer)
{
    struct log_patience patience;
    bool ended;

    (void)pthread_mutex_lock(&writer->lock);
    writer->ending = true;
    writer->notice_wanted = false;
    (void)pthread_cond_broadcast(&writer->changed);
    patience = log_patience_begin(writer->done_count);
    do
        wait_until_look(writer);
    while (!writer->ended && !log_patience_ends(&patience, writer->done_count));
    ended = writer->ended;
    (void)pthread_mutex_unlock(&writer->lock);
    return ended;
}

bool log_writer_close(struct log_writer *writer)
{
    bool ended;

    if (!writer->is_open)
        return true;
    writer->is_open = false;
    ended = wait_for_end(writer);
    log_use(NULL);
    log_lines = NULL;
    uv_close((uv_handle_t *)&writer->async, NULL);
    uv_close((uv_handle_t *)&writer->timer, NULL);
    if (!ended)
        return false;
    (void)pthread_join(writer->thread, NULL);
    (void)pthread_cond_destroy(&writer->changed);
    (void)pthread_mutex_destroy(&writer->lock);
    return true;
}

bool log_writer_has_room(struct log_writer *writer)
{
    if (writer->is_stuck || look(writer).queued_bytes < LOG_WRITER_BYTES_MAX)
        return true;
    writer->is_waiting = true;
    watch(writer, LOG_WRITER_STUCK_MS);
    (void)uv_async_send(&writer->async); /* the queue may have become empty before want_notice */
    return false;
}

bool log_writer_takes(struct log_writer *writer)
{
    return !writer->is_stuck || look(writer).queued_bytes < LOG_WRITER_BYTES_MAX;
}

bool log_writer_add(struct log_writer *writer, struct log_file *file, const struct log_piece *piece)
{
    return add(writer, file, false, piece);
}

bool log_writer_add_work(struct log_writer *writer, void (*work)(void *argument), void *argument)
{
    struct log_item *item = writer->is_open ? malloc(sizeof *item) : NULL;

    if (item == NULL)
        return false;
    *item = (struct log_item){.work = work, .argument = argument};
    return enqueue(writer, item);
}

void log_writer_add_close(struct log_writer *writer, struct log_file *file)
{
    if (!add(writer, file, true, &(struct log_piece){0}))
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "no memory to close a log");
}

bool log_writer_flush(struct log_writer *writer)
{
    struct state state;

    if (!writer->is_open)
        return true;
    state = look(writer);
    if (state.is_empty)
        return true;
    writer->is_flushing = true;
    writer->patience = log_patience_begin(state.done_count);
    watch(writer, LOG_LOOK_MS);
    (void)uv_async_send(&writer->async); /* the queue may have become empty before want_notice */
    return false;
}
