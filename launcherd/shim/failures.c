#include "launcherd/shim/failures.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "common/io/read_all.h"
#include "common/log.h"
#include "launcherd/cause/first.h"
#include "launcherd/process/foreign_file.h"
#include "launcherd/process/rundir.h"
#include "launcherd/shim/shim_workers.h"

#define FILE_AGE_US                                                                                \
    1000000 /* a file that is this much older than an exception in the output is not about it */
#define RAISED_US_MAX                                                                              \
    (60 * INT64_C(1000000)) /* an exception that is older did not make another rank fail */
#define AGE_US_MAX                                                                                 \
    (3600 * INT64_C(1000000)) /* a larger age: a wrong clock, or a file of another run */

/* -- the thread -------------------------------------------------------------------------------- */

static int64_t raised_us(const struct exception *exception, const struct stat *stat)
{
    const int64_t written_us = stat->st_mtim.tv_sec * 1000000 + stat->st_mtim.tv_nsec / 1000;

    /* Programs give whole seconds, and write the file at once. Its time is more exact; if it is in
     * the next second, the exception was raised at the end of its own. */
    if (exception->raised_s == 0 || exception->raised_s == stat->st_mtim.tv_sec)
        return written_us;
    return exception->raised_s * 1000000 +
           (exception->raised_s + 1 == stat->st_mtim.tv_sec ? 999999 : 0);
}

static void read_bytes(int fd, char *bytes, struct failure_file *file)
{
    struct err err = {.text = ""};
    struct stat stat;
    const ssize_t got = read_all(fd, bytes, EXCEPTION_FILE_BYTES_MAX + 1);

    if (got < 0)
        (void)err_set(&err, STATUS_IO, errno, "it cannot be read: %s", strerror(errno));
    file->is_found = got > 0 && fstat(fd, &stat) == 0 &&
                     exception_from_json(bytes, (size_t)got, &file->exception, &err) == STATUS_OK;
    if (file->is_found)
        file->raised_us = raised_us(&file->exception, &stat);
    (void)snprintf(file->problem, sizeof file->problem, "%.120s", err.text);
}

static void read_file(const char *path, char *bytes, struct failure_file *file)
{
    enum foreign_file what;
    int fd = foreign_file_open(path, &what);

    if (fd >= 0) {
        read_bytes(fd, bytes, file);
        close(fd);
    } else if (what == FOREIGN_STRANGE) {
        (void)snprintf(file->problem, sizeof file->problem,
                       "it is no plain file of the job's user");
    } else if (what == FOREIGN_UNREADABLE) {
        (void)snprintf(file->problem, sizeof file->problem, "it cannot be read: %s",
                       strerror(errno));
    }
}

static void read_files(void *argument)
{
    struct failures *failures = argument;
    const struct msg_start *start = failures->workers->options.start;
    char *bytes = malloc(EXCEPTION_FILE_BYTES_MAX + 1), path[PATH_MAX];

    for (uint32_t i = 0; bytes != NULL && i < start->local_count; i++) {
        rundir_rank_error(path, failures->workers->error_dir, start->rank_base + i);
        read_file(path, bytes, &failures->files[i]);
    }
    free(bytes);
    atomic_store(&failures->is_read, true);
    (void)uv_async_send(&failures->async);
}

/* -- the loop ---------------------------------------------------------------------------------- */

static const struct failure_file *file_of(const struct failures *failures, uint32_t local)
{
    const struct failure_file *file = &failures->files[local];

    return failures->state == FAILURES_KNOWN && file->is_found ? file : NULL;
}

static bool is_failure(const struct shim_event *event)
{
    return event->code != 0 || event->signal != 0;
}

static int64_t wall_us(void)
{
    return clock_wall_ms() * 1000;
}

static uint64_t age_of(const struct failure_file *file)
{
    const int64_t age_us = wall_us() - file->raised_us;

    return age_us > 0 && age_us < AGE_US_MAX ? (uint64_t)age_us : 0;
}

static uint64_t us_since(uint64_t at_us)
{
    return uv_hrtime() / 1000 - at_us;
}

/* When the output told that, Unix time. */
static int64_t told_us(const struct cause *cause)
{
    return wall_us() - (int64_t)us_since(cause->began_us);
}

/* Whether the file is of an exception before that one: of a child that has inherited the file's name, and was started again. */
static bool is_of_before(const struct failure_file *file, const struct cause *cause)
{
    return cause->kind == CAUSE_RAISED && strstr(cause->line, file->exception.line) == NULL &&
           told_us(cause) > file->raised_us + FILE_AGE_US;
}

/* Finds what is known about why a worker failed: what it told in its error file, in its output, in a message to the shim. */
static bool find_cause(const struct failures *failures, uint32_t local, const struct cause_end *end,
                       struct exception *found, enum cause_kind *kind, uint64_t *began_us)
{
    const struct shim_worker *worker = &failures->workers->items[local];
    const struct failure_file *file = file_of(failures, local);
    struct cause cause = {.kind = CAUSE_NONE};

    (void)causes_best(&worker->output.causes, end, &cause);
    *began_us = 0;
    if (file != NULL) {
        *kind = cause_of_exception(text_of(file->exception.line));
        *found = file->exception;
        if (cause.kind < CAUSE_FATAL || (*kind == CAUSE_RAISED && !is_of_before(file, &cause)))
            return true;
    } else if (cause.kind < CAUSE_FATAL && exception_from_text(worker->error_text, found)) {
        *kind = cause_of_exception(text_of(found->line));
        return true;
    }
    if (cause.kind == CAUSE_NONE)
        return false;
    *kind = cause.kind;
    *began_us = cause.began_us;
    found->raised_s = 0;
    memcpy(found->line, cause.line, sizeof found->line);
    memcpy(found->text, cause.text, sizeof found->text);
    return true;
}

/* The stop has ended the worker; it may have raised an exception before. False: nothing says so. */
static bool tell_stopped(struct failures *failures, struct shim_event *event)
{
    struct shim_worker *worker = &failures->workers->items[event->local];
    const struct cause_end end = {.is_running = true};
    struct cause cause;

    if (file_of(failures, event->local) != NULL ||
        !causes_best(&worker->output.causes, &end, &cause) || cause.kind != CAUSE_RAISED)
        return false;
    event->has_raised = true;
    event->age_us = us_since(cause.began_us);
    (void)snprintf(worker->error, sizeof worker->error, "%s", cause.text);
    (void)snprintf(worker->exit_text, sizeof worker->exit_text,
                   "raised an exception: %.140s; it had not ended when it was stopped", cause.line);
    event->text = worker->exit_text;
    return true;
}

static void explain(struct failures *failures, struct shim_event *event)
{
    struct shim_worker *worker = &failures->workers->items[event->local];
    const struct cause_end end = {
        .exit_code = event->code, .signal = event->signal, .oom = worker->was_oom};
    struct exception exception;
    enum cause_kind kind;
    uint64_t began_us;

    if (!is_failure(event))
        return;
    if (event->signal != 0 && worker->signalled != 0 && tell_stopped(failures, event))
        return;
    if (!find_cause(failures, event->local, &end, &exception, &kind, &began_us))
        return;
    event->by_peer = cause_is_of_others(kind);
    if (file_of(failures, event->local) != NULL && began_us == 0)
        event->age_us = age_of(file_of(failures, event->local));
    (void)snprintf(worker->error, sizeof worker->error, "%s", exception.text);
    (void)snprintf(worker->exit_text, sizeof worker->exit_text, "%.100s%s%.140s", event->text,
                   event->text[0] != '\0' ? ": " : "", exception.line);
    event->text = worker->exit_text;
}

static void log_problems(const struct failures *failures)
{
    const struct msg_start *start = failures->workers->options.start;

    for (uint32_t i = 0; i < start->local_count; i++)
        if (failures->files[i].problem[0] != '\0')
            log_line(LOG_WARNING,
                     (struct log_about){.job_id = start->job_id,
                                        .generation = start->generation,
                                        .rank = (int32_t)(start->rank_base + i)},
                     "its error file is not used: %s", failures->files[i].problem);
}

/* What is known about a worker that runs, or whose end is `event`. */
static struct cause_rank rank_of(const struct failures *failures, uint32_t local,
                                 const struct shim_event *event)
{
    const struct shim_worker *worker = &failures->workers->items[local];
    const struct failure_file *file = file_of(failures, local);
    struct cause_rank rank = {.is_running = event == NULL && worker->pid > 0,
                              .has_failed = event != NULL && is_failure(event),
                              .raised_us = file != NULL ? file->raised_us : INT64_MAX};
    const struct cause_end end = {.exit_code = event != NULL ? event->code : 0,
                                  .signal = event != NULL ? event->signal : 0,
                                  .is_running = event == NULL,
                                  .oom = worker->was_oom};
    struct exception found;
    uint64_t began_us = 0;

    if (!rank.is_running && !rank.has_failed)
        return rank;
    (void)find_cause(failures, local, &end, &found, &rank.kind, &began_us);
    if (rank.kind == CAUSE_RAISED && began_us > 0 && us_since(began_us) < RAISED_US_MAX)
        rank.raised_us = wall_us() - (int64_t)us_since(began_us);
    return rank;
}

/* Fills in all workers, by their local ranks. */
static uint32_t list_ranks(const struct failures *failures,
                           struct cause_rank ranks[SLOTS_PER_NODE_MAX])
{
    const uint32_t count = failures->workers->options.start->local_count;

    for (uint32_t i = 0; i < count; i++)
        ranks[i] = rank_of(failures, i, NULL);
    for (uint32_t i = 0; i < failures->count; i++) {
        struct cause_rank *rank = &ranks[failures->pending[i].local];

        *rank = rank_of(failures, failures->pending[i].local, &failures->pending[i]);
        rank->order = i;
    }
    return count;
}

static bool may_become_clear(const struct failures *failures)
{
    struct cause_rank ranks[SLOTS_PER_NODE_MAX];
    const uint32_t count = list_ranks(failures, ranks);

    return cause_may_become_clear(ranks, count);
}

/* Gives RAISED to the core for a worker that still runs. `ended`: the first of the pending
 * events. */
static void tell_raised(struct failures *failures, uint32_t local, const struct shim_event *ended)
{
    struct shim_workers *workers = failures->workers;
    struct shim_worker *worker = &workers->items[local];
    const struct failure_file *file = file_of(failures, local);
    const uint32_t rank = workers->options.start->rank_base + ended->local;
    const struct cause_end end = {.is_running = true};
    struct exception found;
    enum cause_kind kind;
    uint64_t began_us, age_us = 0;

    if (!find_cause(failures, local, &end, &found, &kind, &began_us))
        return;
    if (file != NULL && began_us == 0)
        age_us = age_of(file);
    else if (began_us > 0)
        age_us = us_since(began_us);
    (void)snprintf(worker->error, sizeof worker->error, "%s", found.text);
    (void)snprintf(worker->exit_text, sizeof worker->exit_text,
                   "raised an exception: %.140s; it had not ended when rank %u %s %u", found.line,
                   rank, ended->signal != 0 ? "was killed by signal" : "exited with code",
                   ended->signal != 0 ? ended->signal : (uint32_t)ended->code);
    workers->options.step(workers->options.owner, (struct shim_event){.type = SHIM_EVENT_RAISED,
                                                                      .local = local,
                                                                      .age_us = age_us,
                                                                      .text = worker->exit_text});
}

/* Puts the event of that worker first. False: it has not ended. */
static bool put_first(struct failures *failures, uint32_t local)
{
    for (uint32_t i = 0; i < failures->count; i++) {
        const struct shim_event event = failures->pending[i];

        if (event.local != local)
            continue;
        memmove(failures->pending + 1, failures->pending, i * sizeof event);
        failures->pending[0] = event;
        return true;
    }
    return false;
}

static void settle(struct failures *failures)
{
    struct shim_workers *workers = failures->workers;
    const uint32_t count = failures->count;
    struct cause_rank ranks[SLOTS_PER_NODE_MAX];
    int32_t first;

    (void)uv_timer_stop(&failures->timer);
    failures->state = atomic_load(&failures->is_read) ? FAILURES_KNOWN : FAILURES_UNKNOWN;
    if (failures->state == FAILURES_KNOWN)
        log_problems(failures);
    first = cause_first(ranks, list_ranks(failures, ranks));
    if (first >= 0 && !put_first(failures, (uint32_t)first))
        tell_raised(failures, (uint32_t)first, &failures->pending[0]);
    failures->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct shim_event event = failures->pending[i];

        explain(failures, &event);
        workers->options.step(workers->options.owner, event);
    }
}

static void on_read(uv_async_t *async)
{
    struct failures *failures = async->data;

    if (failures->state != FAILURES_READING || !atomic_load(&failures->is_read))
        return;
    failures->is_waiting = may_become_clear(failures);
    if (!failures->is_waiting)
        settle(failures);
}

static void on_late(uv_timer_t *timer)
{
    struct failures *failures = timer->data;

    if (failures->state == FAILURES_READING)
        settle(failures);
}

void failures_open(struct failures *failures, struct shim_workers *workers)
{
    uv_loop_t *loop = workers->options.loop;
    int rc = uv_async_init(loop, &failures->async, on_read);

    rc = rc != 0 ? rc : uv_timer_init(loop, &failures->timer);
    assert(rc == 0); /* fails only without descriptors, at the start of a process */
    (void)rc;
    uv_unref((uv_handle_t *)&failures->async);
    failures->async.data = failures->timer.data = failures;
    failures->workers = workers;
}

void failures_close(struct failures *failures)
{
    failures->state = FAILURES_UNKNOWN;
    failures->count = 0;
    uv_close((uv_handle_t *)&failures->async, NULL);
    uv_close((uv_handle_t *)&failures->timer, NULL);
}

void failures_exited(struct failures *failures, const struct shim_event *event)
{
    struct shim_workers *workers = failures->workers;
    struct shim_event now = *event;

    if (failures->state == FAILURES_NONE && is_failure(event)) {
        shm_watch_failed(workers);
        failures->state = log_writer_add_work(&workers->writer, read_files, failures)
                              ? FAILURES_READING
                              : FAILURES_UNKNOWN;
        (void)uv_timer_start(&failures->timer, on_late, FAILURES_READ_MS, 0);
    }
    if (failures->state == FAILURES_READING) {
        assert(failures->count < SLOTS_PER_NODE_MAX); /* each worker ends once */
        failures->pending[failures->count++] = now;
        if (failures->is_waiting && !may_become_clear(failures))
            settle(failures);
        return;
    }
    explain(failures, &now);
    workers->options.step(workers->options.owner, now);
}

void failures_flush(struct failures *failures)
{
    struct shim_workers *workers = failures->workers;

    if (failures->state != FAILURES_READING)
        return;
    failures->state = FAILURES_UNKNOWN;
    (void)uv_timer_stop(&failures->timer);
    for (uint32_t i = 0; i < failures->count; i++) {
        explain(failures, &failures->pending[i]);
        workers->options.post(workers->options.owner, failures->pending[i]);
    }
    failures->count = 0;
}

void failures_error(const struct failures *failures, uint32_t local, char out[TAIL_BYTES_MAX])
{
    const struct shim_worker *worker = &failures->workers->items[local];
    const struct failure_file *file = file_of(failures, local);

    (void)snprintf(out, TAIL_BYTES_MAX, "%s", worker->error);
    if (out[0] == '\0' && file != NULL)
        (void)snprintf(out, TAIL_BYTES_MAX, "%s", file->exception.text);
}
