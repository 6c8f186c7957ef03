#include "launcherd/shim/leftovers.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/utf8.h"
#include "launcherd/core/shim_stop.h"
#include "launcherd/process/proc.h"
#include "launcherd/shim/shim_workers.h"

#define NAMED_MAX 8u /* most processes named for one rank; the others are counted */
#define NAMES_BYTES_MAX (NAMED_MAX * 40u + 24u)

static bool was_signalled(const struct shim_workers *workers, const struct proc_found *found,
                          int signal)
{
    const struct leftovers *left = &workers->left;

    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        if (workers->items[i].group == found->group && workers->items[i].signalled == signal)
            return true;
    for (uint32_t i = 0; i < left->count && left->signal == signal; i++)
        if (left->signalled[i].pid == found->pid &&
            left->signalled[i].start_ticks == found->start_ticks)
            return true;
    return false;
}

static bool is_store(void *arg, pid_t pid)
{
    const struct shim_workers *workers = arg;

    return workers->store.pid > 0 && pid == workers->store.pid;
}

static uint32_t find(struct shim_workers *workers, struct proc_found found[LEFTOVERS_MAX])
{
    uint32_t count = proc_find_descendants(getpid(), is_store, workers, found, LEFTOVERS_MAX);

    return count < LEFTOVERS_MAX ? count : LEFTOVERS_MAX;
}

void leftovers_signal(struct shim_workers *workers, int signal, bool is_told)
{
    struct leftovers *left = &workers->left;
    struct proc_found found[LEFTOVERS_MAX];
    uint32_t count;

    if (is_told)
        leftovers_name(workers, LEFTOVERS_SIGNALLED);
    count = find(workers, found);
    for (uint32_t i = 0; i < count; i++) {
        if (was_signalled(workers, &found[i], signal))
            continue;
        proc_signal_exactly(&found[i], signal);
        if (left->signal != signal)
            left->count = 0;
        left->signal = signal;
        if (left->count == LEFTOVERS_MAX)
            continue;
        left->signalled[left->count].pid = found[i].pid;
        left->signalled[left->count++].start_ticks = found[i].start_ticks;
    }
}

/* The local rank of the worker that started the process: found by session or process group, else by
 * RANK in its environment (a daemon), else 0. */
static uint32_t worker_of(const struct shim_workers *workers, const struct proc_found *found)
{
    const struct msg_start *start = workers->options.start;
    char entry[32];

    for (uint32_t i = 0; i < start->local_count; i++)
        if (workers->items[i].group != 0 &&
            (workers->items[i].group == found->session || workers->items[i].group == found->group))
            return i;
    for (uint32_t i = 0; i < start->local_count; i++) {
        int bytes = snprintf(entry, sizeof entry, "RANK=%u", start->rank_base + i);

        if (proc_environment_has(found->pid, entry, (size_t)bytes + 1))
            return i;
    }
    return 0;
}

/* Writes "4711 (python3), 4712 (sh) and 3 more": the processes of `owner`. Returns their number. */
static uint32_t list(const struct proc_found *found, const uint32_t *owners, uint32_t count,
                     uint32_t owner, char names[NAMES_BYTES_MAX])
{
    uint32_t total = 0;
    size_t used = 0;

    names[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        if (owners[i] != owner)
            continue;
        if (total++ < NAMED_MAX)
            used += (size_t)snprintf(names + used, NAMES_BYTES_MAX - used, "%s%d (%s)",
                                     total > 1 ? ", " : "", (int)found[i].pid, found[i].name);
    }
    if (total > NAMED_MAX)
        used += (size_t)snprintf(names + used, NAMES_BYTES_MAX - used, " and %u more",
                                 total - NAMED_MAX);
    assert(used < NAMES_BYTES_MAX);
    return total;
}

static void name_of_rank(struct shim_workers *workers, uint32_t local, uint32_t total,
                         const char *names, enum leftovers_fate fate)
{
    const struct msg_start *start = workers->options.start;
    const uint32_t rank = start->rank_base + local;
    const uint64_t grace_us =
        start->grace_us < SHIM_LEFT_GRACE_US ? start->grace_us : SHIM_LEFT_GRACE_US;
    char text[600], line[600];

    if (fate == LEFTOVERS_SIGNALLED)
        (void)snprintf(
            text, sizeof text,
            "rank %u has exited and left %u process%s: %s: SIGTERM now, SIGKILL in %.1f s", rank,
            total, total > 1 ? "es" : "", names, (double)grace_us / 1e6);
    else
        (void)snprintf(text, sizeof text,
                       "rank %u: %u process%s %s not ended in the grace and %s killed: %s", rank,
                       total, total > 1 ? "es" : "", total > 1 ? "have" : "has",
                       total > 1 ? "are" : "is", names);
    utf8_printable(text, strlen(text), line, sizeof line);
    log_line(LOG_WARNING,
             (struct log_about){
                 .job_id = start->job_id, .generation = start->generation, .rank = (int32_t)rank},
             "%s", line);
    (void)output_note(&workers->items[local].output, line);
}

void leftovers_name(struct shim_workers *workers, enum leftovers_fate fate)
{
    struct proc_found found[LEFTOVERS_MAX];
    uint32_t owners[LEFTOVERS_MAX];
    uint32_t count = find(workers, found), total;
    char names[NAMES_BYTES_MAX];

    for (uint32_t i = 0; i < count; i++)
        owners[i] = worker_of(workers, &found[i]);
    for (uint32_t i = 0; i < workers->options.start->local_count; i++) {
        total = list(found, owners, count, i, names);
        if (total > 0)
            name_of_rank(workers, i, total, names, fate);
    }
}
