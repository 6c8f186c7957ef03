#include "launcherd/process/signal_tree.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Of each process: standard input, output and error, and what tee has open for `tee >(gzip > log.gz)`. */
#define STREAMS 8

/* Programs that wait for what they run, and hand no signal on meanwhile. uv, timeout, accelerate and torchrun hand it on. */
static const char *const shells[] = {"sh",    "bash", "dash", "ash",  "busybox", "zsh", "ksh",
                                     "ksh93", "mksh", "yash", "fish", "tcsh",    "csh"};

struct process {
    struct proc_found is;
    uint64_t pipes[STREAMS]; /* numbers; 0: no pipe */
    uint64_t program;        /* proc_program_id */
};

struct list {
    struct proc_found *found;
    struct process *items;
    struct signal_process *rule;
    uint32_t count;
};

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool is_shell(pid_t pid)
{
    char name[PROC_PROGRAM_BYTES];

    proc_program(pid, name);
    return is_one_of(name, shells, sizeof shells / sizeof shells[0]);
}

static bool is_relay(pid_t pid)
{
    static const char *const relays[] = {"timeout"};
    char name[PROC_PROGRAM_BYTES];

    proc_program(pid, name);
    return is_one_of(name, relays, sizeof relays / sizeof relays[0]);
}

bool signal_tree_answers(pid_t pid, int signal)
{
    return proc_answers(pid, signal) && !is_shell(pid);
}

void signal_memory_begin(struct signal_memory *memory, int signal)
{
    memory->signal = signal;
    memory->count = 0;
}

static bool has(const struct signal_id *ids, uint32_t count, pid_t pid, uint64_t start_ticks)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i].pid == pid && ids[i].start_ticks == start_ticks)
            return true;
    return false;
}

bool signal_memory_has(const struct signal_memory *memory, pid_t pid, uint64_t start_ticks)
{
    return has(memory->had, memory->count, pid, start_ticks);
}

void signal_memory_add(struct signal_memory *memory, pid_t pid, uint64_t start_ticks)
{
    if (memory->count < SIGNAL_RULE_MAX)
        memory->had[memory->count++] = (struct signal_id){pid, start_ticks};
}

/* -- what /proc says ------------------------------------------------------------------------------- */

static void look(struct process *process)
{
    for (int i = 0; i < STREAMS; i++)
        process->pipes[i] = proc_pipe(process->is.pid, i);
    process->program = proc_program_id(process->is.pid);
}

static bool writes_to(const struct process *process, uint64_t pipe)
{
    for (int i = 1; i < STREAMS; i++)
        if (process->pipes[i] == pipe)
            return true;
    return false;
}

static bool has_writer(const struct list *list, uint32_t index)
{
    const uint64_t pipe = list->items[index].pipes[0];

    for (uint32_t i = 0; pipe != 0 && i < list->count; i++)
        if (i != index && writes_to(&list->items[i], pipe))
            return true;
    return false;
}

static bool is_above(const struct list *list, uint32_t top, uint32_t index)
{
    int32_t at = (int32_t)index;

    while (at > (int32_t)top)
        at = list->rule[at].parent;
    return at == (int32_t)top;
}

/* Whoever has started the process may talk to it through a pipe; that is no pipeline. */
static int32_t writer_of(const struct list *list, uint32_t index)
{
    const uint64_t pipe = list->items[index].pipes[0];
    int32_t writer = SIGNAL_ROOT;

    for (uint32_t i = 0; pipe != 0 && i < list->count; i++)
        if (i != index && writes_to(&list->items[i], pipe) && !is_above(list, i, index) &&
            (writer == SIGNAL_ROOT || list->rule[i].answers))
            writer = (int32_t)i;
    return writer;
}

static bool is_copy(const struct list *list, uint32_t index, int32_t parent)
{
    const struct process *process = &list->items[index];

    return parent != SIGNAL_ROOT && process->program != 0 &&
           process->program == list->items[parent].program;
}

static int32_t index_of(const struct list *list, uint32_t below, pid_t pid)
{
    for (uint32_t i = below; i > 0; i--)
        if (list->items[i - 1].is.pid == pid)
            return (int32_t)(i - 1);
    return SIGNAL_ROOT;
}

/* Leaves out children of the shim that are no roots, and what is below them. */
static void fill(struct list *list, const struct signal_tree *tree, const struct proc_found *found,
                 uint32_t count, const struct signal_memory *memory)
{
    for (uint32_t i = 0; i < count; i++) {
        const int32_t parent = index_of(list, list->count, found[i].parent);

        if (parent == SIGNAL_ROOT &&
            (found[i].parent != tree->shim || !tree->is_root(tree->arg, &found[i])))
            continue;
        list->rule[list->count].parent = parent;
        list->items[list->count].is = found[i];
        look(&list->items[list->count++]);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        struct signal_process *rule = &list->rule[i];
        const struct proc_found *is = &list->items[i].is;

        rule->has_it = signal_memory_has(memory, is->pid, is->start_ticks);
        rule->answers = proc_answers(is->pid, memory->signal);
        rule->is_shell = is_shell(is->pid);
        rule->is_relay = is_relay(is->pid);
        rule->is_background = proc_ignores(is->pid, SIGINT) && proc_ignores(is->pid, SIGQUIT);
        rule->is_copy = is_copy(list, i, rule->parent);
        rule->reads_others = has_writer(list, i);
        rule->lost_writer = !rule->reads_others &&
                            has(memory->readers, memory->reader_count, is->pid, is->start_ticks);
    }
    for (uint32_t i = 0; i < list->count; i++)
        list->rule[i].writer = writer_of(list, i);
}

static void note_readers(const struct list *list, struct signal_memory *memory)
{
    uint32_t count = 0;
    struct signal_id ids[SIGNAL_READERS_MAX];

    for (uint32_t i = 0; i < list->count && count < SIGNAL_READERS_MAX; i++)
        if (list->rule[i].reads_others)
            ids[count++] = (struct signal_id){list->items[i].is.pid, list->items[i].is.start_ticks};
    memcpy(memory->readers, ids, count * sizeof ids[0]);
    memory->reader_count = count;
}

static uint32_t send(const struct list *list, enum signal_wave wave, struct signal_memory *memory)
{
    uint32_t sent = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        const struct proc_found *is = &list->items[i].is;

        if (!list->rule[i].is_chosen)
            continue;
        proc_signal_exactly(is, memory->signal);
        if (wave != SIGNAL_WARN)
            signal_memory_add(memory, is->pid, is->start_ticks);
        sent++;
    }
    return sent;
}

uint32_t signal_tree_send(const struct signal_tree *tree, enum signal_wave wave,
                          struct signal_memory *memory)
{
    struct list list = {.found = calloc(SIGNAL_RULE_MAX, sizeof *list.found),
                        .items = calloc(SIGNAL_RULE_MAX, sizeof *list.items),
                        .rule = calloc(SIGNAL_RULE_MAX, sizeof *list.rule)};
    uint32_t count = 0, sent = 0;

    if (list.found != NULL && list.items != NULL && list.rule != NULL) {
        count = proc_find_descendants(tree->shim, tree->is_spared, tree->arg, list.found,
                                      SIGNAL_RULE_MAX);
        fill(&list, tree, list.found, count < SIGNAL_RULE_MAX ? count : SIGNAL_RULE_MAX, memory);
        signal_rule(list.rule, list.count, wave);
        note_readers(&list, memory);
        sent = send(&list, wave, memory);
    }
    free(list.found);
    free(list.items);
    free(list.rule);
    return sent;
}
