#include "launcherd/node/node_inspect.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/utf8.h"
#include "launcherd/inspect/inspect.h"
#include "launcherd/node/child_files.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/spawn.h"

#define LATE_TEXT "looking at it took too long: something hangs there"

struct inspect_request {
    struct inspect_request *next;
    struct msg_log_read read;
    inspect_answered *on_answer; /* for a question of this node itself; NULL: the server asked */
    void *owner;
};

static struct inspect_key key_of(const struct msg_log_read *read)
{
    return (struct inspect_key){read->job_id, read->generation, read->rank, read->what};
}

static bool is_same(const struct inspect_key *a, const struct inspect_key *b)
{
    return a->job_id == b->job_id && a->generation == b->generation && a->rank == b->rank &&
           a->what == b->what;
}

/* -- answers ----------------------------------------------------------------------------------- */

static void send_data(const struct node_inspect *inspect, struct msg_log_data data)
{
    struct msg msg = {.type = MSG_TYPE_LOG_DATA, .log_data = data};

    inspect->host->send_server(inspect->host->owner, &msg);
}

__attribute__((format(printf, 3, 4))) static void
refuse(const struct node_inspect *inspect, const struct msg_log_read *read, const char *format, ...)
{
    char why[REASON_BYTES_MAX], text[REASON_BYTES_MAX];
    va_list args;

    va_start(args, format);
    utf8_printable_format(why, sizeof why, format, args);
    va_end(args);
    (void)snprintf(text, sizeof text,
                   "node %s has no %s of job %llu, generation %u, rank %u: %.120s",
                   inspect->host->core->options.name, log_kind_name(read->what),
                   (unsigned long long)read->job_id, read->generation, read->rank, why);
    send_data(inspect, (struct msg_log_data){.request_id = read->request_id,
                                             .offset = read->offset,
                                             .is_final = true,
                                             .problem = text});
}

static void send_page(struct node_inspect *inspect, const struct msg_log_read *read,
                      struct inspect_answer *answer)
{
    const uint64_t at = read->offset < answer->byte_count ? read->offset : answer->byte_count;
    const uint64_t left = answer->byte_count - at;
    const uint32_t count = left < read->bytes_max ? (uint32_t)left : read->bytes_max;

    answer->used_ms = uv_now(inspect->host->loop) + 1;
    send_data(inspect, (struct msg_log_data){
                           .request_id = read->request_id,
                           .offset = at,
                           .bytes = {.items = (const uint8_t *)answer->bytes + at, .count = count},
                           .is_final = count == left,
                           .problem = "",
                           .size = answer->byte_count});
}

/* From offset 0, finds an answer that is still fresh; to read on, one that was read a short while
 * ago. */
static struct inspect_answer *find_answer(struct node_inspect *inspect,
                                          const struct inspect_key *key, bool reads_on)
{
    const uint64_t now_ms = uv_now(inspect->host->loop);

    for (uint32_t i = 0; i < INSPECT_ANSWERS_KEPT; i++) {
        struct inspect_answer *answer = &inspect->answers[i];

        if (answer->used_ms != 0 && is_same(&answer->key, key) &&
            now_ms < (reads_on ? answer->used_ms + INSPECT_READ_ON_MS
                               : answer->made_ms + INSPECT_SAME_MS))
            return answer;
    }
    return NULL;
}

/* Replaces an earlier answer for that key, or the one that was used longest ago. Takes `bytes`. */
static struct inspect_answer *keep_answer(struct node_inspect *inspect,
                                          const struct inspect_key *key, char *bytes,
                                          uint32_t byte_count)
{
    const uint64_t now_ms = uv_now(inspect->host->loop) + 1; /* never 0 */
    struct inspect_answer *place = &inspect->answers[0];

    for (uint32_t i = 0; i < INSPECT_ANSWERS_KEPT; i++) {
        struct inspect_answer *answer = &inspect->answers[i];

        if (answer->used_ms != 0 && is_same(&answer->key, key)) {
            place = answer;
            break;
        }
        if (answer->used_ms < place->used_ms)
            place = answer;
    }
    free(place->bytes);
    *place = (struct inspect_answer){.key = *key,
                                     .made_ms = now_ms,
                                     .used_ms = now_ms,
                                     .byte_count = byte_count,
                                     .bytes = bytes};
    return place;
}

/* -- a process --------------------------------------------------------------------------------- */

static void begin_next(struct node_inspect *inspect);

static void answer_one(struct node_inspect *inspect, const struct inspect_request *request,
                       struct inspect_answer *answer, const char *problem)
{
    if (request->on_answer != NULL)
        request->on_answer(request->owner, answer != NULL ? answer->bytes : NULL,
                           answer != NULL ? answer->byte_count : 0, problem);
    else if (answer != NULL)
        send_page(inspect, &request->read, answer);
    else
        refuse(inspect, &request->read, "%s", problem);
}

/* Answers and frees every request that waits for the key. `answer` NULL: `problem` says why there
 * is none. */
static void answer_all(struct node_inspect *inspect, const struct inspect_key *key,
                       struct inspect_answer *answer, const char *problem)
{
    struct inspect_request **at = &inspect->waiting;

    while (*at != NULL) {
        struct inspect_request *request = *at;
        const struct inspect_key of = key_of(&request->read);

        if (!is_same(&of, key)) {
            at = &request->next;
            continue;
        }
        *at = request->next;
        inspect->waiting_count--;
        answer_one(inspect, request, answer, problem);
        free(request);
    }
}

static void on_run_closed(uv_handle_t *handle)
{
    struct inspect_run *run = handle->data;
    struct node_inspect *inspect = run->inspect;

    assert(run->handles_open > 0);
    if (--run->handles_open > 0)
        return;
    if (run->pidfd >= 0)
        close(run->pidfd);
    close(run->output_fd);
    run->is_busy = false;
    if (!inspect->host->closed)
        begin_next(inspect);
}

static void close_run(struct inspect_run *run)
{
    if (!run->is_busy || uv_is_closing((uv_handle_t *)&run->timer))
        return;
    uv_close((uv_handle_t *)&run->timer, on_run_closed);
    if (run->pidfd >= 0)
        uv_close((uv_handle_t *)&run->poll, on_run_closed);
}

static void take_output(struct inspect_run *run)
{
    char *bytes = calloc(1, INSPECT_BYTES_MAX), problem[REASON_BYTES_MAX];
    ssize_t got = bytes != NULL ? pread(run->output_fd, bytes, INSPECT_BYTES_MAX - 1, 0) : -1;

    if (got > 0 && bytes[0] == '{') {
        struct inspect_answer *answer =
            keep_answer(run->inspect, &run->key, bytes, (uint32_t)strlen(bytes));

        answer_all(run->inspect, &run->key, answer, NULL);
        return;
    }
    (void)snprintf(problem, sizeof problem, "%.200s",
                   got > 0 && bytes[0] != '\0' ? bytes : "the look at it was cut off; ask again");
    answer_all(run->inspect, &run->key, NULL, problem);
    free(bytes);
}

static void on_ended(uv_poll_t *poll, int status, int events)
{
    struct inspect_run *run = poll->data;

    (void)status;
    (void)events;
    take_output(run);
    close_run(run);
}

/* All places are taken by processes that do not end. */
static bool all_are_late(const struct node_inspect *inspect)
{
    for (uint32_t i = 0; i < INSPECT_RUNS; i++)
        if (!inspect->runs[i].is_busy || !inspect->runs[i].is_late)
            return false;
    return true;
}

/* True: no process is left. Else it is killed; on_ended or node_inspect_check follows. */
static bool kill_process(struct inspect_run *run)
{
    struct node_children *children = run->inspect->host->children;

    run->starting = NULL; /* its `done` finds out */
    if (run->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, run->pidfd, SIGKILL, NULL, 0);
    if (run->child == NULL || !node_child_cancel(children, run->child))
        return false;
    node_child_drop(children, &run->child);
    return true;
}

static void give_up(struct inspect_run *run, const char *why)
{
    struct node_inspect *inspect = run->inspect;

    run->is_late = true;
    if (kill_process(run))
        close_run(run);
    answer_all(inspect, &run->key, NULL, why);
    while (inspect->waiting != NULL && all_are_late(inspect)) {
        const struct inspect_key key = key_of(&inspect->waiting->read);

        answer_all(inspect, &key, NULL, LATE_TEXT);
    }
}

static void on_late(uv_timer_t *timer)
{
    give_up(timer->data, LATE_TEXT);
}

/* It may have ended since. */
static void watch(struct inspect_run *run)
{
    if (!run->child->has_ended)
        run->pidfd = proc_pidfd(node_child_pid(run->child));
    node_child_drop(run->inspect->host->children, &run->child);
    if (run->pidfd < 0) {
        take_output(run);
        close_run(run);
        return;
    }
    uv_poll_init(run->inspect->host->loop, &run->poll, run->pidfd);
    run->poll.data = run;
    run->handles_open++;
    uv_poll_start(&run->poll, UV_READABLE, on_ended);
}

static void on_started(struct file_work *work, const char *late)
{
    const struct child_files *files = (struct child_files *)work;
    struct node_inspect *inspect = files->owner;
    char text[160];

    for (uint32_t i = 0; i < INSPECT_RUNS; i++) {
        struct inspect_run *run = &inspect->runs[i];

        if (run->starting != work)
            continue;
        run->starting = NULL;
        if (late != NULL)
            give_up(run, node_child_explain(run->child, late, text, sizeof text));
        else if (files->status != STATUS_OK)
            give_up(run, files->err.text);
        else
            watch(run);
        return;
    }
}

static void describe(const struct inspect_run *run, const struct node_shim *shim,
                     struct child_order *order)
{
    const struct node_host *host = run->inspect->host;
    char rank[16], number[16];

    (void)snprintf(rank, sizeof rank, "%u", run->key.rank);
    (void)snprintf(number, sizeof number, "%d", (int)node_shim_rank_pid(shim, run->key.rank));
    child_order_add(order, log_kind_name(run->key.what));
    child_order_add(order, shim->dir);
    child_order_add(order, rank);
    child_order_add(order, number);
    child_order_add(order, host->core->options.name);
    child_order_add(order, host->allow_root ? "1" : "0");
}

/* False: it is not begun, as there is no memory or too much waits. */
static bool start(struct inspect_run *run, const struct node_shim *shim)
{
    const struct node_host *host = run->inspect->host;
    struct child_files *files = NULL;

    run->child = node_child_new(host->children);
    if (run->child != NULL)
        files = child_files_new(run->child, INSPECT_ARGUMENT, run->inspect);
    if (files == NULL)
        return false;
    describe(run, shim, &files->order);
    files->stdout_fd = fcntl(run->output_fd, F_DUPFD_CLOEXEC, 0);
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.done = on_started;
    run->starting = &files->work;
    return file_work_start(host->files, &files->work);
}

/* False: `err` says why. */
static bool begin(struct inspect_run *run, const struct node_shim *shim, struct err *err)
{
    uv_loop_t *loop = run->inspect->host->loop;

    run->output_fd = spawn_open_output(INSPECT_BYTES_MAX);
    run->pidfd = -1;
    if (run->output_fd < 0) {
        (void)err_set(err, STATUS_SYSTEM, errno, "no memory for it: %s", strerror(errno));
        return false;
    }
    if (!start(run, shim)) {
        (void)err_set(err, STATUS_MEMORY, 0, "no memory for it, or too many processes are started");
        (void)kill_process(run);
        close(run->output_fd);
        return false;
    }
    uv_timer_init(loop, &run->timer);
    run->timer.data = run;
    run->handles_open = 1;
    run->is_busy = true;
    run->is_late = false;
    uv_update_time(loop);
    uv_timer_start(&run->timer, on_late, INSPECT_MS, 0);
    return true;
}

/* The shim to look at. NULL: `err` says why there is nothing to look at. */
static const struct node_shim *find_live(const struct node_inspect *inspect,
                                         const struct inspect_key *key, struct err *err)
{
    const struct node_shim *shim = node_shim_find(inspect->shims, key->job_id, key->generation);

    *err = (struct err){.text = "its generation is not on this node"};
    if (shim == NULL || shim->exited)
        return NULL;
    if (key->what == LOG_STACK && node_shim_rank_pid(shim, key->rank) == 0) {
        (void)err_set(err, STATUS_NOT_FOUND, 0, "it does not run here");
        return NULL;
    }
    return shim;
}

static const struct inspect_run *find_run(const struct node_inspect *inspect,
                                          const struct inspect_key *key)
{
    for (uint32_t i = 0; i < INSPECT_RUNS; i++)
        if (inspect->runs[i].is_busy && is_same(&inspect->runs[i].key, key))
            return &inspect->runs[i];
    return NULL;
}

/* The oldest request that no process works on. */
static const struct inspect_request *find_idle(const struct node_inspect *inspect)
{
    for (const struct inspect_request *at = inspect->waiting; at != NULL; at = at->next) {
        const struct inspect_key key = key_of(&at->read);

        if (find_run(inspect, &key) == NULL)
            return at;
    }
    return NULL;
}

static void begin_next(struct node_inspect *inspect)
{
    const struct inspect_request *request;

    for (uint32_t i = 0; i < INSPECT_RUNS; i++) {
        struct inspect_run *run = &inspect->runs[i];

        while (!run->is_busy && (request = find_idle(inspect)) != NULL) {
            struct err err = {.text = ""};
            const struct node_shim *shim;

            run->key = key_of(&request->read);
            shim = find_live(inspect, &run->key, &err);
            if (shim == NULL || !begin(run, shim, &err))
                answer_all(inspect, &run->key, NULL, err.text); /* frees the request */
        }
    }
}

/* -- requests ---------------------------------------------------------------------------------- */

void node_inspect_init(struct node_inspect *inspect, const struct node_host *host,
                       const struct node_shims *shims)
{
    *inspect = (struct node_inspect){.host = host, .shims = shims};
    for (uint32_t i = 0; i < INSPECT_RUNS; i++)
        inspect->runs[i].inspect = inspect;
}

/* False: no room for it. */
static bool add_request(struct node_inspect *inspect, const struct inspect_request *wanted)
{
    struct inspect_request *request =
        inspect->waiting_count < INSPECT_WAITING_MAX ? calloc(1, sizeof *request) : NULL;
    struct inspect_request **at = &inspect->waiting;

    if (request == NULL)
        return false;
    *request = *wanted;
    while (*at != NULL)
        at = &(*at)->next;
    *at = request;
    inspect->waiting_count++;
    begin_next(inspect);
    return true;
}

void node_inspect_ask(struct node_inspect *inspect, const struct inspect_key *key,
                      inspect_answered *on_answer, void *owner)
{
    const struct inspect_request request = {.read = {.job_id = key->job_id,
                                                     .generation = key->generation,
                                                     .rank = key->rank,
                                                     .what = key->what},
                                            .on_answer = on_answer,
                                            .owner = owner};
    const struct inspect_answer *answer = find_answer(inspect, key, false);
    const struct inspect_run *run = find_run(inspect, key);

    if (answer != NULL)
        on_answer(owner, answer->bytes, answer->byte_count, "");
    else if ((run != NULL && run->is_late) || all_are_late(inspect))
        on_answer(owner, NULL, 0, LATE_TEXT);
    else if (!add_request(inspect, &request))
        on_answer(owner, NULL, 0, "too many questions wait already");
}

/* The shim with this number is of a job that was submitted at another time. */
static bool is_other_job(const struct node_inspect *inspect, const struct msg_log_read *request)
{
    const struct node_shim *shim =
        node_shim_find(inspect->shims, request->job_id, request->generation);

    return shim != NULL && shim->submitted_ms != 0 && request->submitted_ms != 0 &&
           shim->submitted_ms != request->submitted_ms;
}

void node_inspect_read(struct node_inspect *inspect, const struct msg_log_read *request)
{
    const struct inspect_key key = key_of(request);
    const struct inspect_run *run = find_run(inspect, &key);
    struct inspect_answer *answer = find_answer(inspect, &key, request->offset > 0);

    if (is_other_job(inspect, request))
        refuse(inspect, request, "another job with this number runs here");
    else if (answer != NULL)
        send_page(inspect, request, answer);
    else if (request->offset > 0)
        refuse(inspect, request, "what it was is gone; ask again from its beginning");
    else if ((run != NULL && run->is_late) || all_are_late(inspect))
        refuse(inspect, request, LATE_TEXT);
    else if (!add_request(inspect, &(struct inspect_request){.read = *request}))
        refuse(inspect, request, "%u questions wait already; ask again", inspect->waiting_count);
}

void node_inspect_check(struct node_inspect *inspect)
{
    for (uint32_t i = 0; i < INSPECT_RUNS; i++) {
        struct inspect_run *run = &inspect->runs[i];

        if (!run->is_busy || run->child == NULL || run->starting != NULL ||
            !node_child_over(run->child))
            continue;
        node_child_drop(inspect->host->children, &run->child);
        close_run(run);
    }
}

void node_inspect_close(struct node_inspect *inspect)
{
    while (inspect->waiting != NULL) {
        struct inspect_request *request = inspect->waiting;

        inspect->waiting = request->next;
        free(request);
    }
    inspect->waiting_count = 0;
    for (uint32_t i = 0; i < INSPECT_RUNS; i++) {
        struct inspect_run *run = &inspect->runs[i];

        if (run->is_busy && !kill_process(run))
            node_child_drop(inspect->host->children, &run->child);
        close_run(run);
    }
}

void node_inspect_free(struct node_inspect *inspect)
{
    for (uint32_t i = 0; i < INSPECT_ANSWERS_KEPT; i++)
        free(inspect->answers[i].bytes);
}
