#include "launcherd/node/node_helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/io/write_all.h"
#include "launcherd/doctor/doctor.h"
#include "launcherd/node/ask_share.h"
#include "launcherd/node/child_files.h"
#include "launcherd/process/proc.h"

static void release(struct node_helper *helper)
{
    if (helper->handles_open > 0 || helper->pid > 0 || helper->child != NULL)
        return;
    if (helper->pidfd >= 0)
        (void)close(helper->pidfd);
    helper->pidfd = -1;
    helper->is_used = false;
}

static void on_closed(uv_handle_t *handle)
{
    struct node_helper *helper = handle->data;

    helper->handles_open--;
    release(helper);
}

/* While it is being started, too. */
static void kill_process(struct node_helper *helper)
{
    struct node_children *children = helper->helpers->host->children;

    helper->starting = NULL; /* its `done` finds out */
    if (helper->child != NULL && node_child_cancel(children, helper->child))
        node_child_drop(children, &helper->child);
    if (helper->pid > 0 && helper->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, helper->pidfd, SIGKILL, NULL, 0);
}

/* Answers the question with what the process wrote, or with the reason why there is nothing. */
static void finish(struct node_helper *helper, const char *problem)
{
    struct node_helpers *helpers = helper->helpers;

    if (helper->is_answered)
        return;
    helper->is_answered = true;
    if (!helpers->closed)
        helpers->on_answer(helpers->owner, helper->request_id, &helper->answer, problem);
    buf_free(&helper->answer);
    uv_close((uv_handle_t *)&helper->pipe, on_closed);
    uv_close((uv_handle_t *)&helper->timer, on_closed);
}

/* A line that is no JSON object is the reason why there is no answer. */
static void finish_read(struct node_helper *helper)
{
    char problem[REASON_BYTES_MAX];
    const struct buf *answer = &helper->answer;

    if (answer->failed || answer->byte_count == 0)
        finish(helper, "its process for such questions ended without an answer");
    else if (answer->bytes[0] == '{')
        finish(helper, "");
    else {
        (void)snprintf(problem, sizeof problem, "%.*s",
                       (int)(answer->byte_count < 250 ? answer->byte_count : 250), answer->bytes);
        problem[strcspn(problem, "\n")] = '\0';
        finish(helper, problem);
    }
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
    struct node_helper *helper = handle->data;

    (void)wanted;
    *out = uv_buf_init(helper->chunk, sizeof helper->chunk);
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *from)
{
    struct node_helper *helper = stream->data;

    if (got > 0)
        buf_add(&helper->answer, from->base, (size_t)got);
    else if (got < 0)
        finish_read(helper);
}

static void on_timer(uv_timer_t *timer)
{
    struct node_helper *helper = timer->data;

    kill_process(helper);
    finish(helper, "its process for such questions does not answer");
}

/* Writes the question into a file in memory, the process's stdin. Returns its descriptor;
 * -1: failed. */
static int make_question(const struct msg_node_ask *ask)
{
    const struct msg msg = {.type = MSG_TYPE_NODE_ASK, .node_ask = *ask};
    struct buf frame = {0};
    struct err err = {0};
    int fd = memfd_create("question", MFD_CLOEXEC);
    const bool is_written = fd >= 0 && msg_encode(&msg, &frame, &err) == STATUS_OK &&
                            write_all(fd, frame.bytes, frame.byte_count) &&
                            lseek(fd, 0, SEEK_SET) == 0;

    if (fd >= 0 && !is_written) {
        (void)close(fd);
        fd = -1;
    }
    buf_free(&frame);
    return fd;
}

/* The arguments of its process. */
static void describe(const struct node_host *host, struct child_order *order)
{
    const struct launcher_options *options = &host->core->options;
    char slots[16], gpus[16];

    (void)snprintf(slots, sizeof slots, "%u", options->slots);
    (void)snprintf(gpus, sizeof gpus, "%u", options->gpus);
    child_order_add(order, options->name);
    child_order_add(order, options->address);
    child_order_add(order, host->state_dir);
    child_order_add(order, host->logs_dir);
    child_order_add(order, slots);
    child_order_add(order, gpus);
    child_order_add(order, host->allow_root ? "root" : "");
}

static void on_started(struct file_work *work, const char *late)
{
    const struct child_files *files = (struct child_files *)work;
    struct node_helpers *helpers = files->owner;
    struct node_helper *helper = NULL;
    char text[160];

    for (uint32_t i = 0; i < NODE_HELPERS_MAX; i++)
        if (helpers->items[i].starting == work)
            helper = &helpers->items[i];
    if (helper == NULL)
        return;
    helper->starting = NULL;
    if (late != NULL || files->status != STATUS_OK) {
        finish(helper, late == NULL ? files->err.text
                                    : node_child_explain(helper->child, late, text, sizeof text));
        kill_process(helper);
        release(helper);
        return;
    }
    if (!helper->child->has_ended) {
        helper->pid = node_child_pid(helper->child);
        helper->pidfd = proc_pidfd(helper->pid);
    }
    node_child_drop(helpers->host->children, &helper->child);
    release(helper);
}

/* Takes the descriptors. NULL, or why not. */
static const char *start(struct node_helper *helper, int question, int answer)
{
    const struct node_host *host = helper->helpers->host;
    struct child_files *files = NULL;

    helper->child = node_child_new(host->children);
    if (helper->child != NULL)
        files = child_files_new(helper->child, DOCTOR_ARGUMENT, helper->helpers);
    if (files == NULL) {
        (void)close(question);
        (void)close(answer);
        return "no memory";
    }
    describe(host, &files->order);
    files->stdin_fd = question;
    files->stdout_fd = answer;
    files->stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    files->work.limit_ms = FILE_WORK_LATE_MS;
    files->work.done = on_started;
    helper->starting = &files->work;
    return file_work_start(host->files, &files->work) ? NULL
                                                      : "too many processes are being started";
}

static void watch(struct node_helper *helper, int fd)
{
    uv_loop_t *loop = helper->helpers->host->loop;

    (void)uv_pipe_init(loop, &helper->pipe, 0);
    (void)uv_timer_init(loop, &helper->timer);
    helper->pipe.data = helper->timer.data = helper;
    helper->handles_open = 2;
    uv_update_time(loop);
    (void)uv_timer_start(&helper->timer, on_timer, DOCTOR_ANSWER_MS, 0);
    if (uv_pipe_open(&helper->pipe, fd) != 0) {
        (void)close(fd);
        finish(helper, "no pipe for the answer");
    } else {
        (void)uv_read_start((uv_stream_t *)&helper->pipe, on_alloc, on_read);
    }
}

/* NULL: there is no place for this question, and `*why` says it. */
static struct node_helper *find_free(struct node_helpers *helpers, uint64_t request_id,
                                     const char **why)
{
    uint64_t ids[NODE_HELPERS_MAX];
    struct node_helper *found = NULL;
    uint32_t count = 0;

    for (uint32_t i = 0; i < NODE_HELPERS_MAX; i++)
        if (helpers->items[i].is_used)
            ids[count++] = helpers->items[i].request_id;
        else
            found = &helpers->items[i];
    *why = ask_share(ids, count, NODE_HELPERS_MAX, request_id);
    return *why == NULL ? found : NULL;
}

void node_helpers_ask(struct node_helpers *helpers, const struct msg_node_ask *ask)
{
    const char *why;
    struct node_helper *helper = find_free(helpers, ask->request_id, &why);
    int question = helper != NULL ? make_question(ask) : -1, ends[2];

    if (helper == NULL) {
        helpers->on_answer(helpers->owner, ask->request_id, NULL, why);
        return;
    }
    if (question < 0 || pipe2(ends, O_CLOEXEC) != 0) {
        if (question >= 0)
            (void)close(question);
        helpers->on_answer(helpers->owner, ask->request_id, NULL, "no pipe for the answer");
        return;
    }
    *helper = (struct node_helper){.helpers = helpers,
                                   .pidfd = -1,
                                   .request_id = ask->request_id,
                                   .answer = {.limit = NODE_DATA_BYTES_MAX}};
    helper->is_used = true;
    why = start(helper, question, ends[1]);
    watch(helper, ends[0]);
    if (why == NULL)
        return;
    finish(helper, why);
    kill_process(helper);
}

void node_helpers_check(struct node_helpers *helpers)
{
    for (uint32_t i = 0; i < NODE_HELPERS_MAX; i++) {
        struct node_helper *helper = &helpers->items[i];

        if (!helper->is_used || helper->child == NULL || helper->starting != NULL ||
            !node_child_over(helper->child))
            continue;
        node_child_drop(helpers->host->children, &helper->child);
        release(helper);
    }
}

bool node_helpers_have(const struct node_helpers *helpers, pid_t pid)
{
    for (uint32_t i = 0; i < NODE_HELPERS_MAX; i++)
        if (helpers->items[i].is_used && helpers->items[i].pid == pid)
            return true;
    return false;
}

void node_helpers_reaped(struct node_helpers *helpers, pid_t pid)
{
    for (uint32_t i = 0; i < NODE_HELPERS_MAX; i++) {
        struct node_helper *helper = &helpers->items[i];

        if (!helper->is_used || helper->pid != pid)
            continue;
        helper->pid = 0;
        release(helper);
        return;
    }
}

void node_helpers_close(struct node_helpers *helpers)
{
    helpers->closed = true;
    for (uint32_t i = 0; i < NODE_HELPERS_MAX; i++) {
        if (!helpers->items[i].is_used)
            continue;
        kill_process(&helpers->items[i]);
        finish(&helpers->items[i], "launcherd ends");
    }
}
