/* Sends a signal of a stop to processes below a shim, by the rule of signal_rule.h, each process once. */
#ifndef LAUNCHERD_PROCESS_SIGNAL_TREE_H
#define LAUNCHERD_PROCESS_SIGNAL_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcherd/process/proc.h"
#include "launcherd/process/signal_rule.h"

#define SIGNAL_READERS_MAX 64u

/* A process, also after its number was given to another one. */
struct signal_id {
    pid_t pid;
    uint64_t start_ticks;
};

/* Who has got which signal. Zero at first. */
struct signal_memory {
    int signal; /* the newest one; 0: none */
    uint32_t count, reader_count;
    struct signal_id had[SIGNAL_RULE_MAX];
    struct signal_id
        readers[SIGNAL_READERS_MAX]; /* read from a pipe of others when it was looked at last */
};

struct signal_tree {
    pid_t shim;
    void *arg;
    bool (*is_spared)(
        void *arg,
        pid_t pid); /* of a child of the shim: it is left alone, and all below it. NULL: none */
    bool (*is_root)(void *arg,
                    const struct proc_found *child); /* of another one: the rule begins with it */
};

/* Whether the process alone gets the signal at first, because it answers for what it has started. */
bool signal_tree_answers(pid_t pid, int signal);
/* A new signal begins: nobody has got it. */
void signal_memory_begin(struct signal_memory *memory, int signal);
void signal_memory_add(struct signal_memory *memory, pid_t pid, uint64_t start_ticks);
bool signal_memory_has(const struct signal_memory *memory, pid_t pid, uint64_t start_ticks);
/* Returns how many processes got it. `memory`: its signal is sent. Blocks as long as reading /proc takes. */
uint32_t signal_tree_send(const struct signal_tree *tree, enum signal_wave wave,
                          struct signal_memory *memory);

#endif
