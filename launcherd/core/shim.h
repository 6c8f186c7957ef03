/* The shim's core: the workers of one generation of one job on this node. Pure: shim_step(state,
 * event) -> actions.
 *
 *   preparing  the edge checks that the job can run here; then a port is reserved
 *   ready      it waits for `go`
 *   running    all workers were spawned
 *   stopping   they are being signalled or killed
 *   ended      no process of the job is left; it exits after `forget`, or when launcherd stays away
 *
 * The end is first stored, then reported: a disk that does not answer holds the report up for a moment only, and the
 * report says so.
 *
 * The first worker that fails stops the others without asking the server; so do `stop` and the end of
 * the lease (shim_stop.h says how). A report has the whole state; it is sent on every change, and each
 * second until it is acknowledged. */
#ifndef LAUNCHERD_CORE_SHIM_H
#define LAUNCHERD_CORE_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"

struct shim_options {
    uint64_t job_id;
    uint32_t generation;
    uint32_t rank_base, local_count, world, node_count;
    uint64_t grace_us;
    uint64_t warn_after_us; /* --warn: ranks that run this long get this signal once; 0: none */
    uint32_t warn_signal;
    /* When the lease that launcherd had at the spawn ends; 0: it had none yet, and the lease runs
     * for `lease_us` from the first step. */
    uint64_t lease_until_us;
    uint64_t lease_us;
    uint32_t pid;
};

struct shim_rank {
    enum rank_state state;
    uint32_t pid;
    int32_t exit_code;
    uint32_t signal;
    bool joined, world_sent;
    uint64_t take_by_us; /* it was warm, and must report by then that it took its rank; 0: not */
    bool is_late;        /* it did not, and is killed: another one follows its end */
    bool is_dumping;     /* EXITED, but its process still writes a core file */
    bool is_raised;      /* EXITED, but its process has not ended yet */
};

/* What a worker said last. */
struct shim_progress {
    struct msg_progress newest;
    char doing[DOING_BYTES_MAX]; /* text of newest.doing */
    bool is_waiting;             /* the newest has not been sent yet */
    uint64_t next_us;            /* the next one is not sent before this */
};

struct shim {
    struct shim_options options;
    enum shim_phase phase;
    bool launcher_open;
    uint32_t revision, acked, reported; /* reported: last revision sent on this connection */
    uint64_t report_at_us;              /* when to repeat the report */
    uint64_t lease_until_us;
    uint64_t stopping_at_us; /* since when it has been stopping or ended; 0: it has not */
    uint64_t kill_at_us;     /* stopping: when the grace is over; UINT64_MAX: already killed */
    bool tree_empty;         /* the edge has found no process left, except the store */
    bool store_runs, store_end_ordered;
    bool store_released; /* the server's `stop` has released it */
    bool has_world, forgotten;
    bool lease_over;      /* it has ended its ranks because of that */
    bool warm_late;       /* see msg.h */
    bool has_failed;      /* cause, failed_*: the first failure */
    bool go_taken;        /* SPAWN_ALL was ordered */
    bool exit_ordered;    /* SHIM_EXIT was ordered */
    bool end_ordered;     /* SHIM_KEEP_END was ordered */
    bool end_known;       /* END_KEPT came: the end may be reported */
    uint32_t stop_signal; /* last sent; 0: none */
    uint64_t check_at_us; /* stopping, all workers gone: when to look again; else 0 */
    uint64_t left_at_us;  /* all workers exited 0: when what they left gets SIGTERM; else 0 */
    uint64_t late_at_us;  /* stopping: when SIGNAL_LATE is due; else 0 */
    uint64_t
        look_at_us; /* stopping, all workers gone: when what they left gets the signal again; else 0 */
    uint64_t ended_at_us;
    uint64_t alone_at_us; /* since when launcherd is not connected; 0: it is, or never was */
    bool is_recorded;     /* the end is on the disk */
    uint64_t warn_at_us;  /* running: when the warning is due; 0: unknown, UINT64_MAX: sent */
    uint32_t master_port;
    int32_t failed_rank; /* global; -1: none */
    uint64_t failed_at_us;
    enum failure_class failed_class;
    uint32_t failed_errno_exit; /* set even if no rank failed because none was started */
    bool failed_by_peer;        /* failed_rank says that it lost another rank */
    char cause[REASON_BYTES_MAX];
    char notice[REASON_BYTES_MAX]; /* why its end is not stored; empty: it is */
    char lost[REASON_BYTES_MAX];   /* what its logs lack; empty: nothing */
    struct msg_bytes blob;         /* points into blob_bytes */
    uint8_t blob_bytes[BLOB_BYTES_MAX];
    uint8_t world_bytes[BLOB_BYTES_MAX];
    uint32_t world_byte_count;
    struct shim_rank ranks[SLOTS_PER_NODE_MAX];
    struct shim_progress progress[SLOTS_PER_NODE_MAX];
};

enum shim_event_type {
    SHIM_EVENT_TICK,
    SHIM_EVENT_START,         /* the job can run here: reserve a port */
    SHIM_EVENT_CANNOT_START,  /* it cannot, and ends; text, code: 126 or 127 as in a shell, 125:
                               * the machine failed */
    SHIM_EVENT_PORT,          /* port: reserved; 0: failed, text */
    SHIM_EVENT_LAUNCHER_OPEN, /* launcherd connected (again) */
    SHIM_EVENT_LAUNCHER_CLOSED,
    SHIM_EVENT_LAUNCHER_MSG, /* msg: go, world, stop, forget, report_ack, lease, report_request */
    SHIM_EVENT_SPAWNED,      /* local, pid; must_take: it was warm, and TAKEN follows */
    SHIM_EVENT_TAKEN,        /* local */
    SHIM_EVENT_SPAWN_FAILED, /* local, code (as for CANNOT_START), text */
    SHIM_EVENT_EXITED, /* local, code or signal, text: more about it ("core dumped", its exception), or "" */
    SHIM_EVENT_DUMPING,       /* local: it has died and writes a core file; signal, 0: not known.
                              * EXITED follows, which can take minutes */
    SHIM_EVENT_RAISED,        /* local, text: it has raised an exception. EXITED follows */
    SHIM_EVENT_WORKER_MSG,    /* local, msg: worker_join, progress, worker_error */
    SHIM_EVENT_STORE_STARTED, /* before the first SPAWNED, where this shim has a store */
    SHIM_EVENT_STORE_EXITED,  /* text: how, code: 1 where the job's limits were the cause; else 0 */
    SHIM_EVENT_STORE_UNREACHED, /* text: why the ranks here do not reach the store on the first node */
    SHIM_EVENT_TREE_EMPTY,      /* after KILL_TREE or CHECK_TREE: no descendant is left (the store
                               * does not count). text: what of the output is not in the logs; NULL: all is */
    SHIM_EVENT_END_KEPT, /* text: why the end is not stored; NULL: it is, which may come later, too */
};

struct shim_event {
    uint64_t now_us;
    enum shim_event_type type;
    const struct msg *msg;
    uint64_t lease_until_us; /* of its page now (lease_page.h); 0: it has none */
    uint32_t local, pid, port;
    bool must_take;
    int32_t code;
    uint32_t signal;
    uint64_t age_us; /* EXITED, RAISED: how long ago it failed, if known; else 0 */
    bool by_peer;    /* EXITED, RAISED: it says that it lost another rank */
    bool
        has_raised; /* EXITED: it was stopped after it had raised an exception, which `text` says */
    const char *text;
};

enum shim_action_type {
    SHIM_RESERVE_PORT,
    SHIM_SPAWN_ALL, /* text: master address, port: spawns every local rank; SPAWNED or SPAWN_FAILED
                     * follows for each */
    SHIM_KILL_ONE,  /* local: SIGKILL to its process group; EXITED follows */
    SHIM_SPAWN_ONE, /* local: SPAWNED or SPAWN_FAILED follows */
    SHIM_SIGNAL, /* signal: to every running worker, and not yet to what it needs to save its work */
    SHIM_SIGNAL_LATE, /* signal: also to others that may have something to save, each once */
    SHIM_WARN,        /* signal: to every running worker; nothing is being stopped */
    SHIM_SIGNAL_LEFT, /* signal, is_told: to processes that ended workers left behind, each once */
    SHIM_KILL_TREE,   /* SIGKILL every descendant, until none is left; TREE_EMPTY follows. is_told:
                       * because the grace is over */
    SHIM_CHECK_TREE,  /* TREE_EMPTY follows when no descendant is left, at once or later */
    SHIM_END_STORE,   /* STORE_EXITED follows */
    SHIM_SEND_REPORT, /* the report of shim_report(); the edge adds what it has about failed_rank */
    SHIM_SEND_PROGRESS, /* progress, to launcherd */
    SHIM_SEND_WORLD,    /* local: msg world with the blob to that worker */
    SHIM_SEND_HELLO, /* an answer that shows that this process goes on, or that it ends its ranks because the
                         * lease is over */
    SHIM_KEEP_END, /* keep the report of the end; END_KEPT follows, soon in any case */
    SHIM_EXIT,     /* the end is reported and stored, or never will be: close everything and exit */
};

struct shim_action {
    enum shim_action_type type;
    uint32_t local, signal, port;
    bool is_told;     /* write into the logs of the ranks which processes were signalled */
    const char *text; /* both are borrowed until the next step */
    const struct msg_progress *progress;
};

/* The most actions of one step: for each worker a `world`, a progress and a kill. Of every other
 * action at most two for the lease, two for the event, three for the grace, one for the store, one for
 * the warning and one for the end. */
#define SHIM_ACTIONS_MAX (3 * SLOTS_PER_NODE_MAX + 13)
struct shim_actions {
    uint32_t count;
    uint64_t timer_at_us;
    struct shim_action items[SHIM_ACTIONS_MAX];
};

/* "SIGKILL" for 9; NULL for a signal without a name here. */
const char *shim_signal_name(uint32_t signal);

void shim_init(struct shim *shim, const struct shim_options *options);
/* One event. Only the shim with rank 0 (rank_base 0) reserves a port, the others are ready at
 * START. A second `go` or `world` is ignored; a second `stop` can shorten the grace or change the
 * signal; `forget` before the end kills at once. Asserts the invariants of the state. */
void shim_step(struct shim *shim, const struct shim_event *event, struct shim_actions *actions);
/* False: launcherd is not connected, or the end is not kept yet. A report that was ordered before waits, too. */
bool shim_may_report(const struct shim *shim);
/* Makes the report as of now. `ranks` [SLOTS_PER_NODE_MAX] backs its list. tail, error and whatever
 * else only the edge knows are left empty. */
void shim_report(const struct shim *shim, uint64_t now_us, struct part_report_rank *ranks,
                 struct msg_shim_report *report);

#endif
