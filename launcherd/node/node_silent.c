#include "launcherd/node/node_silent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcherd/process/signal_tree.h"

/* proc(5) */
static const char *describe(char state)
{
    switch (state) {
    case 'R':
        return "R (running)";
    case 'S':
        return "S (sleeping)";
    case 'D':
        return "D (waits in the kernel)";
    case 'T':
        return "T (stopped)";
    case 't':
        return "t (stopped by a debugger)";
    case 'Z':
        return "Z (ended)";
    default:
        return "unknown";
    }
}

/* A rank is a child of its shim; another process with its number is not. */
static bool is_rank(const struct node_shim *shim, uint32_t index, struct proc_stat *stat)
{
    return shim->pids[index] > 0 && proc_stat_of(shim->pids[index], stat) &&
           stat->is.parent == shim->pid && stat->state != 'Z';
}

static uint32_t count_ranks(const struct node_shim *shim)
{
    struct proc_stat stat;
    uint32_t count = 0;

    if (shim->rank_count == 0)
        return UINT32_MAX;
    for (uint32_t i = 0; i < shim->rank_count; i++)
        count += is_rank(shim, i, &stat);
    return count;
}

void node_silent_look(struct node_shims *shims, uint64_t job_id, uint32_t generation)
{
    struct node_shim *shim = node_shim_find(shims, job_id, generation);
    struct launcher_event event;
    struct proc_stat stat;

    if (shim == NULL || shim->exited)
        return;
    event = node_shim_event(shim, LAUNCHER_EVENT_SHIM_LOOKED);
    event.pid = (uint32_t)shim->pid;
    event.text = describe(proc_stat_of(shim->pid, &stat) ? stat.state : '?');
    if (shim->is_other_build && strncmp(event.text, "S ", 2) == 0)
        event.text = "S (of another launcherd build)"; /* it would answer */
    event.ranks_left = count_ranks(shim);
    shims->host->post(shims->host->owner, event);
}

/* The process of a rank, or what one that has ended has left. */
static bool is_of_rank(void *arg, const struct proc_found *child)
{
    const struct node_shim *shim = arg;
    struct proc_stat stat;

    for (uint32_t i = 0; i < shim->rank_count; i++) {
        if (shim->pids[i] <= 0)
            continue;
        if (shim->pids[i] == child->pid)
            return true;
        if ((shim->pids[i] == child->session || shim->pids[i] == child->group) &&
            !is_rank(shim, i, &stat))
            return true;
    }
    return false;
}

void node_silent_signal(struct node_shims *shims, uint64_t job_id, uint32_t generation, int signal)
{
    struct node_shim *shim = node_shim_find(shims, job_id, generation);
    struct signal_memory *memory = calloc(1, sizeof *memory);
    uint32_t sent = 0;

    if (shim != NULL && !shim->exited && shim->pid > 0 && memory != NULL) {
        signal_memory_begin(memory, signal);
        sent = signal_tree_send(
            &(struct signal_tree){.shim = shim->pid, .arg = shim, .is_root = is_of_rank},
            SIGNAL_FIRST, memory);
    }
    if (shim != NULL)
        log_line(LOG_WARNING, node_shim_about(shim),
                 "its shim does not answer: %u process%s of its ranks %s signal %d from here", sent,
                 sent == 1 ? "" : "es", sent == 1 ? "gets" : "get", signal);
    free(memory);
}
