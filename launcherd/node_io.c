#include "launcherd/node_io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/log.h"
#include "launcherd/gpu_watch.h"
#include "launcherd/node_state.h"

#define END_SHIMS_MS 2000u

static struct log_about about(const struct node *node)
{
    return (struct log_about){.node = node->options.core.name, .rank = -1};
}

/* -- the server
 * ----------------------------------------------------------------------------------------- */

static void on_server_message(struct conn *conn, const struct msg *msg)
{
    struct node *node = conn->owner;
    if (node->ending)
        return;
    if (msg->type == MSG_TYPE_LOG_READ) {
        node_log_read(node, &msg->log_read);
        return;
    }
    node_step(node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = msg});
    if (msg->type == MSG_TYPE_NODE_WELCOME) {
        if (node->unreachable_said)
            log_line(LOG_INFO, about(node), "connected to %s", node->options.server);
        node->unreachable_said = false;
        if (!node->ready_said)
            node->options.on_ready(node->options.owner);
        node->ready_said = true;
    }
}

static void on_server_closed(struct conn *conn, enum status why, const char *text)
{
    struct node *node = conn->owner;
    node->server_open = false;
    if (node->ending)
        return;
    if (!node->unreachable_said)
        log_line(LOG_WARNING, about(node),
                 "the connection to %s ended (%s: %s): trying again, jobs go on",
                 node->options.server, status_name(why), text);
    node->unreachable_said = true;
    node_step(node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_CLOSED});
}

static const struct conn_handlers server_handlers = {on_server_message, on_server_closed};

static void connect_server(struct node *node)
{
    struct err err;
    assert(!node->server_open);
    if (node->ending)
        return;
    node->server.owner = node;
    if (conn_open_to(&node->server, node->loop, node->options.server, FRAME_LARGE_BYTES_MAX,
                     &server_handlers, &err) != STATUS_OK) {
        if (!node->unreachable_said)
            log_line(LOG_WARNING, about(node), "%s: trying again", err.text);
        node->unreachable_said = true;
        node_post(node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_CLOSED});
        return;
    }
    node->server_open = true;
    node_post(node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_OPEN});
}

void node_send_server(struct node *node, const struct msg *msg)
{
    struct msg copy = *msg;
    struct err err;
    if (!node->server_open)
        return;
    if (conn_send(&node->server, &copy, &err) != STATUS_OK && err.status != STATUS_CLOSED)
        log_line(LOG_WARNING, about(node), "a %s was not sent: %s", msg_type_word(msg->type),
                 err.text);
}

/* -- the core
 * ----------------------------------------------------------------------------------------- */

static void act(struct node *node, const struct launcher_action *action)
{
    switch (action->type) {
    case LAUNCHER_CONNECT_SERVER:
        connect_server(node);
        break;
    case LAUNCHER_CLOSE_SERVER:
        if (node->server_open)
            conn_close(&node->server, STATUS_TIMEOUT, action->text);
        break;
    case LAUNCHER_SEND_SERVER:
        node_send_server(node, &action->msg);
        break;
    case LAUNCHER_SPAWN_SHIM:
        node_shim_spawn(node, &action->msg);
        break;
    case LAUNCHER_CONNECT_SHIM:
        node_shim_connect(node, action->job_id, action->generation);
        break;
    case LAUNCHER_SEND_SHIM:
        node_shim_send(node, action->job_id, action->generation, &action->msg);
        break;
    case LAUNCHER_ASK_GPU:
        node_gpu_ask(node, action);
        break;
    case LAUNCHER_KEEP_SLOTS:
        node_gpu_keep(node, &action->msg);
        break;
    case LAUNCHER_REMOVE:
        node_shim_remove(node, action->job_id, action->generation);
        break;
    case LAUNCHER_LOG:
        log_line(LOG_INFO, about(node), "%s", action->text);
        break;
    }
}

static void on_timer(uv_timer_t *timer)
{
    node_step(timer->data, (struct launcher_event){.type = LAUNCHER_EVENT_TICK});
}

static void arm_timer(struct node *node, uint64_t at_us)
{
    uint64_t now_us = clock_boot_us();
    if (node->closed)
        return;
    if (at_us == UINT64_MAX) {
        uv_timer_stop(&node->timer);
        return;
    }
    uv_update_time(node->loop);
    uv_timer_start(&node->timer, on_timer, at_us > now_us ? (at_us - now_us + 999) / 1000 : 0, 0);
}

static void step_once(struct node *node, struct launcher_event *event)
{
    event->now_us = clock_boot_us();
    launcher_step(&node->core, event, &node->actions);
    for (uint32_t i = 0; i < node->actions.count; i++)
        act(node, &node->actions.items[i]);
}

void node_step(struct node *node, struct launcher_event event)
{
    step_once(node, &event);
    while (node->event_at < node->event_count) {
        struct launcher_event next = node->events[node->event_at++];
        step_once(node, &next);
    }
    node->event_at = node->event_count = node->event_text_count = 0;
    arm_timer(node, node->actions.timer_at_us);
    node_logs_check(node);
}

void node_post(struct node *node, struct launcher_event event)
{
    assert(node->event_count < sizeof node->events / sizeof node->events[0]);
    if (event.text != NULL) {
        assert(node->event_text_count < SHIMS_PER_NODE_MAX);
        char *text = node->event_texts[node->event_text_count++];
        (void)snprintf(text, sizeof node->event_texts[0], "%s", event.text);
        event.text = text;
    }
    node->events[node->event_count++] = event;
}

/* -- beginning and end
 * ----------------------------------------------------------------------------------------- */

static void on_child_signal(uv_signal_t *handle, int number)
{
    (void)number;
    node_shims_reap(handle->data);
}

static enum status lock_state(struct node *node, struct err *err)
{
    char path[PATH_MAX], text[32] = "";
    rundir_join(path, node->options.state_dir, "lock");
    node->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (node->lock_fd < 0)
        return err_set(err, STATUS_IO, errno, "cannot open %.180s: %s", path, strerror(errno));
    if (flock(node->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t got = read(node->lock_fd, text, sizeof text - 1);
        text[got > 0 ? got : 0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        close(node->lock_fd);
        node->lock_fd = -1;
        return err_set(err, STATUS_BUSY, 0,
                       "another launcherd (pid %s) uses the state directory %.120s: stop it, or "
                       "choose another with --state-dir",
                       text, node->options.state_dir);
    }
    int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(node->lock_fd, 0) != 0 ||
        pwrite(node->lock_fd, text, (size_t)length, 0) != length)
        return err_set(err, STATUS_IO, errno, "cannot write %.180s: %s", path, strerror(errno));
    return STATUS_OK;
}

/* Users other than root's pass through to what is theirs (error files); they cannot list it. */
static enum status make_folders(const struct node *node, struct err *err)
{
    mode_t mode = geteuid() == 0 ? 0711 : 0700;
    char path[PATH_MAX];
    rundir_join(path, node->options.state_dir, "logs");
    enum status status = rundir_make(path, mode, err);
    if (status != STATUS_OK)
        return status;
    rundir_join(path, node->options.state_dir, "run");
    return rundir_make(path, 0700, err);
}

static void open_handles(struct node *node)
{
    uv_timer_init(node->loop, &node->timer);
    uv_timer_init(node->loop, &node->sweep_timer);
    uv_timer_init(node->loop, &node->end_timer);
    uv_signal_init(node->loop, &node->child_signal);
    node->timer.data = node->sweep_timer.data = node->end_timer.data = node;
    node->child_signal.data = node;
    int rc = uv_signal_start(&node->child_signal, on_child_signal, SIGCHLD);
    assert(rc == 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what a killed shim leaves comes to us */
}

enum status node_open(struct node **out, uv_loop_t *loop, const struct node_options *options,
                      struct err *err)
{
    struct node *node = calloc(1, sizeof *node);
    struct err gpu_err;
    if (node == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory");
    node->options = *options;
    node->loop = loop;
    node->lock_fd = -1;
    enum status status = make_folders(node, err);
    if (status == STATUS_OK)
        status = lock_state(node, err);
    if (status != STATUS_OK) {
        node_free(node);
        return status;
    }
    launcher_init(&node->core, &options->core);
    open_handles(node);
    *out = node;
    if (node_gpu_open(node, &gpu_err) != STATUS_OK)
        log_line(LOG_WARNING, about(node), "GPUs are not watched: %s", gpu_err.text);
    node_shims_adopt(node);
    node_step(node, (struct launcher_event){.type = LAUNCHER_EVENT_ADOPTED});
    return STATUS_OK;
}

void node_close(struct node *node)
{
    if (node->closed)
        return;
    node->closed = true;
    uv_close((uv_handle_t *)&node->timer, NULL);
    uv_close((uv_handle_t *)&node->sweep_timer, NULL);
    uv_close((uv_handle_t *)&node->end_timer, NULL);
    uv_close((uv_handle_t *)&node->child_signal, NULL);
    gpu_watch_detach(node->options.gpus);
    node_logs_close(node);
    node_shims_close(node);
    if (node->server_open)
        conn_close(&node->server, STATUS_OK, "launcherd ends");
}

static void on_end_timer(uv_timer_t *timer)
{
    struct node *node = timer->data;
    log_line(LOG_WARNING, about(node), "%u shims have not ended within %u ms: killing them",
             node_shims_left(node), END_SHIMS_MS);
    node_shims_signal(node, SIGKILL);
}

void node_end(struct node *node)
{
    if (node->ending)
        return;
    node->ending = true;
    if (node->server_open)
        conn_close(&node->server, STATUS_OK, "launcherd ends");
    if (!node->options.exit_with_parent || node_shims_signal(node, SIGTERM) == 0) {
        node_close(node);
        return;
    }
    uv_timer_start(&node->end_timer, on_end_timer, END_SHIMS_MS, 0);
}

void node_free(struct node *node)
{
    node_shims_free(node);
    if (node->lock_fd >= 0)
        close(node->lock_fd);
    free(node);
}
