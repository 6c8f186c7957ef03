/* Warm processes: they wait on this node for the ranks of jobs that have a spare here. All processes
 * of one job are kept by one `launcherd --warm` (shim/warm_main.h). The server asks for them (msg warm)
 * and takes that back (cool); beats tell it which ones are here. They are optional: if anything is
 * wrong they are ended, and the start order starts other processes.
 *
 *   starting  they load
 *   ready     they wait; a start order that fits takes them
 *   failed    they have ended by themselves. Remembered, so that they are not started again and again
 *   ending    they were told to end, and have not ended yet. A start order for their slots waits for
 *             that
 *
 * They end when their connection to launcherd closes, however launcherd ends. If the process that keeps
 * them was killed, this launcherd or the next one finds and kills the remaining ones with the help of
 * the shim.json in rundir_warm_path. Without the server they stay for as long as a shim would: its lease. */
#ifndef LAUNCHERD_NODE_NODE_WARM_H
#define LAUNCHERD_NODE_NODE_WARM_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "launcherd/core/gpu_facts.h"
#include "launcherd/node/node_host.h"

struct node_warm_job;

struct node_warm {
    const struct node_host *host;
    struct node_warm_job *first; /* owned */
    uv_timer_t kill_timer;       /* kills those that do not end */
    uv_timer_t lease_timer;      /* runs while the server is not connected */
    uv_timer_t sweep_timer;      /* kills processes that ended ones have left */
    bool has_server;
    bool
        holds_up_order; /* a start order was dropped because of processes that have not ended yet */
};

void node_warm_init(struct node_warm *warm, const struct node_host *host);
/* Ends all of them. */
void node_warm_close(struct node_warm *warm);
void node_warm_free(struct node_warm *warm);

void node_warm_order(struct node_warm *warm, const struct msg_warm *order);
void node_warm_cool(struct node_warm *warm, uint64_t job_id);
/* After each step of the core: checks whether the server is connected. */
void node_warm_check(struct node_warm *warm);
/* Lists them for a beat; returns how many. `out`: [SLOTS_PER_NODE_MAX]. */
uint32_t node_warm_list(const struct node_warm *warm, struct part_warm_job *out);

/* A new start order has come. True: its slots have warm processes that do not fit, and these are
 * being ended. The server repeats the order at the next beat, which is sent when they are gone. */
bool node_warm_blocks(struct node_warm *warm, const struct msg_start *start);
/* If processes wait for this order they are kept for it. Their description, the shim.json of `dir`, is to be moved
 * to the run directory then; after that node_warm_take follows, or node_warm_release once it is back. */
bool node_warm_reserve(struct node_warm *warm, const struct msg_start *start, char dir[PATH_MAX]);
/* They become the shim, with these arguments (shim_io.h) and this log. True: `*pid` is the shim, `*fd` the
 * connection to it. */
bool node_warm_take(struct node_warm *warm, uint64_t job_id, const char *const *arguments,
                    const char *log, pid_t *pid, int *fd);
/* They are not taken after all, and end. */
void node_warm_release(struct node_warm *warm, uint64_t job_id);

/* Whether this child of launcherd is one of them. */
bool node_warm_has(const struct node_warm *warm, pid_t pid);
/* Call for each child that was reaped. True: it was one of them. */
bool node_warm_reaped(struct node_warm *warm, const siginfo_t *info);

/* Call when children were reaped: one whose start was given up may be gone. */
void node_warm_check_children(struct node_warm *warm);

/* Removes from the facts of a GPU the warm processes on its slot and, if no other process uses the
 * GPU, their memory. */
void node_warm_explain(const struct node_warm *warm, struct gpu_facts *facts);

#endif
