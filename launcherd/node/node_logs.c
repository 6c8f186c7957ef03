#include "launcherd/node/node_logs.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "launcherd/node/log_files.h"
#include "launcherd/process/rundir.h"

#define LATE_MS 5000u    /* the server waits 10 s for an answer */
#define TURN_US 4000000u /* and after so long it is told to ask again: the rest is for the look */
#define LOOKS_MAX 8u     /* at a time */
#define UNSENT_BYTES_MAX (128u * 1024u) /* no look is begun while more waits for the connection */

/* A request, from its arrival to its answer. */
struct log_wait {
    struct node_logs *logs;
    struct log_wait *next;
    struct msg_log_read request;
    uv_timer_t timer;
    bool has_begun;          /* to wait: the first look has found nothing */
    bool is_watched;         /* the watch is on the file's own folder */
    bool must_answer;        /* its time is over: answer even without anything new */
    bool is_wanted;          /* a look is to be made after this one */
    bool is_due;             /* a look is to be made when it is its turn */
    uint64_t due_us;         /* since when */
    int wd;                  /* -1: no watch */
    struct file_work *looks; /* a thread looks now; NULL: none */
};

bool node_logs_are_shared(const char *logs_dir, const char *state_dir)
{
    const size_t length = strlen(state_dir);

    return strncmp(logs_dir, state_dir, length) != 0 || logs_dir[length] != '/' ||
           strstr(logs_dir + length, "/..") != NULL;
}

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

/* The shim that a request is about; NULL: it is not known here any more. */
static const struct launcher_shim *shim_of(const struct node_logs *logs,
                                           const struct msg_log_read *request)
{
    const struct launcher *core = logs->host->core;
    const struct launcher_shim *shim = launcher_find(core, request->job_id, request->generation);

    return shim != NULL && strcmp(shim->cluster, core->cluster) == 0 ? shim : NULL;
}

/* Whether the shim with this number is of another job, which was submitted at another time. */
static bool is_other(const struct node_logs *logs, const struct msg_log_read *request)
{
    const struct launcher_shim *shim = shim_of(logs, request);

    return shim != NULL && shim->submitted_ms != 0 && request->submitted_ms != 0 &&
           shim->submitted_ms != request->submitted_ms;
}

/* Where the thread looks: when the job was submitted, its shim was told, or the server says. */
static void fill_place(const struct node_logs *logs, struct log_files *files)
{
    const struct msg_log_read *request = &files->request;
    const struct launcher_shim *shim = shim_of(logs, request);
    const bool is_told = shim != NULL && shim->submitted_ms != 0;
    const struct rundir_logs place = node_logs_of(logs->host);

    (void)snprintf(files->cluster, sizeof files->cluster, "%s", logs->host->core->cluster);
    (void)snprintf(files->logs_dir, sizeof files->logs_dir, "%s", place.dir);
    (void)snprintf(files->owner_id, sizeof files->owner_id, "%s", place.owner);
    files->is_other = is_other(logs, request);
    files->place =
        (struct log_place){.logs = {.dir = files->logs_dir, .owner = files->owner_id},
                           .cluster = files->cluster,
                           .job_id = request->job_id,
                           .submitted_ms = is_told ? shim->submitted_ms : request->submitted_ms};
    rundir_log_dir(files->job_dir, &place, files->cluster, request->job_id,
                   shim != NULL ? shim->submitted_ms : request->submitted_ms);
    if (request->what == LOG_OUTPUT)
        rundir_join(files->dir, files->job_dir, ".");
    else
        rundir_rank_dir(files->dir, files->job_dir, request->generation);
}

/* Whether more may still be written: the shim is known, has that rank, and has not ended. */
static bool may_grow(const struct node_logs *logs, const struct msg_log_read *request)
{
    const struct launcher_shim *shim = shim_of(logs, request);
    return shim != NULL && shim->phase != SHIM_ENDED && request->rank >= shim->rank_base &&
           request->rank - shim->rank_base < shim->local_count;
}

/* A thread is to look at the file when it is its turn, or once more after the present look: node_logs_room follows. */
static void look(struct log_wait *wait)
{
    wait->is_wanted = wait->looks != NULL;
    if (wait->is_wanted || wait->is_due)
        return;
    wait->is_due = true;
    wait->due_us = clock_boot_us();
}

static void unwatch(struct node_logs *logs, int wd)
{
    struct log_files *files = wd >= 0 ? log_files_new_unwatch(logs->watches, wd) : NULL;

    if (files != NULL)
        (void)file_work_start(logs->host->files, &files->work);
}

static void on_wait_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void end_wait(struct log_wait *wait)
{
    struct log_wait **at = &wait->logs->waits;

    while (*at != wait)
        at = &(*at)->next;
    *at = wait->next;
    unwatch(wait->logs, wait->wd);
    if (wait->has_begun)
        uv_close((uv_handle_t *)&wait->timer, on_wait_closed);
    else
        free(wait);
}

static void answer_too_long(struct node_logs *logs, const struct log_files *files, const char *what)
{
    const struct msg_log_read *request = &files->request;
    char text[REASON_BYTES_MAX];

    (void)snprintf(
        text, sizeof text,
        "node %s: the %s of job %llu, generation %u, rank %u is a file of %llu bytes, of which "
        "only the first %llu are read",
        logs->host->core->options.name, what, (unsigned long long)request->job_id,
        request->generation, request->rank, (unsigned long long)files->size,
        (unsigned long long)RANK_FILE_BYTES_MAX);
    answer(logs, (struct msg_log_data){
                     .request_id = request->request_id, .is_final = true, .problem = text});
}

/* It is not the last word: whoever asks again may get it. */
static void answer_unreadable(struct node_logs *logs, const struct log_files *files,
                              const char *what)
{
    const struct msg_log_read *request = &files->request;
    char text[REASON_BYTES_MAX];

    (void)snprintf(text, sizeof text,
                   "node %s: the %s of job %llu, generation %u, rank %u cannot be read: %s",
                   logs->host->core->options.name, what, (unsigned long long)request->job_id,
                   request->generation, request->rank, strerror(files->code));
    answer(logs, (struct msg_log_data){.request_id = request->request_id,
                                       .offset = request->offset,
                                       .problem = text});
}

/* False: there is nothing to answer yet. */
static bool try_answer(struct node_logs *logs, const struct log_files *files, bool must)
{
    uint32_t count = files->got > 0 ? (uint32_t)files->got : 0;
    struct msg_bytes bytes = {.items = files->bytes, .count = count};
    const struct msg_log_read *request = &files->request;
    bool may_come = files->may_grow && files->access != LOG_FOREIGN &&
                    files->access != LOG_TOO_LONG && files->access != LOG_UNREADABLE;
    static const char *const names[] = {
        [LOG_OUTPUT] = "log", [LOG_METRICS] = "metrics", [LOG_ERROR_FILE] = "error file"};
    char text[REASON_BYTES_MAX];

    assert(request->what < sizeof names / sizeof names[0]);
    if (count == 0 && may_come && !must)
        return false;
    if (files->access == LOG_READABLE || files->access == LOG_NEVER_WRITTEN) {
        answer(logs, (struct msg_log_data){.request_id = request->request_id,
                                           .offset = files->offset,
                                           .bytes = bytes,
                                           .is_final = !files->may_grow &&
                                                       files->offset + count >= files->size,
                                           .problem = "",
                                           .size = files->size,
                                           .runs = {files->runs, files->run_count}});
        return true;
    }
    if (files->access == LOG_UNREADABLE) {
        answer_unreadable(logs, files, names[request->what]);
        return true;
    }
    if (files->access == LOG_TOO_LONG) {
        answer_too_long(logs, files, names[request->what]);
        return true;
    }
    (void)snprintf(
        text, sizeof text, "node %s has no %s of job %llu, generation %u, rank %u%s",
        logs->host->core->options.name, names[request->what], (unsigned long long)request->job_id,
        request->generation, request->rank,
        files->access == LOG_FOREIGN ? ": what is there is no plain file of the job's user" : "");
    answer(logs, (struct msg_log_data){.request_id = request->request_id,
                                       .is_final = !may_come,
                                       .problem = may_come ? "" : text});
    return true;
}

static void answer_late(struct node_logs *logs, const struct log_wait *wait, const char *late)
{
    char text[REASON_BYTES_MAX];

    (void)snprintf(text, sizeof text, "node %s: %s", logs->host->core->options.name, late);
    answer(logs, (struct msg_log_data){.request_id = wait->request.request_id,
                                       .offset = wait->request.offset,
                                       .problem = text});
}

static void on_wait_timer(uv_timer_t *timer)
{
    struct log_wait *wait = timer->data;

    wait->must_answer = true;
    look(wait);
    node_logs_room(wait->logs);
}

static void look_at_watched(struct node_logs *logs, int wd)
{
    for (struct log_wait *wait = logs->waits; wait != NULL; wait = wait->next)
        if (wait->wd == wd)
            look(wait);
}

static void on_changed(uv_poll_t *poll, int status, int events)
{
    struct node_logs *logs = poll->data;
    _Alignas(struct inotify_event) char bytes[8192];
    ssize_t got;

    (void)status;
    (void)events;
    while ((got = read(log_watches_fd(logs->watches), bytes, sizeof bytes)) > 0) {
        for (ssize_t at = 0; at < got;) {
            const struct inotify_event *event = (const struct inotify_event *)(bytes + at);

            look_at_watched(logs, event->wd);
            at += (ssize_t)(sizeof *event + event->len);
        }
    }
    node_logs_room(logs);
}

static void open_watches(struct node_logs *logs)
{
    if (logs->watches != NULL)
        return;
    logs->watches = log_watches_new();
    if (logs->watches == NULL)
        return; /* the timers answer */
    if (uv_poll_init(logs->host->loop, &logs->poll, log_watches_fd(logs->watches)) != 0) {
        log_watches_drop(logs->watches);
        logs->watches = NULL;
        return;
    }
    logs->poll.data = logs;
    (void)uv_poll_start(&logs->poll, UV_READABLE, on_changed);
    uv_unref((uv_handle_t *)&logs->poll);
}

static void begin_wait(struct log_wait *wait)
{
    struct node_logs *logs = wait->logs;

    wait->has_begun = true;
    uv_timer_init(logs->host->loop, &wait->timer);
    wait->timer.data = wait;
    uv_update_time(logs->host->loop);
    uv_timer_start(&wait->timer, on_wait_timer, wait->request.wait_us / 1000, 0);
    open_watches(logs);
    wait->is_wanted = true; /* with a watch */
}

static void take_watch(struct log_wait *wait, const struct log_files *files)
{
    if (files->wd < 0)
        return;
    unwatch(wait->logs, wait->wd);
    wait->wd = files->wd;
    wait->is_watched = files->is_watched;
}

static void take_looked(struct file_work *work, const char *late)
{
    const struct log_files *files = (struct log_files *)work;
    struct node_logs *logs = files->owner;
    struct log_wait *wait = logs->waits;

    logs->look_count--;
    while (wait != NULL && wait->looks != work)
        wait = wait->next;
    if (wait == NULL) {
        unwatch(logs, late == NULL ? files->wd : -1);
        return;
    }
    wait->looks = NULL;
    if (late == NULL)
        take_watch(wait, files);
    else
        answer_late(logs, wait, late);
    if (late != NULL || try_answer(logs, files, wait->must_answer)) {
        end_wait(wait);
        return;
    }
    if (!wait->has_begun)
        begin_wait(wait);
    if (wait->is_wanted)
        look(wait);
}

static void on_looked(struct file_work *work, const char *late)
{
    struct node_logs *logs = ((struct log_files *)work)->owner;

    take_looked(work, late);
    node_logs_room(logs);
}

static void begin_look(struct log_wait *wait)
{
    struct node_logs *logs = wait->logs;
    struct log_files *files = log_files_new(logs->watches, logs);

    wait->is_due = false;
    if (files != NULL) {
        files->work.limit_ms = LATE_MS;
        files->work.done = on_looked;
        files->request = wait->request;
        files->may_grow = may_grow(logs, &wait->request);
        files->wants_watch = logs->watches != NULL && wait->has_begun && !wait->is_watched;
        fill_place(logs, files);
        wait->looks = &files->work;
        if (file_work_start(logs->host->files, &files->work)) {
            logs->look_count++;
            return;
        }
        wait->looks = NULL;
    }
    answer_late(logs, wait, "too much waits for the disks already");
    end_wait(wait);
}

/* See MSG_LOG_READ. */
static uint8_t user_of(const struct log_wait *wait)
{
    return (uint8_t)wait->request.request_id;
}

/* How far it is from having its turn: the user after the last one is first, and of that user the job after the last one. */
static bool is_sooner(const struct node_logs *logs, const struct log_wait *one,
                      const struct log_wait *other)
{
    const uint8_t user = user_of(one), users = (uint8_t)(user - logs->turn_user - 1);
    const uint8_t other_users = (uint8_t)(user_of(other) - logs->turn_user - 1);
    const uint64_t jobs = one->request.job_id - logs->turn_jobs[user] - 1; /* modulo 2^64 */

    return users != other_users ? users < other_users
                                : jobs < other->request.job_id - logs->turn_jobs[user] - 1;
}

/* The oldest of those whose turn it is. */
static struct log_wait *next_due(const struct node_logs *logs)
{
    struct log_wait *next = NULL;

    for (struct log_wait *wait = logs->waits; wait != NULL; wait = wait->next)
        if (wait->is_due && (next == NULL || is_sooner(logs, wait, next)))
            next = wait;
    return next;
}

void node_logs_room(struct node_logs *logs)
{
    struct log_wait *wait;

    if (logs->is_turning)
        return; /* a look that has failed has just sent its answer */
    logs->is_turning = true;
    while (logs->look_count < LOOKS_MAX &&
           logs->host->unsent_bytes(logs->host->owner) <= UNSENT_BYTES_MAX &&
           (wait = next_due(logs)) != NULL) {
        logs->turn_user = user_of(wait);
        logs->turn_jobs[logs->turn_user] = wait->request.job_id;
        if (clock_boot_us() - wait->due_us <= TURN_US) {
            begin_look(wait);
            continue;
        }
        answer_late(logs, wait, "other logs are sent first; ask again");
        end_wait(wait);
    }
    logs->is_turning = false;
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
    wait->wd = -1;
    wait->request = *request;
    wait->must_answer = request->wait_us == 0;
    while (*at != NULL)
        at = &(*at)->next;
    *at = wait;
    look(wait);
    node_logs_room(logs);
}

void node_logs_check(struct node_logs *logs)
{
    for (struct log_wait *wait = logs->waits; wait != NULL; wait = wait->next)
        if (!may_grow(logs, &wait->request))
            look(wait);
    node_logs_room(logs);
}

void node_logs_close(struct node_logs *logs)
{
    for (struct log_wait *wait = logs->waits, *next; wait != NULL; wait = next) {
        next = wait->next;
        end_wait(wait);
    }
    if (logs->watches != NULL)
        uv_close((uv_handle_t *)&logs->poll, NULL);
}

void node_logs_free(struct node_logs *logs)
{
    log_watches_drop(logs->watches);
    logs->watches = NULL;
}
