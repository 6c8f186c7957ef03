/* Which processes of a rank get a signal of a stop first, which near the end of the grace, and which only when the rank has
 * ended. Pure. The edge is signal_tree.h; when each of the three is due is decided in the shim's core (core/shim_stop.h).
 *
 * First: the process of the rank. If it has no handler for the signal, then also what it has started, down to the first
 * processes that have one: the program of `sh -c`, of `time`, of a Python that only waits for another one. A shell is
 * passed in any case, because it waits for its program before it runs a trap, and hands nothing on. What a process with a
 * handler has started is its own affair: a training script needs its DataLoader's workers until it has saved.
 *
 * Late, near the end of the grace: every other process that has a handler and runs another program than its parent. The parent
 * has a handler, too, and seems to do nothing with the signal. What has no handler has nothing to save, nor have copies of their
 * parent (a DataLoader's workers), and their death could still end a rank that does.
 *
 * When the ranks have ended, the same rule as at first holds for what they have left.
 *
 * A shell with a trap that waits for what it has started with & (`python train.py & wait`) runs its trap at once, and most such
 * traps hand the signal on. So what it has started so gets none from us at first.
 *
 * In none of them: what reads from a pipe of the others, such as `tee` or `gzip` behind a script. It ends with its input, and
 * without it the script would die of its next line of output. But if only the reader has a handler, as in
 * `cat list | python train.py`, it is the one that saves.
 *
 * `timeout` gives a signal to its whole group, with a DataLoader's workers. So it gets none, and its program does. */
#ifndef LAUNCHERD_PROCESS_SIGNAL_RULE_H
#define LAUNCHERD_PROCESS_SIGNAL_RULE_H

#include <stdbool.h>
#include <stdint.h>

enum signal_wave {
    SIGNAL_FIRST,
    SIGNAL_LATE,
    SIGNAL_WARN, /* a warning stops nothing: as at first, but only to those that have a handler; if a rank has none of
                  * those, to its process */
};

#define SIGNAL_ROOT (-1)
#define SIGNAL_RULE_MAX 4096u /* processes of a list */

struct signal_process {
    int32_t
        parent; /* its index, less than its own; SIGNAL_ROOT: of a rank's process, or of one that ranks have left */
    bool has_it;   /* it got this signal before */
    bool answers;  /* it has a handler, or waits for the signal */
    bool is_shell; /* it waits for what it runs before it does anything, and hands no signal on */
    bool is_background; /* a shell has started it with & */
    bool is_relay;      /* it gives its whole group the signal that it gets: timeout */
    bool is_copy;       /* it runs the program of its parent */
    bool reads_others;  /* its standard input is a pipe into which another one of the list writes */
    bool lost_writer;   /* the same until the last look: it may still have to read the rest */
    int32_t
        writer; /* the index of one of those, best of one that answers; SIGNAL_ROOT: none but what has started it */
    bool is_chosen; /* the result */
};

void signal_rule(struct signal_process *list, uint32_t count, enum signal_wave wave);

#endif
