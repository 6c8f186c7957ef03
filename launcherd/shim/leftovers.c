#include "launcherd/shim/leftovers.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/utf8.h"
#include "launcherd/core/shim_stop.h"
#include "launcherd/process/proc.h"
#include "launcherd/shim/environ_files.h"
#include "launcherd/shim/shim_workers.h"

#define NAMED_MAX 8u /* most processes named for one rank; the others are counted */
#define NAMES_BYTES_MAX (NAMED_MAX * 40u + 24u)

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

/* The local rank of the worker that started the process: by session or process group. */
static uint32_t worker_of(const struct shim_workers *workers, const struct proc_found *found)
{
    for (uint32_t i = 0; i < workers->options.start->local_count; i++)
        if (workers->items[i].group != 0 &&
            (workers->items[i].group == found->session || workers->items[i].group == found->group))
            return i;
    return ENVIRON_UNKNOWN;
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

/* `local`: ENVIRON_UNKNOWN: `late` says why it is not known. */
static void name_of_rank(struct shim_workers *workers, uint32_t local, uint32_t total,
                         const char *names, const char *late)
{
    const struct msg_start *start = workers->options.start;
    const bool is_known = local != ENVIRON_UNKNOWN;
    const uint32_t rank = start->rank_base + (is_known ? local : 0);
    const uint64_t grace_us =
        start->grace_us < SHIM_LEFT_GRACE_US ? start->grace_us : SHIM_LEFT_GRACE_US;
    const char *end = total > 1 ? "es" : "";
    char who[200], text[800], line[800];

    if (is_known)
        (void)snprintf(who, sizeof who, "rank %u", rank);
    else
        (void)snprintf(who, sizeof who, "a rank here (which one is not known: %.140s)", late);
    if (workers->left.fate == LEFTOVERS_SIGNALLED)
        (void)snprintf(text, sizeof text,
                       "%s has exited and left %u process%s: %s: SIGTERM now, SIGKILL in %.1f s",
                       who, total, end, names, (double)grace_us / 1e6);
    else
        (void)snprintf(text, sizeof text,
                       "%s: %u process%s %s not ended in the grace and %s killed: %s", who, total,
                       end, total > 1 ? "have" : "has", total > 1 ? "are" : "is", names);
    utf8_printable(text, strlen(text), line, sizeof line);
    log_line(LOG_WARNING,
             (struct log_about){
                 .job_id = start->job_id, .generation = start->generation, .rank = (int32_t)rank},
             "%s", line);
    (void)output_note(&workers->items[rank - start->rank_base].output, line);
}

static void name_all(struct shim_workers *workers, const struct environ_files *files,
                     const char *late)
{
    char names[NAMES_BYTES_MAX];
    uint32_t total;

    for (uint32_t i = 0; i < files->local_count; i++) {
        total = list(files->found, files->locals, files->count, i, names);
        if (total > 0)
            name_of_rank(workers, i, total, names, late);
    }
    total = list(files->found, files->locals, files->count, ENVIRON_UNKNOWN, names);
    if (total > 0)
        name_of_rank(workers, ENVIRON_UNKNOWN, total, names, late);
}

/* -- what a thread looks at ------------------------------------------------------------------------ */

static void on_looked(struct file_work *work, const char *late)
{
    struct environ_files *files = (struct environ_files *)work;
    struct shim_workers *workers = files->workers;

    if (workers == NULL)
        return;
    for (uint32_t i = 0; i < files->count && late == NULL; i++)
        if (files->locals[i] == ENVIRON_UNKNOWN)
            files->locals[i] = files->seen[i];
    leftovers_forget(workers);
    name_all(workers, files, late);
    workers->left.then(workers);
}

static void drop(struct file_work *work)
{
    struct environ_files *files = (struct environ_files *)work;

    if (files->workers != NULL)
        files->workers->left.look = NULL;
    free(files);
}

static struct environ_files *look_new(struct shim_workers *workers, bool *is_known)
{
    struct environ_files *files = calloc(1, sizeof *files);

    static_assert(ENVIRON_PROCESSES_MAX == LEFTOVERS_MAX, "find fills it");
    *is_known = true;
    if (files == NULL)
        return NULL;
    files->work = (struct file_work){.lane = FILE_LANE_RANKS,
                                     .limit_ms = LEFTOVERS_LOOK_MS,
                                     .run = environ_files_look,
                                     .done = on_looked,
                                     .drop = drop};
    files->rank_base = workers->options.start->rank_base;
    files->local_count = workers->options.start->local_count;
    files->count = find(workers, files->found);
    for (uint32_t i = 0; i < files->count; i++) {
        files->locals[i] = worker_of(workers, &files->found[i]);
        *is_known = *is_known && files->locals[i] != ENVIRON_UNKNOWN;
    }
    return files;
}

bool leftovers_name(struct shim_workers *workers, enum leftovers_fate fate,
                    void (*then)(struct shim_workers *workers))
{
    struct leftovers *left = &workers->left;
    const bool hangs = left->look != NULL;
    bool is_known;
    struct environ_files *files;

    leftovers_forget(workers);
    files = look_new(workers, &is_known);
    left->fate = fate;
    left->then = then;
    if (files == NULL)
        return true;
    if (is_known || hangs) {
        name_all(workers, files, "an earlier look goes on");
        free(files);
        return true;
    }
    files->workers = workers;
    left->look = files;
    return !file_work_start(workers->options.files, &files->work);
}

void leftovers_forget(struct shim_workers *workers)
{
    if (workers->left.look != NULL)
        workers->left.look->workers = NULL;
    workers->left.look = NULL;
}
