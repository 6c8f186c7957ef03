#include "rendezvous/store/seen_keeper.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/io/conn.h"
#include "common/thread_start.h"
#include "common/log.h"

#define CLOSE_MS 1000u

/* The newest that is known: what the file has, or will have. */
struct known {
    enum status status;
    struct seen seen;
    int64_t at_ms;
    struct err err;
};

struct seen_keeper {
    char path[4200];
    pthread_mutex_t lock; /* protects everything below; never held in a call to the file system */
    pthread_cond_t wanted, done;
    struct known known;
    struct seen next; /* to be written */
    bool has_next, wants_look, is_busy, is_ending;
    uint64_t busy_us;      /* since when the thread is in a call, or something waits for it */
    enum status written;   /* of the last writing */
    struct err write_err;  /* likewise */
    bool is_told_bad;      /* the log says that it does not work */
    uint32_t holder_count; /* the owner and the thread */
};

/* With the lock held, which is left. */
static void let_go(struct seen_keeper *keeper)
{
    const bool is_last = --keeper->holder_count == 0;

    (void)pthread_mutex_unlock(&keeper->lock);
    if (!is_last)
        return;
    (void)pthread_cond_destroy(&keeper->done);
    (void)pthread_cond_destroy(&keeper->wanted);
    (void)pthread_mutex_destroy(&keeper->lock);
    free(keeper);
}

/* -- the thread ----------------------------------------------------------------------------------- */

static void read_file(const struct seen_keeper *keeper, struct known *known)
{
    *known = (struct known){.status = STATUS_OK};
    known->status = seen_read(keeper->path, &known->seen, &known->at_ms, &known->err);
}

/* What is to be written is known already, unless seen_write would not write it. */
static void take(struct known *known, const struct seen *seen)
{
    struct seen next = *seen;

    if ((known->status == STATUS_OK && !seen_follow(&next, &known->seen)) ||
        (known->status != STATUS_OK && known->status != STATUS_NOT_FOUND))
        return;
    *known = (struct known){.status = STATUS_OK, .seen = next, .at_ms = clock_wall_ms()};
}

/* With the lock held before and after. */
static void work(struct seen_keeper *keeper)
{
    const struct seen next = keeper->next;
    const bool writes = keeper->has_next;
    struct err err = {.text = ""};
    enum status status = STATUS_OK;
    struct known known;

    keeper->has_next = keeper->wants_look = false;
    keeper->is_busy = true;
    (void)pthread_mutex_unlock(&keeper->lock);
    if (writes)
        status = seen_write(keeper->path, &next, &err);
    read_file(keeper, &known);
    (void)pthread_mutex_lock(&keeper->lock);
    keeper->is_busy = false;
    keeper->busy_us = clock_boot_us(); /* of what has come meanwhile */
    keeper->known = known;
    if (keeper->has_next)
        take(&keeper->known, &keeper->next);
    if (writes) {
        keeper->written = status;
        keeper->write_err = err;
    }
    (void)pthread_cond_broadcast(&keeper->done);
}

static void *run(void *argument)
{
    struct seen_keeper *keeper = argument;

    (void)pthread_mutex_lock(&keeper->lock);
    for (;;) {
        if (keeper->has_next || (keeper->wants_look && !keeper->is_ending))
            work(keeper);
        else if (keeper->is_ending)
            break;
        else
            (void)pthread_cond_wait(&keeper->wanted, &keeper->lock);
    }
    let_go(keeper);
    return NULL;
}

/* -- its users ------------------------------------------------------------------------------------ */

enum status seen_keeper_open(struct seen_keeper **out, const char *path, struct err *err)
{
    struct seen_keeper *keeper = calloc(1, sizeof *keeper);
    pthread_condattr_t monotonic;
    int code;

    if (keeper == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory");
    (void)snprintf(keeper->path, sizeof keeper->path, "%s", path);
    (void)pthread_mutex_init(&keeper->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&keeper->wanted, NULL);
    (void)pthread_cond_init(&keeper->done, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    read_file(keeper, &keeper->known);
    keeper->holder_count = 2;
    code = thread_start(NULL, 0, run, keeper);
    if (code != 0) {
        free(keeper);
        return err_set(err, STATUS_SYSTEM, code, "no thread: %s", strerror(code));
    }
    *out = keeper;
    return STATUS_OK;
}

/* Why writing does not work; NULL: it does. */
static const char *find_problem(const struct seen_keeper *keeper, char *text, size_t text_bytes)
{
    if ((keeper->is_busy || keeper->has_next) &&
        clock_boot_us() >= keeper->busy_us + SEEN_LATE_US) {
        (void)snprintf(text, text_bytes,
                       "the disk of %.180s does not answer: it has taken longer than %u s",
                       keeper->path, SEEN_LATE_US / 1000000u);
        return text;
    }
    return keeper->written != STATUS_OK ? keeper->write_err.text : NULL;
}

/* Logs a change. */
static void tell(struct seen_keeper *keeper)
{
    char text[256];
    const char *problem = find_problem(keeper, text, sizeof text);

    if (problem != NULL && !keeper->is_told_bad)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s: an etcd that is put back, or has lost its state, may not be noticed",
                 problem);
    else if (problem == NULL && keeper->is_told_bad)
        log_line(LOG_INFO, LOG_ABOUT_NONE, "%s is written again", keeper->path);
    keeper->is_told_bad = problem != NULL;
}

static void wake(struct seen_keeper *keeper)
{
    if (!keeper->is_busy && !keeper->has_next && !keeper->wants_look)
        keeper->busy_us = clock_boot_us();
    (void)pthread_cond_signal(&keeper->wanted);
}

void seen_keeper_note(struct seen_keeper *keeper, const struct seen *seen)
{
    (void)pthread_mutex_lock(&keeper->lock);
    wake(keeper);
    keeper->next = *seen;
    keeper->has_next = true;
    take(&keeper->known, seen);
    tell(keeper);
    (void)pthread_mutex_unlock(&keeper->lock);
}

void seen_keeper_look(struct seen_keeper *keeper)
{
    (void)pthread_mutex_lock(&keeper->lock);
    wake(keeper);
    keeper->wants_look = true;
    (void)pthread_mutex_unlock(&keeper->lock);
}

static struct known copy_known(struct seen_keeper *keeper)
{
    struct known known;

    (void)pthread_mutex_lock(&keeper->lock);
    known = keeper->known;
    (void)pthread_mutex_unlock(&keeper->lock);
    return known;
}

enum status seen_keeper_last(struct seen_keeper *keeper, struct seen *seen, struct err *err)
{
    const struct known known = copy_known(keeper);

    *seen = known.seen;
    if (known.status != STATUS_OK && err != NULL)
        *err = known.err;
    return known.status;
}

bool seen_keeper_describe(struct seen_keeper *keeper, char text[SEEN_TEXT_BYTES])
{
    const struct known known = copy_known(keeper);

    return seen_text(known.status, &known.seen, known.at_ms, known.err.text, text);
}

const char *seen_keeper_path(const struct seen_keeper *keeper)
{
    return keeper->path;
}

bool seen_keeper_wait(struct seen_keeper *keeper, uint32_t limit_ms)
{
    struct timespec until;
    int code = 0;
    bool is_done;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += limit_ms % 1000 * 1000000L;
    until.tv_sec += limit_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&keeper->lock);
    while ((keeper->has_next || keeper->is_busy) && code == 0)
        code = pthread_cond_timedwait(&keeper->done, &keeper->lock, &until);
    is_done = !keeper->has_next && !keeper->is_busy;
    (void)pthread_mutex_unlock(&keeper->lock);
    return is_done;
}

void seen_keeper_close(struct seen_keeper **out)
{
    struct seen_keeper *keeper = *out;

    *out = NULL;
    if (keeper == NULL)
        return;
    (void)seen_keeper_wait(keeper, CLOSE_MS);
    (void)pthread_mutex_lock(&keeper->lock);
    keeper->is_ending = true;
    (void)pthread_cond_signal(&keeper->wanted);
    let_go(keeper);
}
