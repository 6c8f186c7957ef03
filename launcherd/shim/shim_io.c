#include "launcherd/shim/shim_io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <uv.h>

#include "common/io/conn.h"
#include "common/io/service.h"
#include "common/io/stop_signal.h"
#include "common/log.h"
#include "common/msg_schema.h"
#include "launcherd/process/devices.h"
#include "launcherd/process/doing.h"
#include "launcherd/process/lease_page.h"
#include "launcherd/process/part_record.h"
#include "launcherd/process/rundir.h"
#include "launcherd/core/shim.h"
#include "launcherd/shim/shim_end.h"
#include "launcherd/shim/shim_prepare.h"
#include "launcherd/shim/shim_self.h"
#include "launcherd/shim/shim_workers.h"
#include "launcherd/shim/worker_stop.h"
#include "launcherd/shim/worker_ends.h"
#include "launcherd/shim/worker_signal.h"
#include "launcherd/shim/worker_spawn.h"
#include "launcherd/process/spawn.h"
#include "launcherd/shim/workers_store.h"

/* A connection from launcherd. If launcherd was restarted, its new connection ends the previous
 * one. */
struct shim_link {
    struct conn conn;
    struct shim_io *io;
};

struct shim_io {
    uv_loop_t loop;
    uv_timer_t timer;
    uv_prepare_t flush; /* armed while a report is due */
    uv_signal_t child_signal, stop_signal;
    struct listener listener;
    struct shim_link *link; /* owned; NULL: launcherd is not connected */
    struct shim core;
    struct lease_page *page; /* NULL: it could not be made */
    struct shim_actions actions;
    struct shim_workers workers;
    struct shim_prepare prepare;
    struct arena order_arena;
    struct msg order; /* MSG_TYPE_START */
    const char *run_dir;
    struct file_works *files;
    struct shim_end end;
    bool leaving;
    uint32_t event_count, event_at; /* events that actions have queued; the index of the next one */
    struct shim_event events[4 * SLOTS_PER_NODE_MAX];
};

static struct log_about about(const struct shim_io *io)
{
    return (struct log_about){
        .job_id = io->order.start.job_id, .generation = io->order.start.generation, .rank = -1};
}

static void post(void *owner, struct shim_event event)
{
    struct shim_io *io = owner;
    assert(io->event_count < sizeof io->events / sizeof io->events[0]);
    io->events[io->event_count++] = event;
}

static void send_launcher(struct shim_io *io, struct msg *msg)
{
    struct err err;
    if (io->link != NULL && conn_send(&io->link->conn, msg, &err) != STATUS_OK)
        log_line(LOG_WARNING, about(io), "a %s was not sent to launcherd: %s",
                 msg_type_name(msg->type), err.text);
}

static void fill_report(struct shim_io *io, struct msg *msg, struct part_report_rank *ranks,
                        struct shim_workers_texts *texts)
{
    *msg = (struct msg){.type = MSG_TYPE_SHIM_REPORT};
    shim_report(&io->core, clock_boot_us(), ranks, &msg->shim_report);
    if (io->core.failed_rank >= 0)
        shim_workers_tell(&io->workers, (uint32_t)io->core.failed_rank - io->core.options.rank_base,
                          texts, &msg->shim_report);
}

/* Runs before the loop waits again. A report has the whole state, so one report is enough for all
 * changes of this turn of the loop. */
static void on_flush(uv_prepare_t *flush)
{
    struct shim_io *io = flush->data;
    struct part_report_rank ranks[SLOTS_PER_NODE_MAX];
    struct shim_workers_texts texts;
    struct msg msg;
    uv_prepare_stop(flush);
    if (!shim_may_report(&io->core))
        return; /* the end is being kept: another report follows */
    fill_report(io, &msg, ranks, &texts);
    send_launcher(io, &msg);
}

static void on_end_kept(void *owner, const char *problem);

/* Nothing of the end is sent before this is done: from then on it is known how the workers ended, even if this process
 * is killed. */
static void keep_end(struct shim_io *io)
{
    struct part_report_rank ranks[SLOTS_PER_NODE_MAX];
    struct shim_workers_texts texts;
    struct msg msg;
    const char *problem;

    fill_report(io, &msg, ranks, &texts);
    log_line(LOG_INFO, about(io), "ended%s%s", msg.shim_report.cause[0] != '\0' ? ": " : "",
             msg.shim_report.cause);
    io->end = (struct shim_end){.files = io->files, .owner = io, .on_stored = on_end_kept};
    problem = shim_end_store(&io->end, io->run_dir, &msg);
    if (problem != NULL)
        post(io, (struct shim_event){.type = SHIM_EVENT_END_KEPT, .text = problem});
}

static void send_hello(struct shim_io *io)
{
    struct msg hello = {.type = MSG_TYPE_SHIM_HELLO};

    hello.shim_hello = (struct msg_shim_hello){
        .protocol = msg_protocol(),
        .job_id = io->order.start.job_id,
        .generation = io->order.start.generation,
        .pid = (uint32_t)getpid(),
        .phase = io->core.phase,
        .schema = msg_schema(),
        .lease_over = io->core.lease_over,
    };
    send_launcher(io, &hello);
}

static void leave(struct shim_io *io)
{
    if (io->leaving)
        return;
    io->leaving = true;
    if (io->page != NULL)
        atomic_store(&io->page->has_ended, true);
    shim_end_close(&io->end);
    shim_prepare_close(&io->prepare);
    file_works_close(io->files);
    shim_workers_close(&io->workers);
    listener_close(&io->listener);
    uv_close((uv_handle_t *)&io->timer, NULL);
    uv_close((uv_handle_t *)&io->flush, NULL);
    uv_close((uv_handle_t *)&io->child_signal, NULL);
    uv_close((uv_handle_t *)&io->stop_signal, NULL);
    if (io->link != NULL)
        conn_close(&io->link->conn, STATUS_OK, "the shim has ended");
}

static void act(struct shim_io *io, const struct shim_action *action)
{
    struct msg msg;
    switch (action->type) {
    case SHIM_RESERVE_PORT:
        workers_store_reserve_port(&io->workers);
        break;
    case SHIM_SPAWN_ALL:
        shim_workers_spawn(&io->workers, action->text, action->port);
        break;
    case SHIM_KILL_ONE:
        shim_workers_kill_one(&io->workers, action->local);
        break;
    case SHIM_SPAWN_ONE:
        shim_workers_spawn_one(&io->workers, action->local);
        break;
    case SHIM_SIGNAL:
        worker_stop_tell(&io->workers, action->signal, io->core.kill_at_us);
        worker_signal_first(&io->workers, (int)action->signal);
        break;
    case SHIM_WARN:
        log_line(LOG_INFO, LOG_ABOUT_NONE, "--warn: the ranks get signal %u, as --time ends soon",
                 action->signal);
        worker_signal_warn(&io->workers, (int)action->signal);
        break;
    case SHIM_SIGNAL_LATE:
        worker_signal_late(&io->workers, (int)action->signal);
        break;
    case SHIM_SIGNAL_LEFT:
        worker_signal_left(&io->workers, (int)action->signal, action->is_told);
        break;
    case SHIM_KILL_TREE:
        shim_workers_kill(&io->workers, action->is_told);
        break;
    case SHIM_CHECK_TREE:
        shim_workers_check(&io->workers);
        break;
    case SHIM_SEND_REPORT:
        uv_prepare_start(&io->flush, on_flush);
        break;
    case SHIM_SEND_PROGRESS:
        msg = (struct msg){.type = MSG_TYPE_PROGRESS, .progress = *action->progress};
        send_launcher(io, &msg);
        break;
    case SHIM_SEND_WORLD:
        shim_workers_send_world(&io->workers, action->local, io->core.world_bytes,
                                io->core.world_byte_count);
        break;
    case SHIM_END_STORE:
        workers_store_end(&io->workers);
        break;
    case SHIM_SEND_HELLO:
        send_hello(io);
        break;
    case SHIM_KEEP_END:
        keep_end(io);
        break;
    case SHIM_EXIT:
        leave(io);
        break;
    }
}

static void on_timer(uv_timer_t *timer);

static void arm_timer(struct shim_io *io, uint64_t at_us)
{
    uint64_t now_us = clock_boot_us();
    if (io->leaving)
        return;
    if (at_us == UINT64_MAX) {
        uv_timer_stop(&io->timer);
        return;
    }
    uv_update_time(&io->loop);
    uv_timer_start(&io->timer, on_timer, at_us > now_us ? (at_us - now_us + 999) / 1000 : 0, 0);
}

static void step_once(struct shim_io *io, struct shim_event *event)
{
    event->now_us = clock_boot_us();
    event->lease_until_us = lease_page_until_us(io->page);
    shim_step(&io->core, event, &io->actions);
    lease_page_extend(io->page, io->core.lease_until_us);
    /* Warm workers without a rank would keep the shim waiting. */
    if (io->core.phase >= SHIM_STOPPING)
        warm_workers_drop(&io->workers.warm);
    for (uint32_t i = 0; i < io->actions.count; i++)
        act(io, &io->actions.items[i]);
    if (io->page != NULL && io->core.lease_over)
        atomic_store(&io->page->is_over, true); /* now the kill was sent */
}

/* One event, then the events that its actions posted. */
static void step(struct shim_io *io, struct shim_event event)
{
    step_once(io, &event);
    while (io->event_at < io->event_count) {
        struct shim_event next = io->events[io->event_at++];
        if (io->event_at == io->event_count)
            io->event_at = io->event_count = 0;
        step_once(io, &next);
    }
    arm_timer(io, io->actions.timer_at_us);
}

static void send_input_state(void *owner, const struct msg_input_state *state)
{
    struct msg msg = {.type = MSG_TYPE_INPUT_STATE, .input_state = *state};

    send_launcher(owner, &msg);
}

static void step_from_workers(void *owner, struct shim_event event)
{
    step(owner, event);
}

static void on_timer(uv_timer_t *timer)
{
    step(timer->data, (struct shim_event){.type = SHIM_EVENT_TICK});
}

static void on_child_signal(uv_signal_t *handle, int number)
{
    struct shim_io *io = handle->data;
    (void)number;
    shim_workers_reap(&io->workers);
}

/* SIGTERM comes from launcherd or an administrator: kills the job here. No report of its end is
 * needed, so this is the same as `forget`. */
static void on_stop_signal(uv_signal_t *handle, int number)
{
    struct shim_io *io = handle->data;
    struct msg forget = {.type = MSG_TYPE_FORGET};
    (void)number;
    log_line(LOG_INFO, about(io), "SIGTERM: ending");
    forget.forget.job_id = io->order.start.job_id;
    forget.forget.generation = io->order.start.generation;
    step(io, (struct shim_event){.type = SHIM_EVENT_LAUNCHER_MSG, .msg = &forget});
}

static void on_link_message(struct conn *conn, const struct msg *msg)
{
    struct shim_link *link = conn->owner;
    struct shim_io *io = link->io;
    if (io->link != link || io->leaving)
        return;
    if (msg->type == MSG_TYPE_INPUT)
        worker_ends_input(&io->workers, &msg->input);
    else
        step(io, (struct shim_event){.type = SHIM_EVENT_LAUNCHER_MSG, .msg = msg});
}

static void on_link_closed(struct conn *conn, enum status why, const char *text)
{
    struct shim_link *link = conn->owner;
    struct shim_io *io = link->io;
    if (io->link == link) {
        io->link = NULL;
        if (!io->leaving) {
            log_line(LOG_INFO, about(io), "launcherd is gone (%s: %s)%s", status_name(why), text,
                     io->core.phase == SHIM_ENDED ? "" : ", the job goes on");
            step(io, (struct shim_event){.type = SHIM_EVENT_LAUNCHER_CLOSED});
        }
    }
    free(link);
}

static const struct conn_handlers link_handlers = {on_link_message, on_link_closed};

static void take_link(struct shim_io *io, struct shim_link *link)
{
    struct shim_link *last = io->link;

    assert(!io->leaving);
    io->link = NULL;
    if (last != NULL) {
        conn_close(&last->conn, STATUS_OK, "another launcherd has connected");
        step(io, (struct shim_event){.type = SHIM_EVENT_LAUNCHER_CLOSED});
    }
    io->link = link;
    send_hello(io);
    step(io, (struct shim_event){.type = SHIM_EVENT_LAUNCHER_OPEN});
}

static struct shim_link *link_new(struct shim_io *io)
{
    struct shim_link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return NULL;
    link->io = io;
    link->conn.owner = link;
    return link;
}

/* Only root and our own user may give orders. */
static bool peer_is_ours(const struct shim_link *link)
{
    uid_t uid;
    pid_t pid;
    struct err err;
    return conn_peer(&link->conn, &uid, &pid, &err) == STATUS_OK && (uid == geteuid() || uid == 0);
}

static void on_connection(struct listener *listener)
{
    struct shim_io *io = listener->owner;
    struct shim_link *link = link_new(io);
    struct err err;

    if (link == NULL)
        return;
    if (conn_open_accept(&link->conn, &listener->handle.stream, FRAME_BYTES_MAX, &link_handlers,
                         &err) != STATUS_OK) {
        log_line(LOG_WARNING, about(io), "%s", err.text);
        free(link);
        return;
    }
    link->conn.owner = link;
    if (io->leaving || !peer_is_ours(link))
        conn_close(&link->conn, STATUS_REFUSED, "not allowed");
    else
        take_link(io, link);
}

static enum status introduce(struct shim_io *io, const char *cgroup_base, struct warm_workers *warm,
                             struct rundir_shim *self, struct err *err)
{
    char address[PATH_MAX + 8];

    shim_self_describe(self, io->run_dir, &io->order.start, cgroup_base, warm);
    (void)snprintf(address, sizeof address, "unix:%s/shim.sock", io->run_dir);
    io->listener.owner = io;
    io->listener.on_connection = on_connection;
    enum status status = listener_open(&io->listener, &io->loop, address, 0600, err);
    if (status != STATUS_OK)
        return status;
    io->listener.unlink_path[0] = '\0'; /* launcherd removes it with the run directory */
    status = rundir_write_shim(io->run_dir, self, err);
    return status == STATUS_OK ? part_record_keep(io->run_dir, "shim.json", err) : status;
}

static void connect_first(struct shim_io *io)
{
    struct err err;
    struct shim_link *link = link_new(io);
    if (link == NULL)
        return;
    if (conn_open_fd(&link->conn, &io->loop, SPAWN_EXTRA_FD, FRAME_BYTES_MAX, &link_handlers,
                     &err) != STATUS_OK) {
        log_line(LOG_WARNING, about(io), "launcherd has ended already: %s", err.text);
        free(link);
        return;
    }
    link->conn.owner = link;
    take_link(io, link);
}

static void open_loop(struct shim_io *io)
{
    int rc = uv_loop_init(&io->loop);
    rc = rc != 0 ? rc : uv_timer_init(&io->loop, &io->timer);
    rc = rc != 0 ? rc : uv_prepare_init(&io->loop, &io->flush);
    rc = rc != 0 ? rc : uv_signal_init(&io->loop, &io->child_signal);
    rc = rc != 0 ? rc : uv_signal_init(&io->loop, &io->stop_signal);
    rc = rc != 0 ? rc : uv_signal_start(&io->child_signal, on_child_signal, SIGCHLD);
    rc = rc != 0 ? rc : uv_signal_start(&io->stop_signal, on_stop_signal, stop_signal());
    assert(rc == 0); /* fails only without memory or descriptors, at the start of a process */
    io->timer.data = io->flush.data = io->child_signal.data = io->stop_signal.data = io;
}

static void on_end_kept(void *owner, const char *problem)
{
    struct shim_io *io = owner;

    log_line(problem != NULL ? LOG_ERROR : LOG_INFO, about(io), "the end is %sstored%s%s",
             problem != NULL ? "not " : "", problem != NULL ? ": " : "",
             problem != NULL ? problem : "");
    step(io, (struct shim_event){.type = SHIM_EVENT_END_KEPT, .text = problem});
}

static void init_core(struct shim_io *io, char *const *arguments)
{
    const struct msg_start *start = &io->order.start;
    struct shim_options options = {
        .job_id = start->job_id,
        .generation = start->generation,
        .rank_base = start->rank_base,
        .local_count = start->local_count,
        .world = start->world,
        .node_count = start->node_count,
        .grace_us = start->grace_us,
        .warn_after_us = start->warn_after_us,
        .warn_signal = start->warn_signal,
        .lease_until_us = strtoull(arguments[SHIM_ARG_LEASE_UNTIL_US], NULL, 10),
        .lease_us = strtoull(arguments[SHIM_ARG_LEASE_US], NULL, 10),
        .pid = (uint32_t)getpid(),
    };
    shim_init(&io->core, &options);
}

static enum status init_workers(struct shim_io *io, char *const *arguments, struct err *err)
{
    static struct rundir_shim self; /* both are used until the process ends */
    static struct warm_workers warm;
    struct shim_workers_options options = {
        .loop = &io->loop,
        .files = io->files,
        .start = &io->order.start,
        .run_dir = io->run_dir,
        .log_dir = arguments[SHIM_ARG_LOG_DIR],
        .node_name = arguments[SHIM_ARG_NODE_NAME],
        .node_address = arguments[SHIM_ARG_NODE_ADDRESS],
        .log_max = strtoull(arguments[SHIM_ARG_LOG_MAX], NULL, 10),
        .owner = io,
        .post = post,
        .step = step_from_workers,
        .on_input = send_input_state,
    };
    struct devices devices;
    warm_workers_read(&warm);
    enum status status = devices_parse(&devices, arguments[SHIM_ARG_GPUS], err);
    doing_set(DOING_WRITE, 0);
    if (status == STATUS_OK)
        status = introduce(io, arguments[SHIM_ARG_CGROUPS], &warm, &self, err);
    doing_set(DOING_NOTHING, 0);
    if (status != STATUS_OK)
        return status;
    options.gpus = devices.count;
    options.hides_gpus = !devices.all && devices.count == 0;
    memcpy(options.devices, devices.items, sizeof options.devices);
    options.token = self.token;
    options.cgroup = self.cgroup;
    options.warm = &warm;
    shim_workers_init(&io->workers, &options);
    return STATUS_OK;
}

/* Gives START to the core if the node can run the job, else CANNOT_START with the reason. */
static void on_prepared(void *owner, int32_t code, const char *text)
{
    struct shim_io *io = owner;
    struct shim_event event = {.type = SHIM_EVENT_CANNOT_START, .text = text, .code = code};

    if (code == 0)
        event.type = SHIM_EVENT_START;
    else
        log_line(LOG_ERROR, about(io), "%s", text);
    step(io, event);
}

static void begin_prepare(struct shim_io *io, char *const *arguments)
{
    const struct account_policy policy = {.node = arguments[SHIM_ARG_NODE_NAME],
                                          .allow_root =
                                              strcmp(arguments[SHIM_ARG_ALLOW_ROOT], "1") == 0};

    io->prepare.workers = &io->workers;
    io->prepare.owner = io;
    io->prepare.on_done = on_prepared;
    io->prepare.limits.memory_bytes = strtoull(arguments[SHIM_ARG_JOB_MEMORY], NULL, 10);
    io->prepare.limits.pids = CGROUP_PIDS_MAX;
    shim_prepare_begin(&io->prepare, &policy);
}

int shim_main(char *const *arguments)
{
    static struct shim_io io; /* too large for the stack */
    struct err err;

    service_memory();
    log_open("shim", LOG_INFO, false);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a write beyond ulimit -f then fails with EFBIG */
    (void)signal(SIGHUP, SIG_IGN);  /* the shim outlives the process that started it */
    stop_signal_shield();
    io.run_dir = arguments[SHIM_ARG_RUN_DIR];
    fcntl(SPAWN_EXTRA_FD, F_SETFD, FD_CLOEXEC);
    doing_set(DOING_READ, 0);
    if (rundir_read_msg(io.run_dir, "start.msg", &io.order_arena, &io.order, &err) != STATUS_OK ||
        io.order.type != MSG_TYPE_START) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "no order to carry out: %s", err.text);
        return 1;
    }
    shim_prepare_place(&io.prepare, &io.order.start, arguments[SHIM_ARG_LOG_DIR]);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    io.page = lease_page_make();
    if (io.page == NULL)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "no page for the lease: %s", strerror(errno));
    open_loop(&io);
    init_core(&io, arguments);
    if (shim_self_files(&io.files, &io.loop, io.run_dir, arguments[SHIM_ARG_LOG_DIR], &err) !=
            STATUS_OK ||
        init_workers(&io, arguments, &err) != STATUS_OK) {
        log_line(LOG_ERROR, about(&io), "%s", err.text);
        return 1;
    }
    step(&io, (struct shim_event){.type = SHIM_EVENT_TICK});
    begin_prepare(&io, arguments);
    connect_first(&io);
    uv_run(&io.loop, UV_RUN_DEFAULT);
    const bool hangs = file_works_hanging(io.files) > 0;
    file_works_free(&io.files);
    if (hangs || !shim_workers_are_closed(&io.workers))
        _exit(0);
    int rc = uv_loop_close(&io.loop);
    assert(rc == 0);
    arena_reset(&io.order_arena);
    return 0;
}
