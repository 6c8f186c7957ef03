#include "launcherd/node/node_adopt.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "launcherd/node/node_sweep.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/rundir.h"
#include "launcherd/shim/shim_io.h"
#include "launcherd/shim/warm_main.h"

enum { KILL_TURNS_MAX = 500, KILL_PAUSE_NS = 10000000 };

static void on_pidfd(uv_poll_t *poll, int status, int events)
{
    struct node_shim *shim = poll->data;
    (void)status;
    (void)events;
    node_shim_close_poll(shim);
    if (shim->exited)
        return;
    (void)snprintf(shim->how, sizeof shim->how, "has ended unexpectedly");
    node_sweep_begin(shim);
}

/* Watches the process. False: it is gone. Its start time is compared again once the pidfd is open,
 * because only then the pid cannot be reused by another process. */
static bool watch(struct node_shim *shim, const struct rundir_shim *process)
{
    if (proc_start_ticks(process->pid) != process->start_ticks)
        return false;
    shim->pidfd = proc_pidfd(process->pid);
    if (shim->pidfd < 0)
        return false;
    if (proc_start_ticks(process->pid) != process->start_ticks ||
        uv_poll_init(shim->shims->host->loop, &shim->pidfd_poll, shim->pidfd) != 0) {
        close(shim->pidfd);
        shim->pidfd = -1;
        return false;
    }
    shim->pid = process->pid;
    shim->pidfd_poll.data = shim;
    shim->poll_open = true;
    uv_poll_start(&shim->pidfd_poll, UV_READABLE, on_pidfd);
    return true;
}

static void fill_core_shim(struct launcher_shim *out, const struct msg_start *start)
{
    memset(out, 0, sizeof *out);
    out->job_id = start->job_id;
    out->generation = start->generation;
    out->slot_mask = start->slot_mask;
    out->rank_base = start->rank_base;
    out->local_count = start->local_count;
    (void)snprintf(out->cluster, sizeof out->cluster, "%s", start->cluster);
}

/* Kills what is found of a shim, or with WARM_ARGUMENT of a process that keeps others warm.
 * `process`: what it wrote about itself; NULL: unknown. False: nothing was found. The shim is a
 * subreaper, so all that its workers started is below it; it is killed last. */
static bool kill_found(const char *word, const char *dir, const struct rundir_shim *process)
{
    pid_t pid = proc_find_command(word, dir);
    bool found = pid != 0;

    if (pid != 0 && proc_kill_descendants(pid, NULL, NULL) == 0)
        (void)kill(pid, SIGKILL);
    if (process != NULL && node_sweep_kill_described(process) > 0)
        found = true;
    return found;
}

/* Kills all processes of a shim whose state is unknown, and waits until they are gone. False: some
 * are still there after KILL_TURNS_MAX. */
static bool kill_all(const struct node_host *host, const char *word, const char *dir)
{
    const struct timespec pause = {.tv_nsec = KILL_PAUSE_NS};
    struct rundir_shim process;
    struct err err;
    bool is_known = rundir_read_shim(dir, &process, &err) == STATUS_OK &&
                    strcmp(process.boot_id, host->core->options.boot_id) == 0;

    for (uint32_t i = 0; i < KILL_TURNS_MAX; i++) {
        if (!kill_found(word, dir, is_known ? &process : NULL))
            return true;
        (void)nanosleep(&pause, NULL);
    }
    log_line(LOG_ERROR, node_about(host), "processes of %s do not die of SIGKILL", dir);
    return false;
}

/* A shim that died in this boot counts as alive until its processes have been swept. Then SHIM_GONE
 * follows. */
static void adopt_shim(struct node_shim *shim, const struct msg_start *start, struct arena *arena)
{
    static struct launcher_shim core;
    const struct node_host *host = shim->shims->host;
    struct launcher_event event = node_shim_event(shim, LAUNCHER_EVENT_ADOPT);
    struct rundir_shim process;
    struct msg end;
    struct err err;
    bool has_process = rundir_read_shim(shim->dir, &process, &err) == STATUS_OK;
    bool same_boot = has_process && strcmp(process.boot_id, host->core->options.boot_id) == 0;
    bool has_end = rundir_read_msg(shim->dir, "end.msg", arena, &end, &err) == STATUS_OK;
    bool lives = same_boot && watch(shim, &process);

    if (!lives && proc_find_command(SHIM_ARGUMENT, shim->dir) != 0) {
        log_line(LOG_ERROR, node_shim_about(shim),
                 "its shim lives, but %s/shim.json does not describe it: it is killed", shim->dir);
        (void)kill_all(host, SHIM_ARGUMENT, shim->dir);
    }
    fill_core_shim(&core, start);
    core.phase = has_end ? SHIM_ENDED : SHIM_PREPARING;
    event.shim = &core;
    event.alive = same_boot;
    (void)snprintf(shim->how, sizeof shim->how, "%s",
                   has_process && !same_boot ? "ended with a restart of the node"
                                             : "ended while launcherd was away");
    event.text = shim->how;
    event.msg = has_end ? &end : NULL;
    log_line(LOG_INFO, node_shim_about(shim),
             lives ? "adopted its shim, pid %d" : "its shim is gone (pid %d)",
             has_process ? (int)process.pid : 0);
    if (!lives && same_boot)
        node_sweep_begin(shim);
    else if (!lives)
        shim->exited = shim->reported = true;
    host->step(host->owner, event);
    if (lives && proc_find_command(SHIM_ARGUMENT, shim->dir) == 0)
        node_sweep_kill(shim->shims, shim->job_id, shim->generation,
                        "it was warm, and has not taken the start order");
}

/* Without the start order a shim's slots are not known, so it must not go on. Its directory is removed
 * only if there is no order in it that could be read: an error of the disk is no proof of that. */
static void remove_unknown(const struct node_host *host, const char *dir, const struct err *why)
{
    log_line(LOG_ERROR, node_about(host),
             "%s has no start order that can be read (%s): what runs of it is killed", dir,
             why->text);
    if (kill_all(host, SHIM_ARGUMENT, dir) && why->status != STATUS_IO &&
        why->status != STATUS_REFUSED)
        rundir_remove(dir);
}

static void adopt_dir(struct node_shims *shims, const char *dir)
{
    struct arena arena = {0};
    struct msg start;
    struct err err = {.status = STATUS_BAD_INPUT, .text = "another message"};
    if (rundir_read_msg(dir, "start.msg", &arena, &start, &err) != STATUS_OK ||
        start.type != MSG_TYPE_START) {
        remove_unknown(shims->host, dir, &err);
    } else {
        struct node_shim *shim = node_shim_new(shims, &start.start);
        if (shim != NULL && strcmp(shim->dir, dir) == 0) {
            adopt_shim(shim, &start.start, &arena);
        } else if (shim != NULL) {
            shim->removed = true;
            (void)err_set(&err, STATUS_CONFLICT, 0, "it is the order of another job");
            remove_unknown(shims->host, dir, &err);
        } else {
            log_line(LOG_ERROR, node_about(shims->host), "no memory to adopt the shim of %s", dir);
        }
    }
    arena_reset(&arena);
}

/* Ends what is left of warm processes. They normally end with the launcherd that started them, but not
 * if the process that keeps them (`launcherd --warm`) was killed or stopped, too. */
static void end_warm(struct node_shims *shims, const char *dir)
{
    if (!kill_all(shims->host, WARM_ARGUMENT, dir))
        return;
    node_shim_remove_cgroup(dir);
    rundir_remove(dir);
}

/* Whether the directory can be that of a process of ours. If it has our name and is not ours, what
 * runs of it must not go on, since nobody can know what it was told to do; the directory is left alone. */
static bool is_ours(struct node_shims *shims, const char *word, const char *dir, bool has_name)
{
    struct err err = {.text = "its name is none of ours"};

    if (has_name && rundir_check(dir, &err) == STATUS_OK)
        return true;
    log_line(LOG_ERROR, node_about(shims->host), "%s is left alone: %s", dir, err.text);
    if (has_name)
        (void)kill_all(shims->host, word, dir);
    return false;
}

static void for_each_dir(struct node_shims *shims, const char *name, const char *word,
                         bool (*has_name)(const char *name),
                         void (*with)(struct node_shims *shims, const char *dir))
{
    char parent[PATH_MAX], path[PATH_MAX];
    struct dirent *entry;
    struct err err;
    enum status status;
    DIR *dir;
    int fd;

    rundir_join(parent, shims->host->state_dir, name);
    status = own_folder_open(parent, 1, &fd, &err);
    if (status != STATUS_OK) {
        if (status != STATUS_NOT_FOUND)
            log_line(LOG_ERROR, node_about(shims->host), "%s is left alone: %s", parent, err.text);
        return;
    }
    dir = own_folder_list(fd);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        rundir_join(path, parent, entry->d_name);
        if (is_ours(shims, word, path, has_name(entry->d_name)))
            with(shims, path);
    }
    if (dir != NULL)
        closedir(dir);
    close(fd);
}

void node_adopt(struct node_shims *shims)
{
    for_each_dir(shims, "run", SHIM_ARGUMENT, rundir_is_name, adopt_dir);
    for_each_dir(shims, "warm", WARM_ARGUMENT, rundir_is_warm_name, end_warm);
}
