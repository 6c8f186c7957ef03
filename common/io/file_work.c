#include "common/io/file_work.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/fnv.h"
#include "common/io/file_work_inside.h"
#include "common/thread_start.h"

#define STACK_BYTES (1024u * 1024u) /* address space; what is not touched takes no memory */
#ifndef FILE_WORK_IDLE_MS
#define FILE_WORK_IDLE_MS 10000 /* a thread that finds no work for so long ends */
#endif
#define NO_THREAD_MS 100u   /* until a thread that could not be started is tried again */
#define PAUSE_MS 1000u      /* a timer this late: the process, or the machine, stood still */
#define FOR_EVER UINT64_MAX /* milliseconds */

static const uint32_t lane_threads[FILE_LANE_COUNT] = {
    [FILE_LANE_START] = 4,  [FILE_LANE_SWEEP] = 4, [FILE_LANE_REMOVE] = 2, [FILE_LANE_CONNECT] = 2,
    [FILE_LANE_KEEP] = 1,   [FILE_LANE_LOGS] = 2,  [FILE_LANE_EXPIRE] = 1, [FILE_LANE_STAGE] = 2,
    [FILE_LANE_GAUGES] = 1, [FILE_LANE_ASK] = 4,   [FILE_LANE_RANKS] = 1,  [FILE_LANE_END] = 1,
};

struct file_works {
    uv_loop_t *loop;
    uv_async_t async;
    uv_timer_t timer;
    uint32_t handles_open;
    bool closing; /* file_works_close was called */
    bool handles_closing;
    uint64_t timer_at_ms;
    char dirs[6][PATH_MAX]; /* by disk */
    pthread_mutex_t lock;   /* protects everything below */
    pthread_cond_t wanted;  /* a thread may find work */
    pthread_cond_t finished_one;
    struct file_work_list queued, running, finished;
    uint32_t queued_by_lane[FILE_LANE_COUNT], running_by_lane[FILE_LANE_COUNT];
    uint32_t late_count; /* of those that run */
    uint32_t thread_count, idle_count;
    bool loop_has_ended; /* nobody calls `done` or `drop` any more */
    bool is_freed;       /* the last thread frees this */
};

/* Kept where a leak check finds them: what threads that hang still need. */
static _Atomic(struct file_works *) left_behind;

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* -- which work may run ------------------------------------------------------------------------- */

static bool has_key(const struct file_work *from, const struct file_work *until, uint64_t key)
{
    for (; from != NULL && from != until; from = from->next)
        if (from->key == key)
            return true;
    return false;
}

static bool may_run(const struct file_works *works, const struct file_work *work)
{
    if (works->running_by_lane[work->lane] >= lane_threads[work->lane])
        return false;
    return work->key == 0 || (!has_key(works->running.first, NULL, work->key) &&
                              !has_key(works->queued.first, work, work->key));
}

static struct file_work *find_work(const struct file_works *works)
{
    for (struct file_work *work = works->queued.first; work != NULL; work = work->next)
        if (may_run(works, work))
            return work;
    return NULL;
}

/* -- threads ------------------------------------------------------------------------------------- */

static void free_works(struct file_works *works)
{
    struct file_works *expected = works;

    (void)atomic_compare_exchange_strong(&left_behind, &expected, NULL);
    (void)pthread_cond_destroy(&works->finished_one);
    (void)pthread_cond_destroy(&works->wanted);
    (void)pthread_mutex_destroy(&works->lock);
    free(works);
}

/* Runs one work, with the lock held before and after. True: the thread has to stay. */
static bool run_one(struct file_works *works, struct file_work *work)
{
    bool stays;

    (void)file_work_list_remove(&works->queued, work);
    works->queued_by_lane[work->lane]--;
    file_work_list_add(&works->running, work);
    works->running_by_lane[work->lane]++;
    (void)pthread_mutex_unlock(&works->lock);
    work->run(work);
    stays = work->keeps_thread;
    (void)pthread_mutex_lock(&works->lock);
    (void)file_work_list_remove(&works->running, work);
    works->running_by_lane[work->lane]--;
    if (atomic_load(&work->is_late))
        works->late_count--;
    if (works->loop_has_ended) {
        work->drop(work);
        return stays;
    }
    file_work_list_add(&works->finished, work);
    (void)pthread_cond_broadcast(&works->finished_one);
    (void)uv_async_send(&works->async);
    return stays;
}

/* False: it was idle for long enough. */
static bool wait_for_work(struct file_works *works, bool stays)
{
    struct timespec until;
    int rc;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += FILE_WORK_IDLE_MS % 1000 * 1000000L;
    until.tv_sec += FILE_WORK_IDLE_MS / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    works->idle_count++;
    rc = stays ? pthread_cond_wait(&works->wanted, &works->lock)
               : pthread_cond_clockwait(&works->wanted, &works->lock, CLOCK_MONOTONIC, &until);
    works->idle_count--;
    return rc != ETIMEDOUT || find_work(works) != NULL;
}

static void *run_thread(void *argument)
{
    struct file_works *works = argument;
    struct file_work *work;
    bool is_last, stays = false;

    (void)pthread_mutex_lock(&works->lock);
    do {
        while (!works->loop_has_ended && (work = find_work(works)) != NULL)
            stays = run_one(works, work) || stays;
    } while (!works->loop_has_ended && wait_for_work(works, stays));
    is_last = --works->thread_count == 0 && works->is_freed && works->handles_open == 0;
    (void)pthread_mutex_unlock(&works->lock);
    if (is_last)
        free_works(works);
    return NULL;
}

static bool start_thread(struct file_works *works)
{
    const bool is_started = thread_start(NULL, STACK_BYTES, run_thread, works) == 0;

    works->thread_count += is_started;
    return is_started;
}

static uint32_t count_running(const struct file_works *works)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < FILE_LANE_COUNT; i++)
        count += works->running_by_lane[i];
    return count;
}

/* How much work could begin now. */
static uint32_t count_possible(const struct file_works *works)
{
    uint32_t room[FILE_LANE_COUNT], count = 0;

    for (uint32_t i = 0; i < FILE_LANE_COUNT; i++)
        room[i] = lane_threads[i] - works->running_by_lane[i];
    for (const struct file_work *work = works->queued.first; work != NULL; work = work->next)
        if (room[work->lane] > 0 && may_run(works, work)) {
            room[work->lane]--;
            count++;
        }
    return count;
}

/* Wakes or starts as many threads as can find work. False: none could be started. */
static bool wake_threads(struct file_works *works)
{
    const uint32_t wanted = count_possible(works);
    uint32_t free_count = works->thread_count - count_running(works);

    for (uint32_t i = 0; i < wanted && i < works->idle_count; i++)
        (void)pthread_cond_signal(&works->wanted);
    for (; free_count < wanted; free_count++)
        if (!start_thread(works))
            return free_count > 0;
    return true;
}

/* -- texts ---------------------------------------------------------------------------------------- */

bool file_work_is_late(struct file_work *work)
{
    return atomic_load(&work->is_late);
}

void file_work_forget(struct file_work *work)
{
    work->done = NULL;
}

/* What a work waits for: itself, if it runs; else what runs before it. NULL: a thread. */
static struct file_work *find_obstacle(const struct file_works *works, struct file_work *work,
                                       bool runs)
{
    struct file_work *found = NULL;

    if (runs)
        return work;
    for (struct file_work *at = works->running.first; at != NULL; at = at->next)
        if (at->lane == work->lane || (work->key != 0 && at->key == work->key)) {
            if (found == NULL || (work->key != 0 && at->key == work->key))
                found = at;
        }
    return found;
}

static void explain(const struct file_works *works, struct file_work *work, bool runs, char *text,
                    size_t text_bytes)
{
    struct file_work *obstacle = find_obstacle(works, work, runs);
    const enum file_disk disk = obstacle != NULL ? file_work_disk(obstacle) : FILE_DISK_NONE;

    if (obstacle == NULL)
        (void)snprintf(text, text_bytes, "no thread could be started for it in %u s",
                       (work->limit_ms + 500) / 1000);
    else
        file_work_explain(obstacle, works->dirs[disk], runs, work->limit_ms, text, text_bytes);
}

/* -- deadlines ------------------------------------------------------------------------------------ */

static uint64_t due_ms(const struct file_works *works, const struct file_work *work)
{
    const uint32_t limit_ms =
        works->closing && (work->limit_ms == 0 || work->limit_ms > FILE_WORK_END_MS)
            ? FILE_WORK_END_MS
            : work->limit_ms;

    return limit_ms == 0 || atomic_load(&work->is_late) ? FOR_EVER : work->begun_ms + limit_ms;
}

static struct file_work *find_late(const struct file_works *works, uint64_t now, bool *runs)
{
    for (struct file_work *work = works->running.first; work != NULL; work = work->next)
        if (due_ms(works, work) <= now) {
            *runs = true;
            return work;
        }
    *runs = false;
    for (struct file_work *work = works->queued.first; work != NULL; work = work->next)
        if (due_ms(works, work) <= now)
            return work;
    return NULL;
}

static uint64_t next_ms(const struct file_works *works)
{
    uint64_t at_ms = FOR_EVER;

    for (const struct file_work *work = works->running.first; work != NULL; work = work->next)
        if (due_ms(works, work) < at_ms)
            at_ms = due_ms(works, work);
    for (const struct file_work *work = works->queued.first; work != NULL; work = work->next)
        if (due_ms(works, work) < at_ms)
            at_ms = due_ms(works, work);
    return at_ms;
}

static void on_timer(uv_timer_t *timer);

static void arm(struct file_works *works, bool has_threads)
{
    uint64_t at_ms = next_ms(works), now = now_ms();

    if (!has_threads && now + NO_THREAD_MS < at_ms)
        at_ms = now + NO_THREAD_MS;
    works->timer_at_ms = at_ms;
    if (at_ms == FOR_EVER) {
        (void)uv_timer_stop(&works->timer);
        return;
    }
    uv_update_time(works->loop);
    (void)uv_timer_start(&works->timer, on_timer, at_ms > now ? at_ms - now : 0, 0);
}

static void finish(struct file_work *work, const char *late)
{
    void (*done)(struct file_work * work, const char *late) = work->done;

    work->done = NULL;
    if (done != NULL)
        done(work, late);
}

/* Ends the waiting for work whose deadline is over. What has not begun never runs. */
static void end_late(struct file_works *works)
{
    struct file_work *work;
    char text[256];
    bool runs;

    for (;;) {
        (void)pthread_mutex_lock(&works->lock);
        work = find_late(works, now_ms(), &runs);
        if (work != NULL) {
            explain(works, work, runs, text, sizeof text);
            atomic_store(&work->is_late, true);
            works->late_count += runs;
            if (!runs) {
                (void)file_work_list_remove(&works->queued, work);
                works->queued_by_lane[work->lane]--;
            }
        }
        (void)pthread_mutex_unlock(&works->lock);
        if (work == NULL)
            return;
        finish(work, text);
        if (!runs)
            work->drop(work);
    }
}

/* The process was stopped, or the machine was: threads get that time, too. */
static void forgive(struct file_works *works, uint64_t pause_ms)
{
    for (struct file_work *work = works->running.first; work != NULL; work = work->next)
        work->begun_ms += pause_ms;
    for (struct file_work *work = works->queued.first; work != NULL; work = work->next)
        work->begun_ms += pause_ms;
}

/* -- the loop -------------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct file_works *works = handle->data;

    works->handles_open--;
}

/* Whether somebody waits for work, or it is queued. */
static bool is_busy(const struct file_works *works)
{
    if (works->queued.first != NULL || works->finished.first != NULL)
        return true;
    for (struct file_work *work = works->running.first; work != NULL; work = work->next)
        if (!atomic_load(&work->is_late))
            return true;
    return false;
}

static void settle(struct file_works *works)
{
    bool has_threads, has_ended;

    if (works->handles_closing)
        return;
    (void)pthread_mutex_lock(&works->lock);
    has_threads = wake_threads(works);
    arm(works, has_threads);
    has_ended = works->closing && !is_busy(works);
    works->loop_has_ended = has_ended;
    if (has_ended)
        (void)pthread_cond_broadcast(&works->wanted);
    /* The loop waits for work that somebody waits for, not for the idle. */
    if (is_busy(works))
        uv_ref((uv_handle_t *)&works->async);
    else
        uv_unref((uv_handle_t *)&works->async);
    (void)pthread_mutex_unlock(&works->lock);
    if (!has_ended)
        return;
    works->handles_closing = true;
    uv_close((uv_handle_t *)&works->async, on_handle_closed);
    uv_close((uv_handle_t *)&works->timer, on_handle_closed);
}

static void on_timer(uv_timer_t *timer)
{
    struct file_works *works = timer->data;
    const uint64_t now = now_ms();

    if (now > works->timer_at_ms + PAUSE_MS) {
        (void)pthread_mutex_lock(&works->lock);
        forgive(works, now - works->timer_at_ms + PAUSE_MS);
        (void)pthread_mutex_unlock(&works->lock);
    }
    end_late(works);
    settle(works);
}

static void take_finished(struct file_works *works)
{
    struct file_work *work;

    for (;;) {
        (void)pthread_mutex_lock(&works->lock);
        work = works->finished.first;
        if (work != NULL)
            (void)file_work_list_remove(&works->finished, work);
        (void)pthread_mutex_unlock(&works->lock);
        if (work == NULL)
            return;
        finish(work, NULL);
        work->drop(work);
    }
}

static void on_async(uv_async_t *async)
{
    struct file_works *works = async->data;

    take_finished(works);
    settle(works);
}

enum status file_works_open(struct file_works **out, uv_loop_t *loop, const char *logs_dir,
                            const char *state_dir, struct err *err)
{
    struct file_works *works = calloc(1, sizeof *works);
    int rc;

    if (works == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory");
    rc = uv_async_init(loop, &works->async, on_async);
    if (rc != 0) {
        free(works);
        return err_set(err, STATUS_SYSTEM, rc, "no wake-up for threads: %s", uv_strerror(rc));
    }
    (void)uv_timer_init(loop, &works->timer);
    works->loop = loop;
    works->async.data = works->timer.data = works;
    works->handles_open = 2;
    uv_unref((uv_handle_t *)&works->async);
    (void)snprintf(works->dirs[FILE_DISK_LOGS], PATH_MAX, "%s", logs_dir);
    (void)snprintf(works->dirs[FILE_DISK_STATE], PATH_MAX, "%s", state_dir);
    (void)snprintf(works->dirs[FILE_DISK_STAGE], PATH_MAX, "%.4000s/stage", state_dir);
    (void)pthread_mutex_init(&works->lock, NULL);
    (void)pthread_cond_init(&works->wanted, NULL);
    (void)pthread_cond_init(&works->finished_one, NULL);
    file_work_list_init(&works->queued);
    file_work_list_init(&works->running);
    file_work_list_init(&works->finished);
    *out = works;
    return STATUS_OK;
}

/* False: it was dropped. */
static bool enqueue(struct file_works *works, struct file_work *work)
{
    bool is_taken;

    assert(work->run != NULL && work->drop != NULL && work->lane < FILE_LANE_COUNT);
    work->begun_ms = now_ms();
    (void)pthread_mutex_lock(&works->lock);
    is_taken = !works->loop_has_ended && works->queued_by_lane[work->lane] < FILE_WORKS_MAX;
    if (is_taken) {
        file_work_list_add(&works->queued, work);
        works->queued_by_lane[work->lane]++;
    }
    (void)pthread_mutex_unlock(&works->lock);
    if (!is_taken)
        work->drop(work);
    return is_taken;
}

bool file_work_start(struct file_works *works, struct file_work *work)
{
    if (!enqueue(works, work))
        return false;
    settle(works);
    return true;
}

/* With the lock held, as long as a thread that could not be started is not tried again. */
static void wait_a_while(struct file_works *works)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += NO_THREAD_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_clockwait(&works->finished_one, &works->lock, CLOCK_MONOTONIC, &until);
}

void file_work_wait(struct file_works *works, struct file_work *work)
{
    const uint64_t until_ms = now_ms() + work->limit_ms;
    char text[256] = "";
    bool has_run;

    if (!enqueue(works, work))
        return;
    (void)pthread_mutex_lock(&works->lock);
    (void)wake_threads(works);
    while (!(has_run = file_work_list_remove(&works->finished, work)) && now_ms() < until_ms) {
        wait_a_while(works);
        (void)wake_threads(works);
    }
    if (!has_run) {
        const bool is_queued = file_work_list_remove(&works->queued, work);

        explain(works, work, !is_queued, text, sizeof text);
        atomic_store(&work->is_late, true);
        works->queued_by_lane[work->lane] -= is_queued;
        works->late_count += !is_queued;
        has_run = is_queued; /* no thread has it: it is dropped here */
    }
    (void)pthread_mutex_unlock(&works->lock);
    finish(work, text[0] != '\0' ? text : NULL);
    if (has_run)
        work->drop(work);
}

void file_works_close(struct file_works *works)
{
    const uint64_t now = now_ms();

    works->closing = true;
    (void)pthread_mutex_lock(&works->lock);
    for (struct file_work *work = works->running.first; work != NULL; work = work->next)
        work->begun_ms = now;
    for (struct file_work *work = works->queued.first; work != NULL; work = work->next)
        work->begun_ms = now;
    (void)pthread_mutex_unlock(&works->lock);
    settle(works);
}

void file_works_free(struct file_works **out)
{
    struct file_works *works = *out;
    bool is_last;

    *out = NULL;
    if (works == NULL)
        return;
    (void)pthread_mutex_lock(&works->lock);
    works->loop_has_ended = works->is_freed = true;
    atomic_store(&left_behind, works);
    /* Open handles: the loop never ran, and the process ends. */
    is_last = works->thread_count == 0 && works->handles_open == 0;
    (void)pthread_mutex_unlock(&works->lock);
    if (is_last)
        free_works(works);
}

uint32_t file_works_hanging(const struct file_works *works)
{
    return works->late_count;
}

uint64_t file_work_key(const char *path)
{
    return fnv_add(FNV_START, path, strlen(path)) | 1; /* 0: none */
}
