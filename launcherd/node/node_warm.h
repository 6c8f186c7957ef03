/* Processes that wait on this node for the ranks of jobs whose spare it is: each job's in one
 * `launcherd --warm` (shim/warm_main.h). The server asks for them (msg warm) and takes that back (cool); its beats
 * tell it what is here. All of it is a wish: whatever is not as it should be ends them, and the start order
 * that they waited for starts others.
 *
 *   starting  they load
 *   ready     they wait; a start order that fits takes them
 *   failed    they have ended by themselves. Remembered, so that they are not started again and again
 *   ending    they were told to end, and have not yet. A start order for their slots waits for that
 *
 * They end with the connection to them, so with launcherd in whatever way. Without the server they go on for as
 * long as a shim would: its lease. */
#ifndef LAUNCHERD_NODE_NODE_WARM_H
#define LAUNCHERD_NODE_NODE_WARM_H

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
    uv_timer_t kill_timer;       /* of those that do not end */
    uv_timer_t lease_timer;      /* without the server */
    bool has_server;
};

void node_warm_init(struct node_warm *warm, const struct node_host *host);
/* Ends all of them. */
void node_warm_close(struct node_warm *warm);
void node_warm_free(struct node_warm *warm);

void node_warm_order(struct node_warm *warm, const struct msg_warm *order);
void node_warm_cool(struct node_warm *warm, uint64_t job_id);
/* After each step of the core: whether the server is there. */
void node_warm_check(struct node_warm *warm);
/* Returns how many. `out`: [SLOTS_PER_NODE_MAX]. */
uint32_t node_warm_list(const struct node_warm *warm, struct part_warm_job *out);

/* A new start order has come. True: processes that do not fit are on its slots, and are being ended. The server
 * repeats the order with the next beat. */
bool node_warm_blocks(struct node_warm *warm, const struct msg_start *start);
/* Those that wait for this order, if there are any, become its shim, with these arguments (shim_io.h) and this
 * log. True: `*pid` is it, `*fd` the connection to it. */
bool node_warm_take(struct node_warm *warm, const struct msg_start *start,
                    const char *const *arguments, const char *log, pid_t *pid, int *fd);

/* Of the children of this process. */
bool node_warm_has(const struct node_warm *warm, pid_t pid);
bool node_warm_reaped(struct node_warm *warm, const siginfo_t *info);

/* What is on a GPU beside them: while they are on its slot, memory that belongs to nobody else is theirs. */
void node_warm_explain(const struct node_warm *warm, struct gpu_facts *facts);

#endif
