#include "launcherd/node/node.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/io/folder_lock.h"
#include "common/io/own_path.h"
#include "common/io/stop_signal.h"
#include "common/log.h"
#include "common/io/file_work.h"
#include "launcherd/node/node_adopt.h"
#include "launcherd/node/node_children.h"
#include "launcherd/node/node_expire.h"
#include "launcherd/node/node_gpus.h"
#include "launcherd/node/node_inspect.h"
#include "launcherd/node/node_logs.h"
#include "launcherd/node/node_look.h"
#include "launcherd/node/node_questions.h"
#include "launcherd/node/node_seen.h"
#include "launcherd/node/node_server.h"
#include "launcherd/node/node_shims.h"
#include "launcherd/node/node_stage.h"
#include "launcherd/node/node_silent.h"
#include "launcherd/node/node_start.h"
#include "launcherd/node/node_sweep.h"
#include "launcherd/node/node_warm.h"
#include "launcherd/node/open_files.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/rundir.h"

#define END_SHIMS_MS 2000u
#define END_STARTS_MS 5000u /* a start takes some milliseconds, if its disk answers */
#define LOOK_STARTS_MS 5u
/* The most events that one step, and the events that it posts, can post: one for each action
 * CONNECT_SHIM, SPAWN_SHIM and CONNECT_SERVER. None of these leads to a second CONNECT or SPAWN in
 * the same turn. */
#define POSTED_MAX LAUNCHER_ACTIONS_MAX

struct node {
    struct node_options options;
    struct node_host host;
    struct node_children children;
    struct node_shims shims;
    struct node_warm warm;
    struct node_stage stage;
    struct node_gpus gpus;
    struct node_seen seen;
    struct node_logs logs;
    struct node_inspect inspect;
    struct node_look look;
    struct node_questions questions;
    struct node_expire expire;
    uv_timer_t timer, end_timer;
    uint32_t end_looks; /* whether starts are over, since the end began */
    uv_signal_t child_signal;
    struct node_server server;
    struct file_works *files;
    bool ready_reported;
    bool end_due; /* after this step */
    struct folder_lock lock;
    char cgroups[PATH_MAX];
    struct launcher core;
    struct launcher_actions actions;
    uint32_t posted_count, posted_at; /* events queued by actions, and the next one of them */
    struct launcher_event posted[POSTED_MAX];
    char posted_texts[POSTED_MAX][256]; /* by index of the event */
};

static void step(void *owner, struct launcher_event event);
static void post(void *owner, struct launcher_event event);

/* Whether warm processes of another order are still on the slots. Then the order is ignored; the
 * server repeats it. */
static bool is_blocked(struct node *node, const struct msg_start *start)
{
    return node_shim_find(&node->shims, start->job_id, start->generation) == NULL &&
           node_warm_blocks(&node->warm, start);
}

/* Once, after the first welcome. With --join also the key must be kept: --join-only ends then. */
static void report_ready(struct node *node)
{
    if (node->ready_reported || node->server.is_keeping_key || node->host.ending)
        return;
    node->ready_reported = true;
    node->options.on_ready(node->options.owner, node->server.is_key_lost);
}

static void on_key_kept(void *owner)
{
    report_ready(owner);
}

static void read_logs(struct node *node, const struct msg_log_read *read)
{
    if (read->what == LOG_STACK || read->what == LOG_STORE)
        node_inspect_read(&node->inspect, read);
    else
        node_logs_read(&node->logs, read);
}

static void on_server_message(void *owner, const struct msg *msg)
{
    struct node *node = owner;
    if (node->host.ending)
        return;
    if (msg->type == MSG_TYPE_LOG_READ)
        read_logs(node, &msg->log_read);
    else if (msg->type == MSG_TYPE_LOOK)
        node_look_ask(&node->look, &msg->look);
    else if (msg->type == MSG_TYPE_NODE_ASK)
        node_questions_ask(&node->questions, &msg->node_ask);
    else if (msg->type == MSG_TYPE_INPUT)
        node_shim_input(&node->shims, msg);
    else if (msg->type == MSG_TYPE_WARM)
        node_warm_order(&node->warm, &msg->warm);
    else if (msg->type == MSG_TYPE_COOL)
        node_warm_cool(&node->warm, msg->cool.job_id);
    else if (msg->type == MSG_TYPE_STAGE_DATA)
        node_stage_data(&node->stage, &msg->stage_data);
    else if (msg->type != MSG_TYPE_START || !is_blocked(node, &msg->start))
        step(node, (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_MSG, .msg = msg});
    if (msg->type == MSG_TYPE_NODE_WELCOME) {
        node_stage_connected(&node->stage);
        node_server_welcomed(&node->server);
        report_ready(node);
    }
}

static void send_server(void *owner, const struct msg *msg)
{
    struct node *node = owner;
    node_server_send(&node->server, msg);
}

static size_t unsent_bytes(void *owner)
{
    const struct node *node = owner;
    return node_server_unsent(&node->server);
}

static void on_room(void *owner)
{
    struct node *node = owner;
    node_logs_room(&node->logs);
}

static bool is_helper(void *owner, pid_t pid)
{
    struct node *node = owner;
    return node_helpers_have(&node->questions.helpers, pid) || node_warm_has(&node->warm, pid);
}

/* Those that were given up while they were being started. */
static void check_children(void *owner)
{
    struct node *node = owner;

    if (node->host.closed)
        return;
    node_start_check(&node->shims);
    node_warm_check_children(&node->warm);
    node_helpers_check(&node->questions.helpers);
    node_inspect_check(&node->inspect);
}

static void helper_reaped(void *owner, const siginfo_t *info)
{
    struct node *node = owner;
    node_children_reaped(&node->children, info);
    check_children(node);
    node_helpers_reaped(&node->questions.helpers, info->si_pid);
    if (node_warm_reaped(&node->warm, info))
        node_sweep_orphans(&node->shims);
}

static void explain_gpu(void *owner, struct gpu_facts *facts)
{
    struct node *node = owner;
    node_warm_explain(&node->warm, facts);
}

static void send_beat(struct node *node, const struct msg *beat)
{
    struct part_warm_job warm[SLOTS_PER_NODE_MAX];
    struct msg msg = *beat;
    msg.beat.warm.items = warm;
    msg.beat.warm.count = node_warm_list(&node->warm, warm);
    send_server(node, &msg);
}

static void act(struct node *node, const struct launcher_action *action)
{
    switch (action->type) {
    case LAUNCHER_CONNECT_SERVER:
        node_server_connect(&node->server);
        break;
    case LAUNCHER_CLOSE_SERVER:
        node_server_close(&node->server, STATUS_TIMEOUT, action->text);
        break;
    case LAUNCHER_END:
        node->options.on_refused(node->options.owner, action->text);
        node->end_due = true;
        break;
    case LAUNCHER_LEFT:
        node->options.on_left(node->options.owner);
        node->end_due = true;
        break;
    case LAUNCHER_SEND_SERVER:
        if (action->msg.type == MSG_TYPE_BEAT)
            send_beat(node, &action->msg);
        else
            send_server(node, &action->msg);
        break;
    case LAUNCHER_SPAWN_SHIM:
        node_stage_spawn(&node->stage, &action->msg);
        break;
    case LAUNCHER_SPAWN_AGAIN:
        node_start_again(&node->shims, action->job_id, action->generation);
        break;
    case LAUNCHER_CONNECT_SHIM:
        node_shim_connect(&node->shims, action->job_id, action->generation);
        break;
    case LAUNCHER_SEND_SHIM:
        node_shim_send(&node->shims, action->job_id, action->generation, &action->msg);
        break;
    case LAUNCHER_KILL_SHIM:
        node_stage_kill(&node->stage, action->job_id, action->generation, action->text);
        node_start_cancel(&node->shims, action->job_id, action->generation, action->text);
        node_sweep_kill(&node->shims, action->job_id, action->generation, action->text);
        break;
    case LAUNCHER_LOOK_SHIM:
        node_silent_look(&node->shims, action->job_id, action->generation);
        break;
    case LAUNCHER_SIGNAL_RANKS:
        node_silent_signal(&node->shims, action->job_id, action->generation, (int)action->signal);
        break;
    case LAUNCHER_ASK_GPU:
        node_gpus_ask(&node->gpus, action);
        break;
    case LAUNCHER_SAVE_SLOTS:
        node_gpus_save(&node->gpus, action->slots);
        break;
    case LAUNCHER_SAVE_SEEN:
        node_seen_save(&node->seen, action->seen);
        break;
    case LAUNCHER_REMOVE:
        node_stage_cancel(&node->stage, action->job_id, action->generation);
        node_shim_remove(&node->shims, action->job_id, action->generation);
        break;
    case LAUNCHER_LOG:
        log_line(LOG_INFO, node_about(&node->host), "%s", action->text);
        break;
    }
}

static void on_timer(uv_timer_t *timer)
{
    step(timer->data, (struct launcher_event){.type = LAUNCHER_EVENT_TICK});
}

static void arm_timer(struct node *node, uint64_t at_us)
{
    uint64_t now_us = clock_boot_us();
    if (node->host.closed)
        return;
    if (at_us == UINT64_MAX) {
        uv_timer_stop(&node->timer);
        return;
    }
    uv_update_time(node->host.loop);
    uv_timer_start(&node->timer, on_timer, at_us > now_us ? (at_us - now_us + 999) / 1000 : 0, 0);
}

static void step_once(struct node *node, struct launcher_event *event)
{
    assert(!node->host.closed || node->host.ending);
    event->now_us = clock_boot_us();
    launcher_step(&node->core, event, &node->actions);
    for (uint32_t i = 0; i < node->actions.count; i++)
        act(node, &node->actions.items[i]);
}

static void close_all(struct node *node)
{
    if (node->host.closed)
        return;
    node->host.closed = true;
    uv_close((uv_handle_t *)&node->timer, NULL);
    uv_close((uv_handle_t *)&node->end_timer, NULL);
    uv_close((uv_handle_t *)&node->child_signal, NULL);
    node_gpus_close(&node->gpus);
    node_logs_close(&node->logs);
    node_look_close(&node->look);
    node_inspect_close(&node->inspect);
    node_questions_close(&node->questions);
    node_stage_close(&node->stage);
    node_expire_close(&node->expire);
    node_warm_close(&node->warm);
    node_shims_close(&node->shims);
    node_children_close(&node->children);
    node_server_close(&node->server, STATUS_OK, "launcherd ends");
    file_works_close(node->files);
}

static void step(void *owner, struct launcher_event event)
{
    struct node *node = owner;
    step_once(node, &event);
    while (node->posted_at < node->posted_count) {
        struct launcher_event next = node->posted[node->posted_at++];
        step_once(node, &next);
    }
    node->posted_at = node->posted_count = 0;
    arm_timer(node, node->actions.timer_at_us);
    node_logs_check(&node->logs);
    node_warm_check(&node->warm);
    if (node->end_due)
        node_end(node);
    if (node->host.ending && node->host.ends_shims && node_sweep_left(&node->shims) == 0)
        close_all(node);
}

static void post(void *owner, struct launcher_event event)
{
    struct node *node = owner;
    assert(node->posted_count < POSTED_MAX);
    char *text = node->posted_texts[node->posted_count];
    if (event.text != NULL) {
        (void)snprintf(text, sizeof node->posted_texts[0], "%s", event.text);
        event.text = text;
    }
    node->posted[node->posted_count++] = event;
}

static void on_child_signal(uv_signal_t *handle, int number)
{
    (void)number;
    struct node *node = handle->data;
    node_sweep_reap(&node->shims);
}

struct opening {
    struct node *node;
    bool is_late;
    enum status status;
    struct err err;
};

/* Which state directory this is, for the server: a copy of another one knows none of its shims. */
static void take_state_id(struct node *node, const struct open_files *files)
{
    (void)snprintf(node->core.options.state_id, sizeof node->core.options.state_id, "%s",
                   files->state_id);
    node->host.is_new = node->host.ends_shims && files->found == STATE_ID_NEW;
    state_id_log(files->found, node_about(&node->host), node->options.state_dir, files->aside);
}

static void on_opened(struct file_work *work, const char *late)
{
    struct open_files *files = (struct open_files *)work;
    struct opening *opening = files->owner;

    opening->is_late = late != NULL;
    opening->status =
        late != NULL ? err_set(&opening->err, STATUS_TIMEOUT, 0, "%s", late) : files->status;
    if (late != NULL)
        return;
    opening->err = files->err;
    if (files->lock.file_fd < 0)
        return;
    opening->node->lock = files->lock;
    files->lock = FOLDER_LOCK_NONE;
    if (files->status == STATUS_OK)
        take_state_id(opening->node, files);
}

static void open_dir(struct opening *opening, const char *dir, void (*run)(struct file_work *work))
{
    struct open_files *files = open_files_new(dir, opening);
    const struct launcher_options *core = &opening->node->options.core;

    opening->status = err_set(&opening->err, STATUS_MEMORY, ENOMEM, "no memory");
    if (files == NULL)
        return;
    (void)snprintf(files->boot_id, sizeof files->boot_id, "%s", core->boot_id);
    (void)snprintf(files->machine_id, sizeof files->machine_id, "%s", core->machine_id);
    files->wants_key = opening->node->options.server_is_default;
    if (opening->node->options.key != NULL && !opening->node->options.key_is_new)
        (void)snprintf(files->key_name, sizeof files->key_name, "%s",
                       opening->node->options.key->name);
    files->work.run = run;
    files->work.done = on_opened;
    file_work_wait(opening->node->files, &files->work);
}

/* Without the state directory nothing is known here. Without that of the logs, jobs cannot start, and say so. */
static enum status open_dirs(struct node *node, struct err *err)
{
    struct opening opening = {.node = node};

    own_reserve();
    open_dir(&opening, node->options.logs_dir, open_files_logs);
    if (opening.is_late)
        log_line(LOG_ERROR, node_about(&node->host), "%s: no job can start here until it does",
                 opening.err.text);
    if (opening.status == STATUS_OK || opening.is_late)
        open_dir(&opening, node->options.state_dir, open_files_state);
    if (opening.status != STATUS_OK)
        *err = opening.err;
    return opening.status;
}

/* Jobs can run without cgroups. Only a memory limit needs them. */
static enum status find_cgroups(struct node *node, struct err *err)
{
    struct err why = {0};
    uint64_t memory_bytes = node->options.job_memory_bytes;
    if (cgroup_find_base(node->cgroups, &why) != STATUS_OK)
        node->cgroups[0] = '\0';
    else if (memory_bytes > 0 && !cgroup_has(node->cgroups, "memory"))
        (void)snprintf(why.text, sizeof why.text, "%.150s has no controller for memory",
                       node->cgroups);
    if (memory_bytes > 0 && why.text[0] != '\0')
        return err_set(
            err, STATUS_REFUSED, 0,
            "--job-memory needs cgroup v2: %.150s. Start launcherd without it, or as root",
            why.text);
    if (node->cgroups[0] == '\0')
        log_line(LOG_INFO, node_about(&node->host),
                 "no cgroups (%s): processes of jobs are found by their parents and environment",
                 why.text);
    return STATUS_OK;
}

static void open_handles(struct node *node)
{
    uv_timer_init(node->host.loop, &node->timer);
    uv_timer_init(node->host.loop, &node->end_timer);
    uv_signal_init(node->host.loop, &node->child_signal);
    node->timer.data = node->end_timer.data = node;
    node->child_signal.data = node;
    int rc = uv_signal_start(&node->child_signal, on_child_signal, SIGCHLD);
    assert(rc == 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* the orphans of a killed shim become our children */
}

static void set_host(struct node *node, uv_loop_t *loop, const struct node_options *options)
{
    node->options = *options;
    node->host = (struct node_host){.loop = loop,
                                    .state_dir = options->state_dir,
                                    .logs_dir = options->logs_dir,
                                    .logs_are_shared =
                                        node_logs_are_shared(options->logs_dir, options->state_dir),
                                    .log_max = options->log_max,
                                    .keep_logs_us = options->keep_logs_us,
                                    .core = &node->core,
                                    .cgroups = node->cgroups,
                                    .job_memory_bytes = options->job_memory_bytes,
                                    .allow_root = options->allow_root,
                                    .devices = &node->options.devices,
                                    .ends_shims = options->exit_with_parent,
                                    .owner = node,
                                    .step = step,
                                    .post = post,
                                    .send_server = send_server,
                                    .unsent_bytes = unsent_bytes,
                                    .is_helper = is_helper,
                                    .helper_reaped = helper_reaped,
                                    .explain_gpu = explain_gpu};
    node->lock = FOLDER_LOCK_NONE;
    node->server = (struct node_server){.host = &node->host,
                                        .options = &node->options,
                                        .on_message = on_server_message,
                                        .on_room = on_room,
                                        .on_key_kept = on_key_kept};
}

enum status node_open(struct node **out, uv_loop_t *loop, const struct node_options *options,
                      struct err *err)
{
    struct node *node = calloc(1, sizeof *node);
    struct err gpu_err;
    if (node == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory");
    set_host(node, loop, options);
    enum status status =
        file_works_open(&node->files, loop, options->logs_dir, options->state_dir, err);
    node->host.files = node->files;
    node->host.children = &node->children;
    launcher_init(&node->core, &options->core);
    if (status == STATUS_OK)
        status = open_dirs(node, err);
    if (status == STATUS_OK)
        status = node_server_init(&node->server, err);
    if (status == STATUS_OK)
        status = find_cgroups(node, err);
    if (status != STATUS_OK) {
        node_free(node);
        return status;
    }
    open_handles(node);
    node_children_init(&node->children, loop, check_children, node);
    node_warm_init(&node->warm, &node->host);
    node_shims_init(&node->shims, &node->host);
    node->shims.warm = &node->warm;
    node_logs_init(&node->logs, &node->host);
    node_inspect_init(&node->inspect, &node->host, &node->shims);
    node_look_init(&node->look, &node->host, &node->inspect, options->gpus);
    node_questions_open(&node->questions, &node->host, options->gpus);
    node_stage_init(&node->stage, &node->host, &node->shims);
    node_expire_open(&node->expire, &node->host);
    if (node_gpus_open(&node->gpus, &node->host, options->gpus, &gpu_err) != STATUS_OK)
        log_line(LOG_WARNING, node_about(&node->host), "GPUs are not watched: %s", gpu_err.text);
    node_seen_open(&node->seen, &node->host);
    status = node_adopt(&node->shims, err);
    if (status != STATUS_OK) {
        node_gpus_close(&node->gpus);
        node_free(node);
        return status;
    }
    *out = node;
    step(node, (struct launcher_event){.type = LAUNCHER_EVENT_ADOPTED});
    return STATUS_OK;
}

static void on_end_timer(uv_timer_t *timer)
{
    struct node *node = timer->data;
    log_line(LOG_WARNING, node_about(&node->host),
             "%u shims have not ended within %u ms: killing them", node_sweep_left(&node->shims),
             END_SHIMS_MS);
    node_sweep_signal(&node->shims, SIGKILL);
}

/* Shims that are being started live on, too: the next launcherd finds them. */
static void on_starts_timer(uv_timer_t *timer)
{
    struct node *node = timer->data;

    if (node_start_any(&node->shims) && ++node->end_looks < END_STARTS_MS / LOOK_STARTS_MS)
        return;
    node_start_cancel_all(&node->shims);
    close_all(node);
}

void node_end(struct node *node)
{
    if (node->host.ending)
        return;
    node->host.ending = true;
    node_server_close(&node->server, STATUS_OK, "launcherd ends");
    if (!node->host.ends_shims && node_start_any(&node->shims)) {
        uv_timer_start(&node->end_timer, on_starts_timer, LOOK_STARTS_MS, LOOK_STARTS_MS);
        return;
    }
    node_start_cancel_all(&node->shims);
    if (!node->host.ends_shims || node_sweep_signal(&node->shims, stop_signal()) == 0) {
        close_all(node);
        return;
    }
    uv_timer_start(&node->end_timer, on_end_timer, END_SHIMS_MS, 0);
}

void node_leave(struct node *node)
{
    step(node, (struct launcher_event){.type = LAUNCHER_EVENT_LEAVE});
}

bool node_has_ended(const struct node *node)
{
    return node->host.closed;
}

void node_free(struct node *node)
{
    node_warm_free(&node->warm);
    node_shims_free(&node->shims);
    node_server_free(&node->server);
    node_questions_free(&node->questions);
    node_inspect_free(&node->inspect);
    node_logs_free(&node->logs);
    file_works_free(&node->files);
    folder_lock_release(&node->lock);
    free(node);
}
