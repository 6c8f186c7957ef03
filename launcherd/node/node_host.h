/* What node.c gives to the parts of launcherd's edge that it owns: node_shims, node_gpus,
 * node_logs. They call it back through this, and never include node.h. */
#ifndef LAUNCHERD_NODE_NODE_HOST_H
#define LAUNCHERD_NODE_NODE_HOST_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "common/log.h"
#include "launcherd/core/launcher.h"
#include "launcherd/process/devices.h"

struct node_host {
    uv_loop_t *loop;
    const char *state_dir, *logs_dir;
    uint64_t log_max;              /* bytes of the log of a rank; 0: no limit */
    uint64_t keep_logs_us;         /* for how long after the end of a job */
    const struct launcher *core;   /* to read */
    const struct devices *devices; /* the GPUs of the slots */
    const char *cgroups;           /* the folder for the cgroups of jobs; empty: none */
    uint64_t job_memory_bytes;     /* the limit of a job here; 0: none */
    bool allow_root;               /* runs jobs of root and of accounts of the system */
    bool ends_shims; /* exit_with_parent: a private run, whose shims and folders end with it */
    bool ending;     /* node_end was called: no more orders */
    bool closed;     /* all handles are closing: no more events */
    void *owner;
    /* Gives an event from a callback of the loop to the core, and carries out what follows. */
    void (*step)(void *owner, struct launcher_event event);
    /* Queues an event from within an action, until the step is over. `event.text` is copied. */
    void (*post)(void *owner, struct launcher_event event);
    void (*send_server)(void *owner, const struct msg *msg);
    /* Of the children that are no shims: is this one ours, so that a sweep spares it; it was reaped. */
    bool (*is_helper)(void *owner, pid_t pid);
    void (*helper_reaped)(void *owner, const siginfo_t *info);
    /* What of the facts is not explained by processes that wait here (node_warm.h). */
    void (*explain_gpu)(void *owner, struct gpu_facts *facts);
};

static inline struct log_about node_about(const struct node_host *host)
{
    return (struct log_about){.node = host->core->options.name, .rank = -1};
}

#endif
