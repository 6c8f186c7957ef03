/* The shim's core: one job's workers of one generation on this node. Pure: shim_step(state, event)
 * -> actions.
 *
 * preparing -> ready (port reserved, waits for `go`) -> running -> stopping -> ended (no process of
 * the job is left) -> gone after `forget`. The first worker that fails stops the others at once,
 * without asking anybody; so do `stop` (signal, grace, kill) and the end of the lease. It says all
 * there is to know in a report, on every change and each second until acked. */
#ifndef LAUNCHERD_SHIM_H
#define LAUNCHERD_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"

struct shim_options {
    uint64_t job_id;
    uint32_t generation;
    uint32_t rank_base, local_count, world;
    uint64_t grace_us;
    uint64_t lease_until_us; /* at the spawn; 0: no lease was given yet, then it runs `lease_us`
                                from the first step */
    uint64_t lease_us;
    uint32_t pid;
};

struct shim_rank {
    enum rank_state state;
    uint32_t pid;
    int32_t exit_code;
    uint32_t signal;
    bool joined, world_sent;
};

struct shim {
    struct shim_options options;
    enum shim_phase phase;
    bool launcher_open;
    uint32_t revision, acked, reported; /* reported: last revision sent on this connection */
    uint64_t report_at_us;              /* when to say it again */
    uint64_t lease_until_us;
    uint64_t kill_at_us; /* stopping: when the grace is over; UINT64_MAX: killed already */
    bool tree_empty;     /* the edge saw no process of ours left */
    bool has_world, forgotten;
    bool has_failed;      /* cause, failed_* say the first thing that went wrong */
    bool go_taken;        /* the workers were ordered; each is RUNNING or has ended once settled */
    bool exit_said;       /* SHIM_EXIT was ordered */
    uint32_t stop_signal; /* last sent for a `stop`; 0: none */
    uint64_t check_at_us; /* stopping with grace, all workers gone: when to look again; else 0 */
    uint64_t ended_at_us;
    uint32_t master_port;
    int32_t failed_rank; /* global; -1: none */
    uint64_t failed_at_us;
    uint32_t failed_errno_exit;
    char cause[REASON_BYTES_MAX];
    struct msg_bytes blob; /* into blob_bytes */
    uint8_t blob_bytes[BLOB_BYTES_MAX];
    uint8_t world_bytes[BLOB_BYTES_MAX];
    uint32_t world_byte_count;
    struct shim_rank ranks[SLOTS_PER_NODE_MAX];
};

enum shim_event_type {
    SHIM_EVENT_TICK,
    SHIM_EVENT_START,         /* first: reserve a port */
    SHIM_EVENT_PORT,          /* port: reserved; 0: failed, text */
    SHIM_EVENT_LAUNCHER_OPEN, /* launcherd connected (again) */
    SHIM_EVENT_LAUNCHER_CLOSED,
    SHIM_EVENT_LAUNCHER_MSG, /* msg: go, world, stop, forget, report_ack, lease, report_request */
    SHIM_EVENT_SPAWNED,      /* local, pid */
    SHIM_EVENT_SPAWN_FAILED, /* local, code (126, 127, or 125 for ours), text */
    SHIM_EVENT_EXITED, /* local, code or signal, text (what is known: "killed by the kernel: out of
                          memory", or empty) */
    SHIM_EVENT_WORKER_MSG, /* local, msg: worker_join, progress, worker_error */
    SHIM_EVENT_TREE_EMPTY, /* after KILL_TREE, or asked by CHECK_TREE: nothing of ours is left */
};

struct shim_event {
    uint64_t now_us;
    enum shim_event_type type;
    const struct msg *msg;
    uint32_t local, pid, port;
    int32_t code;
    uint32_t signal;
    const char *text;
};

enum shim_action_type {
    SHIM_RESERVE_PORT,
    SHIM_SPAWN_ALL, /* text: master address, port: every local rank; SPAWNED or SPAWN_FAILED follows
                       for each */
    SHIM_SIGNAL,    /* signal: to the process group of every running worker */
    SHIM_KILL_TREE, /* SIGKILL every descendant, until none is left; TREE_EMPTY follows */
    SHIM_CHECK_TREE,  /* all workers have exited: is anything left? TREE_EMPTY follows, else nothing
                       */
    SHIM_SEND_REPORT, /* shim_report, made by shim_report(); the edge adds the tail of failed_rank
                       */
    SHIM_SEND_PROGRESS, /* msg, to launcherd */
    SHIM_SEND_WORLD,    /* local: msg world with the blob to that worker */
    SHIM_EXIT,          /* all is said and recorded: close, leave */
};

struct shim_action {
    enum shim_action_type type;
    uint32_t local, signal, port;
    const char *text;      /* borrowed until the next step */
    const struct msg *msg; /* borrowed from the event */
};

#define SHIM_ACTIONS_MAX (2 * SLOTS_PER_NODE_MAX + 16)
struct shim_actions {
    uint32_t count;
    uint64_t timer_at_us;
    struct shim_action items[SHIM_ACTIONS_MAX];
};

/* Signal 9 is "SIGKILL"; NULL for those without a name here. */
const char *shim_signal_name(uint32_t signal);

void shim_init(struct shim *shim, const struct shim_options *options);
/* Where it says "reserve a port": only node rank 0 (rank_base 0) does, others are ready at START.
 * A second `go`, `stop` or `world` changes nothing; `forget` before the end stops at once first. */
void shim_step(struct shim *shim, const struct shim_event *event, struct shim_actions *actions);
/* The report as of now; `ranks` [SLOTS_PER_NODE_MAX] backs its list; the tail is empty. */
void shim_report(const struct shim *shim, uint64_t now_us, struct part_report_rank *ranks,
                 struct msg_shim_report *report);

#endif
