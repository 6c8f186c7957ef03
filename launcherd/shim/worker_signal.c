#include "launcherd/shim/worker_signal.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/log.h"
#include "launcherd/process/signal_tree.h"
#include "launcherd/shim/dumps.h"
#include "launcherd/shim/leftovers.h"
#include "launcherd/shim/shim_workers.h"

static bool is_running(const struct shim_worker *worker)
{
    return worker->pid > 0 && !dumps_spare(worker);
}

static bool is_worker(void *arg, const struct proc_found *child)
{
    const struct shim_workers *workers = arg;

    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        if (workers->items[i].pid == child->pid)
            return is_running(&workers->items[i]);
    return false;
}

/* Or of one that has ended: the process of a shell that an earlier signal has ended. */
static bool is_of_ended(void *arg, const struct proc_found *child)
{
    const struct shim_workers *workers = arg;

    for (uint32_t i = 0; i < workers->options.start->local_count; i++) {
        const struct shim_worker *worker = &workers->items[i];

        if (worker->pid == 0 && worker->group != 0 &&
            (worker->group == child->group || worker->group == child->session))
            return true;
    }
    return is_worker(arg, child);
}

static bool is_any(void *arg, const struct proc_found *child)
{
    (void)arg;
    (void)child;
    return true;
}

static uint32_t send_below(struct shim_workers *workers, enum signal_wave wave,
                           bool (*is_root)(void *arg, const struct proc_found *child),
                           struct signal_memory *memory)
{
    const struct signal_tree tree = {
        .shim = getpid(), .arg = workers, .is_spared = dumps_spare_pid, .is_root = is_root};

    return signal_tree_send(&tree, wave, memory);
}

void worker_signal_first(struct shim_workers *workers, int signal)
{
    struct signal_memory *memory = &workers->left.memory;
    const bool is_second = memory->signal != 0;
    bool is_done = !is_second;

    signal_memory_begin(memory, signal);
    for (uint32_t i = 0; i < workers->options.start->local_count; i++) {
        struct shim_worker *worker = &workers->items[i];

        if (!is_running(worker))
            continue;
        worker->signalled = signal;
        if (!signal_tree_answers(worker->pid, signal)) {
            is_done = false;
            continue;
        }
        signal_memory_add(memory, worker->pid, proc_start_ticks(worker->pid));
        (void)kill(worker->pid, signal); /* it is not reaped, so the number is its own */
    }
    if (!is_done) /* all of /proc is read for that */
        (void)send_below(workers, SIGNAL_FIRST, is_second ? is_of_ended : is_worker, memory);
}

void worker_signal_late(struct shim_workers *workers, int signal)
{
    struct signal_memory *memory = &workers->left.memory;
    uint32_t count;

    if (memory->signal != signal)
        signal_memory_begin(memory, signal);
    count = send_below(workers, SIGNAL_LATE, is_any, memory);
    if (count > 0)
        log_line(LOG_INFO, LOG_ABOUT_NONE,
                 "the grace is nearly over: %u more process%s of the ranks get signal %d", count,
                 count > 1 ? "es" : "", signal);
}

static void signal_left(struct shim_workers *workers)
{
    struct leftovers *left = &workers->left;

    if (left->memory.signal != left->due)
        signal_memory_begin(&left->memory, left->due);
    (void)send_below(workers, SIGNAL_FIRST, is_any, &left->memory);
}

void worker_signal_left(struct shim_workers *workers, int signal, bool is_told)
{
    if (shim_workers_tree_is_empty(workers))
        return;
    workers->left.due = signal;
    if (is_told ? leftovers_name(workers, LEFTOVERS_SIGNALLED, signal_left)
                : workers->left.look == NULL)
        signal_left(workers);
}

void worker_signal_warn(struct shim_workers *workers, int signal)
{
    struct signal_memory *memory = calloc(1, sizeof *memory);

    if (memory == NULL)
        return;
    signal_memory_begin(memory, signal);
    (void)send_below(workers, SIGNAL_WARN, is_worker, memory);
    free(memory);
}
