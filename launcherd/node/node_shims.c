#include "launcherd/node/node_shims.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/msg_schema.h"
#include "common/msg_version.h"
#include "launcherd/node/node_expire.h"
#include "launcherd/node/node_guards.h"
#include "launcherd/node/shim_files.h"
#include "launcherd/process/rundir.h"

void node_shims_init(struct node_shims *shims, const struct node_host *host)
{
    *shims = (struct node_shims){.host = host};
    uv_timer_init(host->loop, &shims->sweep_timer);
    shims->sweep_timer.data = shims;
    node_guards_init(shims);
}

struct log_about node_shim_about(const struct node_shim *shim)
{
    struct log_about about = node_about(shim->shims->host);
    about.job_id = shim->job_id;
    about.generation = shim->generation;
    return about;
}

struct launcher_event node_shim_event(const struct node_shim *shim, enum launcher_event_type type)
{
    return (struct launcher_event){.type = type,
                                   .job_id = shim->job_id,
                                   .generation = shim->generation,
                                   .age_us = shim->age_us};
}

static void step(const struct node_shim *shim, struct launcher_event event)
{
    const struct node_host *host = shim->shims->host;
    host->step(host->owner, event);
}

static void post(const struct node_shims *shims, struct launcher_event event)
{
    shims->host->post(shims->host->owner, event);
}

struct node_shim *node_shim_find(const struct node_shims *shims, uint64_t job_id,
                                 uint32_t generation)
{
    for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next)
        if (shim->job_id == job_id && shim->generation == generation && !shim->removed)
            return shim;
    return NULL;
}

/* Frees removed shims without open handles. Must not be called from a callback of a shim, which may
 * still use it. */
static void collect(struct node_shims *shims)
{
    for (struct node_shim **at = &shims->first; *at != NULL;) {
        struct node_shim *shim = *at;
        if (!shim->removed || shim->conn_open || shim->poll_open) {
            at = &shim->next;
            continue;
        }
        *at = shim->next;
        node_guards_free(shim);
        lease_page_unmap(shim->page);
        free(shim);
    }
}

struct node_shim *node_shim_add(struct node_shims *shims, const struct msg_start *start)
{
    struct node_shim *shim = calloc(1, sizeof *shim);

    if (shim == NULL)
        return NULL;
    shim->shims = shims;
    shim->job_id = start->job_id;
    shim->generation = start->generation;
    shim->submitted_ms = start->submitted_ms;
    (void)snprintf(shim->cluster, sizeof shim->cluster, "%s", start->cluster);
    rundir_path(shim->dir, shims->host->state_dir, start->cluster, start->job_id,
                start->generation);
    shim->pidfd = shim->guard.page_fd = -1;
    shim->next = shims->first;
    shims->first = shim;
    return shim;
}

struct node_shim *node_shim_new(struct node_shims *shims, const struct msg_start *start)
{
    collect(shims);
    return node_shim_add(shims, start);
}

static void note_report(struct node_shim *shim, const struct msg_shim_report *report)
{
    if (report->phase == SHIM_RUNNING)
        node_guards_want(shim);
    shim->rank_base = report->ranks.count > 0 ? report->ranks.items[0].rank : 0;
    shim->rank_count = report->ranks.count;
    for (uint32_t i = 0; i < report->ranks.count; i++)
        shim->pids[i] =
            report->ranks.items[i].state == RANK_RUNNING ? (pid_t)report->ranks.items[i].pid : 0;
}

pid_t node_shim_rank_pid(const struct node_shim *shim, uint32_t rank)
{
    return rank >= shim->rank_base && rank - shim->rank_base < shim->rank_count
               ? shim->pids[rank - shim->rank_base]
               : 0;
}

/* Whether the shim speaks another protocol, or is of another build with the same one. Its connection is closed
 * then. */
static bool is_refused(struct node_shim *shim, const struct msg_shim_hello *hello)
{
    const uint32_t own = msg_protocol();
    char text[224];

    if (!msg_protocol_is_near(own, hello->protocol))
        (void)snprintf(text, sizeof text, "it speaks protocol %u, and this launcherd %u to %u",
                       hello->protocol, own - 1, own + 1);
    else if (msg_schema_differs(own, hello->protocol, hello->schema))
        (void)snprintf(text, sizeof text, "it is of another build with the same protocol");
    else
        return false;
    shim->is_other_build = true;
    (void)snprintf(text + strlen(text), sizeof text - strlen(text),
                   ": start the launcherd that started it, or cancel the job; without either it "
                   "ends with its lease");
    conn_close(&shim->conn, STATUS_UNSUPPORTED, text);
    return true;
}

static void on_message(struct conn *conn, const struct msg *msg)
{
    struct node_shim *shim = conn->owner;
    if (shim->removed || shim->shims->host->closed)
        return;
    if (!shim->hello_received &&
        (msg->type != MSG_TYPE_SHIM_HELLO || msg->shim_hello.job_id != shim->job_id ||
         msg->shim_hello.generation != shim->generation)) {
        conn_close(conn, STATUS_BAD_INPUT, "another shim answers");
        return;
    }
    if (msg->type == MSG_TYPE_SHIM_HELLO && is_refused(shim, &msg->shim_hello))
        return;
    if (shim->hello_received && msg->type == MSG_TYPE_INPUT_STATE) {
        shim->shims->host->send_server(shim->shims->host->owner, msg);
        return;
    }
    struct launcher_event event = node_shim_event(
        shim, shim->hello_received ? LAUNCHER_EVENT_SHIM_MSG : LAUNCHER_EVENT_SHIM_OPEN);
    shim->hello_received = true;
    if (msg->type == MSG_TYPE_SHIM_REPORT)
        note_report(shim, &msg->shim_report);
    event.msg = msg;
    step(shim, event);
}

static void on_closed(struct conn *conn, enum status why, const char *text)
{
    struct node_shim *shim = conn->owner;
    shim->conn_open = false;
    if (!shim->removed && !shim->exited && !shim->shims->host->closed) {
        if (why != STATUS_CLOSED && !shim->is_told_build)
            log_line(LOG_WARNING, node_shim_about(shim), "the connection to its shim ended: %s",
                     text);
        shim->is_told_build = shim->is_other_build;
        step(shim, node_shim_event(shim, LAUNCHER_EVENT_SHIM_CLOSED));
    }
}

static const struct conn_handlers shim_handlers = {on_message, on_closed};

bool node_shim_open(struct node_shim *shim, int fd)
{
    struct err err;

    shim->conn.owner = shim;
    shim->hello_received = false;
    shim->conn_open = conn_open_fd(&shim->conn, shim->shims->host->loop, fd, FRAME_BYTES_MAX,
                                   &shim_handlers, &err) == STATUS_OK;
    if (!shim->conn_open)
        close(fd);
    return shim->conn_open;
}

static void on_connected(struct file_work *work, const char *late)
{
    struct connect_files *files = (struct connect_files *)work;
    struct node_shim *shim = node_shim_find(files->shims, files->job_id, files->generation);
    const int fd = files->fd;

    if (shim == NULL || shim->connecting != work)
        return;
    shim->connecting = NULL;
    if (files->shims->host->closed || shim->exited || shim->conn_open)
        return;
    if (late == NULL && files->status == STATUS_OK) {
        files->fd = -1;
        if (node_shim_open(shim, fd))
            return;
    }
    step(shim, node_shim_event(shim, LAUNCHER_EVENT_SHIM_CLOSED));
}

void node_shim_connect(struct node_shims *shims, uint64_t job_id, uint32_t generation)
{
    struct node_shim *shim = node_shim_find(shims, job_id, generation);
    struct connect_files *files;

    if (shim == NULL || shim->exited || shim->conn_open || shim->starting != NULL ||
        shim->child != NULL || shim->connecting != NULL)
        return;
    files = connect_files_new();
    if (files != NULL) {
        files->work.lane = FILE_LANE_CONNECT;
        files->work.limit_ms = FILE_WORK_LATE_MS;
        files->work.done = on_connected;
        files->shims = shims;
        files->job_id = job_id;
        files->generation = generation;
        (void)snprintf(files->address, sizeof files->address, "unix:%s/shim.sock", shim->dir);
        shim->connecting = &files->work;
        if (file_work_start(shims->host->files, &files->work))
            return;
        shim->connecting = NULL;
    }
    post(shims, node_shim_event(shim, LAUNCHER_EVENT_SHIM_CLOSED));
}

void node_shim_send(struct node_shims *shims, uint64_t job_id, uint32_t generation,
                    const struct msg *msg)
{
    struct node_shim *shim = node_shim_find(shims, job_id, generation);
    struct msg copy = *msg;
    struct err err;
    if (shim != NULL && msg->type == MSG_TYPE_LEASE)
        lease_page_extend(shim->page, msg->lease.until_us);
    if (shim == NULL || !shim->conn_open)
        return;
    if (conn_send(&shim->conn, &copy, &err) != STATUS_OK && err.status != STATUS_CLOSED)
        log_line(LOG_WARNING, node_shim_about(shim), "a %s was not sent to its shim: %s",
                 msg_type_name(msg->type), err.text);
}

void node_shim_input(struct node_shims *shims, const struct msg *msg)
{
    const struct msg_input *input = &msg->input;
    struct node_shim *shim = node_shim_find(shims, input->job_id, input->generation);
    struct msg answer = {.type = MSG_TYPE_INPUT_STATE};

    if (shim != NULL && shim->conn_open && shim->hello_received) {
        node_shim_send(shims, input->job_id, input->generation, msg);
        return;
    }
    answer.input_state.request_id = input->request_id;
    answer.input_state.problem = "its ranks do not run there now";
    shims->host->send_server(shims->host->owner, &answer);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct node_shim *shim = handle->data;
    shim->poll_open = false;
    close(shim->pidfd);
    shim->pidfd = -1;
}

void node_shim_close_poll(struct node_shim *shim)
{
    assert(!shim->poll_open || shim->pidfd >= 0);
    if (shim->poll_open && !uv_is_closing((uv_handle_t *)&shim->pidfd_poll))
        uv_close((uv_handle_t *)&shim->pidfd_poll, on_poll_closed);
}

void node_shim_remove_dir(const struct node_shim *shim)
{
    struct shim_files *files = shim_files_new(shim->dir);

    if (files == NULL)
        return; /* the next launcherd finds it */
    files->work.lane = FILE_LANE_REMOVE;
    files->work.run = shim_files_remove;
    if (!file_work_start(shim->shims->host->files, &files->work))
        log_line(LOG_WARNING, node_shim_about(shim),
                 "its run directory stays until launcherd is started again: too much waits for "
                 "the disks already");
}

/* One that was given up: it is killed whenever it can be. */
static void drop_child(struct node_shim *shim)
{
    shim->starting = NULL;
    if (shim->child == NULL)
        return;
    (void)node_child_cancel(shim->shims->host->children, shim->child);
    node_child_drop(shim->shims->host->children, &shim->child);
}

void node_shim_remove(struct node_shims *shims, uint64_t job_id, uint32_t generation)
{
    struct node_shim *shim = node_shim_find(shims, job_id, generation);
    if (shim == NULL)
        return; /* it was refused before it was created */
    drop_child(shim);
    node_shim_remove_dir(shim);
    node_expire_touch(shims->host, shim->cluster, job_id, shim->submitted_ms);
    shim->removed = true;
    node_guards_over(shim);
    if (shim->conn_open)
        conn_close(&shim->conn, STATUS_OK, "forgotten");
    node_shim_close_poll(shim);
}

void node_shims_close(struct node_shims *shims)
{
    uv_close((uv_handle_t *)&shims->sweep_timer, NULL);
    node_guards_close(shims);
    for (struct node_shim *shim = shims->first; shim != NULL; shim = shim->next) {
        if (shims->host->ends_shims && shim->reported)
            node_shim_remove_dir(shim);
        if (shim->conn_open)
            conn_close(&shim->conn, STATUS_OK, "launcherd ends");
        node_shim_close_poll(shim);
    }
}

void node_shims_free(struct node_shims *shims)
{
    while (shims->first != NULL) {
        struct node_shim *shim = shims->first;
        shims->first = shim->next;
        node_child_release(shim->child);
        node_guards_free(shim);
        lease_page_unmap(shim->page);
        free(shim);
    }
}
