#include "launcherd/shim/worker_spawn.h"

#include <errno.h>
#include <stdio.h>

#include "common/log.h"
#include "launcherd/process/doing.h"
#include "launcherd/process/interface.h"
#include "launcherd/process/spawn.h"
#include "launcherd/process/spawn_guard.h"
#include "launcherd/shim/worker_argv.h"
#include "launcherd/shim/worker_take.h"

#define CUT_BYTES 256

struct log_about worker_about(const struct shim_worker *worker)
{
    const struct msg_start *start = worker->workers->options.start;
    return (struct log_about){.job_id = start->job_id,
                              .generation = start->generation,
                              .rank = (int32_t)(start->rank_base + worker->local)};
}

void worker_facts(const struct shim_workers *workers, struct worker_env_facts *facts)
{
    const struct shim_workers_options *options = &workers->options;
    *facts = (struct worker_env_facts){
        .start = options->start,
        .node_name = options->node_name,
        .node_address = workers->node_address,
        .gpus = options->gpus,
        .devices = options->devices,
        .hides_gpus = options->hides_gpus,
        .tools_dir = tools_folder(workers->tools.programs),
        .python_dir = tools_folder(workers->tools.python),
        .token = options->token,
        .error_dir = workers->error_dir,
        .shim_fd = SPAWN_EXTRA_FD,
        .has_store = store_child_is_wanted(options->start),
    };
}

void worker_spawn_prepare(struct worker_spawn_facts *facts, const struct shim_workers *workers)
{
    worker_facts(workers, &facts->env);
    facts->env.master_addr = workers->master_addr;
    facts->env.master_port = workers->master_port;
    if (interface_of_address(workers->node_address, facts->interface))
        facts->env.interface = facts->interface;
    facts->env.user = workers->account.name;
    facts->env.home = workers->account.home;
    facts->env.shell = workers->account.shell;
}

/* Gives the rank to a warm worker, or starts a new process. */
static enum status place_one(struct shim_worker *worker, struct spawn_order *order,
                             const struct worker_ends *ends, int *exit_code, struct err *err)
{
    struct spawn_guard guard;
    enum status status;
    int answer_fd;

    if (warm_workers_give(&worker->workers->warm, worker->local, ends, order->stdin_fd, order->envp,
                          order->cgroup, &worker->pid, &answer_fd)) {
        log_line(LOG_INFO, worker_about(worker), "takes over warm, pid %d", (int)worker->pid);
        if (answer_fd >= 0 && !worker_take_begin(worker, answer_fd, ends))
            log_line(LOG_WARNING, worker_about(worker), "its answer cannot be waited for");
        return STATUS_OK;
    }
    doing_set(DOING_START, worker->workers->options.start->rank_base + worker->local);
    spawn_guard_begin(&guard);
    order->watch = &guard.watch;
    status = spawn_process(order, &worker->pid, exit_code, err);
    status = spawn_guard_end(&guard, status, err);
    order->watch = NULL;
    doing_set(DOING_NOTHING, 0);
    return status;
}

/* Once for each node, where people look: in the log of its first rank. */
static void tell_cut(struct shim_worker *worker, const char *cut)
{
    char line[CUT_BYTES + 160];

    (void)snprintf(line, sizeof line,
                   "limits of the submitter that are above this node's hard limits: %s", cut);
    log_line(LOG_WARNING, worker_about(worker), "%s", line);
    (void)output_note(&worker->output, line);
}

enum status worker_spawn(struct shim_worker *worker, struct worker_spawn_facts *facts, int null_fd,
                         const struct worker_ends *ends, int *exit_code, struct err *err)
{
    struct arena arena = {0};
    struct spawn_limits limits;
    char cut[CUT_BYTES];
    char **envp = worker_env_build(&facts->env, worker->local, &arena);
    char **argv = worker_argv_build(facts->env.start, worker->local, &arena);
    struct spawn_order order = {
        .argv = argv,
        .envp = envp,
        .search = envp == NULL ? "" : worker_env_path(envp),
        .cwd = facts->env.start->cwd,
        .user = worker->workers->as_self ? NULL : &worker->workers->account,
        .cgroup = worker->workers->has_cgroup ? worker->workers->rank_cgroup : NULL,
        .stdin_fd = ends->stdin_fd >= 0 ? ends->stdin_fd : null_fd,
        .stdout_fd = ends->stdout_fd,
        .stderr_fd = ends->stderr_fd,
        .extra_fd = ends->conn_fd,
        .has_terminal = ends->has_terminal,
        .is_job = true,
        .limits = &limits,
        .dies_with_parent = true,
    };
    enum status status;

    spawn_limits_read(&facts->env.start->launch, &limits, cut, sizeof cut);
    status = envp == NULL || argv == NULL
                 ? err_set(err, STATUS_MEMORY, ENOMEM, "no memory to start a rank")
                 : place_one(worker, &order, ends, exit_code, err);
    if (cut[0] != '\0' && worker->local == 0 && facts->env.start->restart_count == 0)
        tell_cut(worker, cut);
    worker->group = status == STATUS_OK ? worker->pid : 0;
    arena_reset(&arena);
    return status;
}
