#include "launcherd/shim/warm_main.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "common/arena.h"
#include "common/frame.h"
#include "common/io/own_path.h"
#include "common/io/read_all.h"
#include "common/io/stop_signal.h"
#include "common/log.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/devices.h"
#include "launcherd/process/interface.h"
#include "launcherd/process/machine_id.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/spawn.h"
#include "launcherd/shim/preflight.h"
#include "launcherd/shim/shim_io.h"
#include "launcherd/shim/store_child.h"
#include "launcherd/shim/tools_dir.h"
#include "launcherd/shim/warm_order.h"
#include "launcherd/shim/warm_workers.h"
#include "launcherd/shim/worker_argv.h"
#include "launcherd/shim/worker_env.h"

#define WAITING_SHARE_MS 5u /* time between two checks whether the killed processes have ended */

struct warm_wait {
    struct warm_shim *shim;
    uv_poll_t poll;
    bool is_ready;
};

struct warm_shim {
    uv_loop_t loop;
    uv_signal_t child_signal, stop_signal;
    uv_poll_t link;
    struct preflight preflight;
    struct arena arena;
    struct msg msg; /* MSG_TYPE_WARM */
    struct msg_start start;
    char *const *arguments;
    struct devices devices;
    struct tools tools;
    char interface[IF_NAMESIZE], error_dir[PATH_MAX];
    struct worker_env_facts env;
    struct account account;
    bool as_self;
    uint32_t ready_count;
    struct warm_workers workers;
    struct warm_wait waits[SLOTS_PER_NODE_MAX];
    uint32_t order_bytes; /* length of the order; 0: not received yet */
    uint32_t order_have;  /* bytes in `order`, which begins with the length */
    char order[sizeof(uint32_t) + WARM_ORDER_BYTES_MAX];
};

static struct log_about about(const struct warm_shim *shim)
{
    return (struct log_about){.job_id = shim->start.job_id, .rank = -1};
}

/* Kills everything that was started, waits for its end, and ends this process. */
static void leave(const struct warm_shim *shim, int code, const char *why)
{
    const struct timespec pause = {.tv_nsec = WAITING_SHARE_MS * 1000000L};
    siginfo_t info;

    log_line(code == 0 ? LOG_INFO : LOG_WARNING, about(shim), "ends: %s", why);
    if (shim->workers.cgroup[0] != '\0')
        (void)cgroup_kill(shim->workers.cgroup);
    while (proc_kill_descendants(getpid(), NULL, NULL) > 0 ||
           waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
        while (proc_reap(&info))
            ;
        (void)nanosleep(&pause, NULL);
    }
    if (shim->workers.cgroup[0] != '\0')
        cgroup_remove(shim->workers.cgroup);
    rundir_remove(shim->arguments[SHIM_ARG_RUN_DIR]);
    _exit(code);
}

/* -- the start: this process becomes the shim -- */

static void become_shim(struct warm_shim *shim)
{
    static char program[] = "launcherd", mode[] = SHIM_ARGUMENT;
    char *texts[SHIM_ARG_COUNT + 1], *argv[SHIM_ARG_COUNT + 3] = {program, mode};
    struct err err;
    int log_fd;

    if (!warm_order_read(shim->order + sizeof(uint32_t), shim->order_bytes, texts,
                         SHIM_ARG_COUNT + 1))
        leave(shim, 1, "the order of launcherd has another form");
    memcpy(argv + 2, texts, SHIM_ARG_COUNT * sizeof *texts);
    if (own_file_open(texts[SHIM_ARG_COUNT], 1, O_WRONLY | O_CREAT | O_APPEND, 0600, &log_fd,
                      &err) != STATUS_OK)
        leave(shim, 1, err.text);
    log_line(LOG_INFO, about(shim), "takes over");
    if (dup2(log_fd, STDOUT_FILENO) < 0 || dup2(log_fd, STDERR_FILENO) < 0 ||
        !warm_workers_write(&shim->workers) || fcntl(SPAWN_EXTRA_FD, F_SETFD, 0) != 0)
        leave(shim, 1, strerror(errno));
    (void)execv("/proc/self/exe", argv);
    leave(shim, 1, strerror(errno));
}

static void on_link(uv_poll_t *poll, int status, int events)
{
    struct warm_shim *shim = poll->data;
    ssize_t got;

    (void)status;
    (void)events;
    do {
        size_t end = sizeof(uint32_t) + shim->order_bytes;

        got = recv(SPAWN_EXTRA_FD, shim->order + shim->order_have, end - shim->order_have,
                   MSG_DONTWAIT);
        shim->order_have += got > 0 ? (uint32_t)got : 0;
        if (shim->order_have == sizeof(uint32_t) && shim->order_bytes == 0) {
            memcpy(&shim->order_bytes, shim->order, sizeof shim->order_bytes);
            if (shim->order_bytes == 0 || shim->order_bytes > WARM_ORDER_BYTES_MAX)
                leave(shim, 1, "the order of launcherd has another form");
        } else if (shim->order_bytes > 0 && shim->order_have == end) {
            become_shim(shim);
        }
    } while (got > 0);
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
        leave(shim, 0, "it is not wanted any more, or launcherd has ended");
}

/* -- the workers -- */

static void on_child_signal(uv_signal_t *handle, int number)
{
    struct warm_shim *shim = handle->data;
    siginfo_t info;
    char text[96];

    (void)number;
    while (proc_reap(&info))
        for (uint32_t i = 0; i < shim->workers.count; i++) {
            if (shim->workers.items[i].pid != info.si_pid)
                continue;
            (void)snprintf(text, sizeof text, "its process %d ended with %s %d", info.si_pid,
                           info.si_code == CLD_EXITED ? "code" : "signal", info.si_status);
            leave(shim, 1, text);
        }
}

static void on_stop_signal(uv_signal_t *handle, int number)
{
    (void)number;
    leave(handle->data, 0, "SIGTERM");
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct warm_wait *wait = poll->data;
    struct warm_shim *shim = wait->shim;
    const char ready = WARM_IS_READY;
    char byte;

    (void)status;
    (void)events;
    (void)uv_poll_stop(poll); /* SIGCHLD tells if the worker ends */
    if (recv(shim->workers.items[wait - shim->waits].fd, &byte, 1, MSG_DONTWAIT) != 1)
        return;
    shim->workers.items[wait - shim->waits].answers = byte == WARM_ANSWERS;
    if (++shim->ready_count < shim->start.local_count)
        return;
    log_line(LOG_INFO, about(shim), "%u processes wait", shim->ready_count);
    (void)send(SPAWN_EXTRA_FD, &ready, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Sets RANK to a text that is no number, so that a program that does not know DDP_WARM_FD ends.
 * Replaces DDP_SHIM_FD by DDP_WARM_FD. */
static void change_environment(char **envp)
{
    static char rank[] = "RANK=warm", fd[32];

    (void)snprintf(fd, sizeof fd, WARM_FD_VARIABLE "=%d", SPAWN_EXTRA_FD);
    for (; *envp != NULL; envp++) {
        if (strncmp(*envp, "RANK=", 5) == 0)
            *envp = rank;
        else if (strncmp(*envp, "DDP_SHIM_FD=", 12) == 0)
            *envp = fd;
    }
}

static enum status spawn_one(struct warm_shim *shim, uint32_t local, struct err *err)
{
    struct warm_worker *worker = &shim->workers.items[local];
    char **envp = worker_env_build(&shim->env, local, &shim->arena);
    char **argv = worker_argv_build(&shim->start, local, &shim->arena);
    struct spawn_limits limits;
    int pair[2], exit_code;
    enum status status;
    char cut[8];

    if (envp == NULL || argv == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory");
    spawn_limits_read(&shim->start.launch, &limits, cut, sizeof cut);
    change_environment(envp);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "cannot make a socket pair: %s", strerror(errno));
    const struct spawn_order order = {
        .argv = argv,
        .envp = envp,
        .search = worker_env_path(envp),
        .cwd = shim->start.cwd,
        .user = shim->as_self ? NULL : &shim->account,
        .stdin_fd = STDIN_FILENO,
        .stdout_fd = STDERR_FILENO,
        .stderr_fd = STDERR_FILENO,
        .extra_fd = pair[1],
        .is_job = true,
        .limits = &limits,
        .dies_with_parent = true,
        .cgroup = shim->workers.cgroup[0] != '\0' ? shim->workers.cgroup : NULL,
    };
    status = spawn_process(&order, &worker->pid, &exit_code, err);
    (void)close(pair[1]);
    worker->fd = pair[0];
    return status;
}

/* Writes shim.json, then makes the cgroup. Call before the first worker is started. If there is no
 * cgroup, the workers wait without it. */
static enum status describe(struct warm_shim *shim, struct err *err)
{
    const struct msg_start *start = &shim->start;
    const char *base = shim->arguments[SHIM_ARG_CGROUPS];
    const struct cgroup_limits none = {0};
    struct rundir_shim self = {.pid = getpid(), .start_ticks = proc_start_ticks(getpid())};
    struct err why;
    enum status status;

    (void)snprintf(self.token, sizeof self.token, "%s", shim->workers.token);
    proc_boot_id(self.boot_id, sizeof self.boot_id);
    machine_id(self.machine_id);
    proc_pid_ns(self.pid_ns);
    if (base[0] != '\0')
        (void)snprintf(self.cgroup, sizeof self.cgroup, "%.*s/%s-%llu-warm-%.8s", PATH_MAX - 300,
                       base, start->cluster, (unsigned long long)start->job_id, self.token);
    status = rundir_write_shim(shim->arguments[SHIM_ARG_RUN_DIR], &self, err);
    if (status != STATUS_OK || base[0] == '\0')
        return status;
    if (cgroup_make(self.cgroup, &none, &why) == STATUS_OK) {
        (void)snprintf(shim->workers.cgroup, sizeof shim->workers.cgroup, "%s", self.cgroup);
        return STATUS_OK;
    }
    log_line(LOG_WARNING, about(shim), "%s: they wait without it", why.text);
    self.cgroup[0] = '\0';
    return rundir_write_shim(shim->arguments[SHIM_ARG_RUN_DIR], &self, err);
}

static void on_preflight(void *owner, struct preflight_result *result)
{
    struct warm_shim *shim = owner;
    struct err err;

    if (result->code != 0)
        leave(shim, 1, result->text);
    shim->account = result->account;
    result->account.groups = NULL;
    shim->as_self = result->as_self;
    shim->env.user = shim->account.name;
    shim->env.home = shim->account.home;
    shim->env.shell = shim->account.shell;
    if (describe(shim, &err) != STATUS_OK)
        leave(shim, 1, err.text);
    for (uint32_t i = 0; i < shim->start.local_count; i++) {
        struct warm_wait *wait = &shim->waits[i];

        if (spawn_one(shim, i, &err) != STATUS_OK)
            leave(shim, 1, err.text);
        shim->workers.count = i + 1;
        wait->shim = shim;
        wait->poll.data = wait;
        (void)uv_poll_init(&shim->loop, &wait->poll, shim->workers.items[i].fd);
        (void)uv_poll_start(&wait->poll, UV_READABLE, on_ready);
    }
}

/* -- the beginning -- */

static enum status read_order(struct warm_shim *shim, struct err *err)
{
    struct stat stat;
    const char *payload = NULL;
    size_t payload_bytes = 0;
    char *bytes;
    enum status status;
    const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (null_fd < 0 || fstat(STDIN_FILENO, &stat) != 0 || stat.st_size <= 0)
        return err_set(err, STATUS_IO, errno, "there is no order");
    bytes = arena_alloc(&shim->arena, (size_t)stat.st_size);
    if (bytes == NULL || read_all(STDIN_FILENO, bytes, (size_t)stat.st_size) != stat.st_size)
        return err_set(err, STATUS_IO, errno, "the order cannot be read");
    status = frame_next(bytes, (size_t)stat.st_size, FRAME_LARGE_BYTES_MAX, &payload,
                        &payload_bytes, err);
    if (status == STATUS_OK)
        status = msg_decode_stored(payload, payload_bytes, &shim->arena, &shim->msg, err);
    if (status == STATUS_OK && shim->msg.type != MSG_TYPE_WARM)
        status = err_set(err, STATUS_BAD_INPUT, 0, "the order is none to be warm");
    if (dup2(null_fd, STDIN_FILENO) < 0)
        status = err_set(err, STATUS_IO, errno, "cannot use /dev/null");
    (void)close(null_fd);
    shim->start = warm_start(&shim->msg.warm);
    return status;
}

static void fill_environment(struct warm_shim *shim)
{
    shim->env = (struct worker_env_facts){
        .start = &shim->start,
        .master_addr = "",
        .node_name = shim->arguments[SHIM_ARG_NODE_NAME],
        .node_address = shim->arguments[SHIM_ARG_NODE_ADDRESS],
        .gpus = shim->devices.count,
        .devices = shim->devices.items,
        .hides_gpus = !shim->devices.all && shim->devices.count == 0,
        .tools_dir = tools_folder(shim->tools.programs),
        .python_dir = tools_folder(shim->tools.python),
        .token = shim->workers.token,
        .error_dir = shim->error_dir,
        .shim_fd = SPAWN_EXTRA_FD,
        .has_store = store_child_is_wanted(&shim->start),
    };
    if (interface_of_address(shim->env.node_address, shim->interface))
        shim->env.interface = shim->interface;
}

static void open_handles(struct warm_shim *shim)
{
    int rc = uv_loop_init(&shim->loop);

    rc = rc != 0 ? rc : uv_signal_init(&shim->loop, &shim->child_signal);
    rc = rc != 0 ? rc : uv_signal_init(&shim->loop, &shim->stop_signal);
    rc = rc != 0 ? rc : uv_poll_init(&shim->loop, &shim->link, SPAWN_EXTRA_FD);
    shim->child_signal.data = shim->stop_signal.data = shim->link.data = shim;
    rc = rc != 0 ? rc : uv_signal_start(&shim->child_signal, on_child_signal, SIGCHLD);
    rc = rc != 0 ? rc : uv_signal_start(&shim->stop_signal, on_stop_signal, stop_signal());
    rc = rc != 0 ? rc : uv_poll_start(&shim->link, UV_READABLE | UV_DISCONNECT, on_link);
    assert(rc == 0); /* fails only without memory or descriptors, at the start of a process */
}

int warm_main(char *const *arguments)
{
    static struct warm_shim shim; /* too large for the stack */
    const struct account_policy policy = {.node = arguments[SHIM_ARG_NODE_NAME],
                                          .allow_root =
                                              strcmp(arguments[SHIM_ARG_ALLOW_ROOT], "1") == 0};
    struct err err = {.text = ""};

    log_open("warm", LOG_INFO, false);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    stop_signal_shield();
    (void)fcntl(SPAWN_EXTRA_FD, F_SETFD, FD_CLOEXEC);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    shim.arguments = arguments;
    if (read_order(&shim, &err) != STATUS_OK ||
        devices_parse(&shim.devices, arguments[SHIM_ARG_GPUS], &err) != STATUS_OK) {
        log_line(LOG_ERROR, about(&shim), "%s", err.text);
        return 1;
    }
    proc_token_make(shim.workers.token);
    tools_find(&shim.tools);
    rundir_rank_dir(shim.error_dir, arguments[SHIM_ARG_LOG_DIR], shim.start.generation);
    fill_environment(&shim);
    open_handles(&shim);
    shim.preflight.owner = &shim;
    shim.preflight.on_done = on_preflight;
    preflight_begin(&shim.preflight, &shim.loop, &policy, &shim.env, NULL);
    return uv_run(&shim.loop, UV_RUN_DEFAULT);
}
