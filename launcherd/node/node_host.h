/* What node.c offers to the parts that it owns: node_shims, node_gpus, node_logs and others. They
 * call it back through this struct and never include node.h. */
#ifndef LAUNCHERD_NODE_NODE_HOST_H
#define LAUNCHERD_NODE_NODE_HOST_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "common/log.h"
#include "launcherd/core/launcher.h"
#include "launcherd/process/devices.h"
#include "launcherd/process/rundir.h"

struct file_works;
struct node_children;

struct node_host {
    uv_loop_t *loop;
    struct file_works *files;       /* all work on files (file_work.h) */
    struct node_children *children; /* processes that threads start (node_children.h) */
    const char *state_dir, *logs_dir;
    bool logs_are_shared;  /* not in the state directory, so other launcherds may use it, too */
    uint64_t log_max;      /* bytes of the log of a rank; 0: no limit */
    uint64_t keep_logs_us; /* how long logs are kept after their job's end */
    const struct launcher *core;   /* read only */
    const struct devices *devices; /* the GPUs of the slots */
    const char *cgroups;           /* the folder for the jobs' cgroups; empty: none */
    uint64_t job_memory_bytes;     /* the limit of a job here; 0: none */
    bool allow_root;               /* jobs of root and of system accounts may run */
    bool ends_shims; /* exit_with_parent: a private run, whose shims and folders end with it */
    bool
        is_new; /* such a run, and its state directory got its id in this start: no shim can have been started with it */
    bool ending; /* node_end was called: no more orders */
    bool closed; /* all handles are closing: no more events */
    void *owner;
    /* Passes an event from a callback of the loop to the core, and carries out the actions. */
    void (*step)(void *owner, struct launcher_event event);
    /* Queues an event from within an action until the step is over. `event.text` is copied. */
    void (*post)(void *owner, struct launcher_event event);
    void (*send_server)(void *owner, const struct msg *msg);
    size_t (*unsent_bytes)(void *owner); /* to the server: queued, not yet with the kernel */
    /* Whether this child is a helper and not a shim, so that a sweep spares it. */
    bool (*is_helper)(void *owner, pid_t pid);
    /* This helper was reaped. */
    void (*helper_reaped)(void *owner, const siginfo_t *info);
    /* Removes from the facts what belongs to warm processes (node_warm.h). */
    void (*explain_gpu)(void *owner, struct gpu_facts *facts);
};

static inline struct log_about node_about(const struct node_host *host)
{
    return (struct log_about){.node = host->core->options.name, .rank = -1};
}

static inline struct rundir_logs node_logs_of(const struct node_host *host)
{
    return (struct rundir_logs){.dir = host->logs_dir,
                                .owner = host->logs_are_shared ? host->core->options.state_id : ""};
}

/* The folder for the logs of a job. */
static inline void node_log_dir(const struct node_host *host, char out[PATH_MAX],
                                const char *cluster, uint64_t job_id, int64_t submitted_ms)
{
    const struct rundir_logs logs = node_logs_of(host);

    rundir_log_dir(out, &logs, cluster, job_id, submitted_ms);
}

#endif
