/* The core of the node's daemon: its connection to the server, the shims and the GPUs of this node.
 * Pure: launcher_step(state, event) -> actions.
 *
 * It relays orders (go, world, stop, forget, report_ack) from the server to the shim that they
 * name, and reports and progress from the shims to the server. It owns:
 *   - the table of shims, with their slots and phases. A shim is in it from `start` (after a
 *     restart of launcherd: from its run directory) until `forget`;
 *   - the lease, which it passes on to the shims;
 *   - the report about a shim that died;
 *   - the state of each slot with a GPU (launcher_slots.h).
 *
 * The files of the core. A file calls only files that come later in this list, read line by line; only
 * launcher_check calls earlier ones:
 *   launcher         events, the server, timers
 *   launcher_orders  orders of the server           launcher_beat      hello and beat
 *   launcher_leave   the end of a node that leaves
 *   launcher_shims   events of the shims            launcher_evaluate  answers of NVML, Xids
 *   launcher_slots   states of the slots            launcher_report    reports about dead shims
 *   launcher_due     when shims must be killed
 *   launcher_silent  shims that do not answer
 *   launcher_table   the table of shims             launcher_seen      the newest job of each cluster
 *   launcher_actions the list of actions
 *   launcher_check   the invariants                 fault              the policy for GPU faults */
#ifndef LAUNCHERD_CORE_LAUNCHER_H
#define LAUNCHERD_CORE_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"
#include "launcherd/core/gpu_facts.h"
#include "launcherd/core/seen_record.h"
#include "launcherd/core/slots_record.h"

struct launcher_options {
    char name[NODE_NAME_BYTES_MAX];
    char boot_id[64];
    char machine_id[IDENTITY_BYTES_MAX], state_id[IDENTITY_BYTES_MAX]; /* empty: not known */
    char address[ADDRESS_BYTES_MAX]; /* where other nodes reach this one */
    char version[32];
    uint32_t protocol;  /* the version that this program speaks (common/msg_version.h) */
    const char *schema; /* of its messages (common/msg_schema.h) */
    uint64_t instance;  /* random for each process */
    uint32_t pid;
    uint32_t slots, gpus; /* slot i is GPU i for every i < gpus */
    bool drains_on_term;  /* SIGTERM will be a LEAVE; sent to the server for display */
    bool keeps_trying;    /* a server that refuses this node does not end the process */
    uint64_t seed;        /* for the jitter of reconnecting */
    /* How long an answer of NVML may take, and how long the processes and the memory of a job that
     * ended may stay on a GPU, before the slot is closed; idle GPUs are queried as often. */
    uint64_t gpu_timeout_us;
    uint64_t
        keep_us; /* how long the end of another server's shim is kept for that server; 0: ever */
};

/* How a generation ended on this node: the last report of its shim. */
struct launcher_end {
    bool is_known;
    int32_t failed_rank, failed_errno_exit;
    enum failure_class failed_class;
    uint64_t failed_at_us;
    uint32_t rank_count;
    struct part_report_rank ranks[SLOTS_PER_NODE_MAX];
    char tail[TAIL_BYTES_MAX], error[TAIL_BYTES_MAX];
    bool failed_oom, failed_by_peer;
    char failed_core[REASON_BYTES_MAX];
    char notice[REASON_BYTES_MAX];
};

struct launcher_shim {
    uint64_t job_id;
    uint32_t generation;
    enum shim_phase phase;
    uint64_t slot_mask;
    uint32_t rank_base, local_count;
    uint64_t grace_us;    /* of its job */
    int64_t submitted_ms; /* of its job; 0: a server of release 0.1.0 did not say it */
    bool connected;       /* its socket is open */
    bool dead;      /* its process is gone and its workers are killed: we report in its place */
    bool forgotten; /* `forget` came; the entry is removed once its process is gone */
    bool adopted;   /* found at the start of launcherd */
    bool
        unwatched; /* adopted, and its process cannot be seen from here: its end will not be told */
    bool unseen; /* unwatched, and it does not answer: it may run or not, until its lease is over */
    uint32_t revision, acked; /* of our own report, once dead; a living shim counts its own */
    bool reported;            /* the shim has reported since the last welcome */
    uint64_t connect_at_us;   /* when to connect again; 0: no attempt is due */
    uint32_t connect_failures;
    uint64_t
        started_at_us; /* SPAWN_SHIM was ordered, or an adopted one said that it prepares; else 0 */
    uint64_t
        ask_at_us; /* before it runs: when it is asked whether it still goes on; 0: it is not asked */
    uint32_t asks; /* in a row, without an answer */
    bool is_met;   /* it has said hello to this launcherd */
    uint32_t pid;  /* of its process, once it was looked at */
    uint64_t
        heard_at_us; /* when it last said something; at first, when it was started or adopted */
    bool is_silent; /* it was asked in vain (launcher_silent.h); its state is looked at, and then */
    bool is_told;   /* people are told */
    uint64_t look_at_us;  /* when to look again, while it is being stopped */
    char state[32];       /* of its process: "T (stopped)" */
    uint32_t ranks_left;  /* processes of ranks that run; UINT32_MAX: not known */
    uint64_t stop_by_us;  /* when the grace of a stop is over; 0: none was ordered */
    uint32_t stop_signal; /* of that stop */
    bool is_held;         /* its order waits for the archive of its folder */
    bool got_go;
    uint64_t take_by_us;       /* its process was warm and must say hello by then; 0: it was not */
    bool warm_late;            /* a warm process did not, and another one was started */
    uint64_t foreign_until_us; /* its own server's lease, if that is not ours; 0: unknown */
    uint64_t
        lease_until_us; /* adopted: the lease that it had then, from its page (lease_page.h); 0: not known */
    bool ends_lease;       /* it has said that its lease is over, and that it ends its ranks */
    uint64_t end_by_us;    /* when it must have carried out a stop or forget; 0: none was ordered */
    uint64_t killed_at_us; /* when it was killed, or ended and its workers were killed; 0: not */
    const char *kill_why;  /* why launcherd has killed it; NULL: it has not. A constant */
    uint64_t gone_at_us;
    uint64_t gone_age_us; /* how long it had been gone then */
    char cluster[33];     /* of the server that ordered it */
    char cause[REASON_BYTES_MAX];
    struct launcher_end end;
};

/* A fault that the driver has reported, and when we last passed it on. */
struct launcher_xid {
    uint32_t number; /* 0: none */
    uint64_t at_us;
};
#define LAUNCHER_XIDS_MAX 8u

/* The slot of a GPU. It is given out only while FREE. Whether a shim uses it is not part of the
 * state. */
struct launcher_slot {
    enum slot_state state; /* never BUSY */
    uint64_t checking_us;  /* CHECKING: since when */
    uint64_t asked_us;     /* when the open question was asked; 0: none is open */
    uint64_t next_ask_us;
    uint32_t asks; /* since checking_us */
    bool has_baseline, has_ecc, remap_failed, remap_pending;
    bool contained_seen; /* Xid 94 came: it explains the next rise of the counter */
    uint64_t baseline_bytes, ecc_uncorrected;
    uint64_t incident;                           /* DRAINED: which fault; else 0 */
    struct launcher_xid xids[LAUNCHER_XIDS_MAX]; /* the last ones, each number once */
    char reason[REASON_BYTES_MAX];               /* why it is closed; empty while FREE, CHECKING */
};

/* --drain-on-term, see launcher_leave.h. */
struct launcher_leaving {
    bool is_on;    /* LEAVE came */
    bool is_known; /* this server knows it (since its welcome) */
    bool has_left;
    uint64_t since_us;
    uint64_t told_us;     /* when the first beat since the welcome said so; 0: none has */
    uint64_t alone_at_us; /* when the node itself stops shims that no server stops */
    uint64_t
        leave_by_us; /* all shims have ended: when it ends although the server has not recorded that; 0: not */
};

struct launcher {
    struct launcher_options options;
    bool server_open, welcomed;
    uint32_t failures;   /* connection attempts in a row */
    bool refused;        /* the last one failed for a reason that does not go away by itself */
    bool referred;       /* the server on this connection is a standby */
    uint32_t referrals;  /* since the last welcome */
    bool busy;           /* the server answered "busy" on this connection */
    uint64_t busy_at_us; /* since when every connection has been answered "busy"; 0: not */
    uint64_t retry_at_us, beat_at_us; /* UINT64_MAX: not armed */
    uint64_t silent_at_us;            /* when to close a silent connection; UINT64_MAX: not armed */
    uint64_t beat_interval_us, lease_us;
    uint64_t welcomed_at_us;
    bool was_short;       /* the last connection with a welcome did not last */
    bool was_away;        /* since then its server was not there, or was another one */
    uint32_t short_count; /* connections in a row that did not last although the server was there */
    uint64_t hello_at_us; /* when the hello was sent: the first lease counts from it */
    uint64_t lease_until_us; /* boot clock; 0: none was given yet */
    char cluster[33];        /* of the last welcome; shims of other clusters get no orders */
    uint64_t random;
    uint64_t used_mask; /* slots with an active shim, after the last step */
    bool slots_changed; /* since the last beat */
    bool slots_dirty;   /* since the last SAVE_SLOTS */
    struct seen_record seen;
    struct launcher_slot slots[SLOTS_PER_NODE_MAX];
    struct launcher_leaving leaving;
    uint32_t shim_count;
    struct launcher_shim shims[SHIMS_PER_NODE_MAX];
};

enum launcher_event_type {
    LAUNCHER_EVENT_TICK,
    /* At the start, in this order: SLOTS_LOADED and SEEN_LOADED where there is a record, ADOPT for
     * each run directory, ADOPTED. The server is called only after that. */
    LAUNCHER_EVENT_SLOTS_LOADED, /* slots */
    LAUNCHER_EVENT_SEEN_LOADED,  /* seen */
    LAUNCHER_EVENT_ADOPT, /* shim: job, generation, slots, ranks, cluster, phase; alive; is_unseen.
                                  * Dead: text (how it ended), age_us (since then, if known), and msg (its last
                                  * report, shim_report; NULL: it had recorded none) */
    LAUNCHER_EVENT_ADOPTED,
    LAUNCHER_EVENT_SERVER_OPEN,   /* CONNECT_SERVER succeeded; text: this node's address on the way
                                   * to the server; NULL: that of the options */
    LAUNCHER_EVENT_SERVER_CLOSED, /* the connection attempt failed, or the connection ended. text:
                                   * why, and the remedy, if trying again cannot help; else NULL */
    LAUNCHER_EVENT_SERVER_MSG, /* msg: refer, node_welcome, beat_ack, start, go, world, stop, forget,
                                   * report_ack, slot_resume, error */
    /* The following nine have job_id and generation. */
    LAUNCHER_EVENT_SHIM_HELD, /* after SPAWN_SHIM: it waits for the archive of its folder; again for each piece
                                 * that comes, of this archive or one before it */
    LAUNCHER_EVENT_SHIM_WARM,   /* after SPAWN_SHIM: a process that was warm got the order */
    LAUNCHER_EVENT_SHIM_OPEN,   /* its socket is connected; msg: shim_hello */
    LAUNCHER_EVENT_SHIM_MSG,    /* msg: shim_report, progress */
    LAUNCHER_EVENT_SHIM_CLOSED, /* its socket is closed; the process may still be alive */
    LAUNCHER_EVENT_SHIM_LOOKED, /* after LOOK_SHIM: pid, text (the state of its process), ranks_left */
    LAUNCHER_EVENT_SHIM_FAILED, /* SPAWN_SHIM failed; text: why */
    LAUNCHER_EVENT_SHIM_EXITED, /* its process is gone, but processes that it started are not yet */
    LAUNCHER_EVENT_SHIM_GONE,   /* its process is gone, and the processes that it started were
                                 * killed; text: how it ended ("was killed (signal 9)"); msg: as for
                                 * ADOPT */
    LAUNCHER_EVENT_GPU,         /* gpu: the answer to an ASK_GPU; may come late or never */
    LAUNCHER_EVENT_XID,         /* slot, xid: the driver reports a fault */
    LAUNCHER_EVENT_START_POSSIBLE, /* what held up a start order is gone: a beat is sent at once, so
                                    * that the server repeats the order */
    LAUNCHER_EVENT_LEAVE,          /* end when the jobs here have ended: LEFT follows */
};

struct launcher_event {
    uint64_t now_us;
    enum launcher_event_type type;
    uint64_t job_id;
    uint32_t generation;
    const struct msg *msg; /* this and all pointers below are borrowed for the step */
    const char *text;
    const struct launcher_shim *shim;
    const struct slots_record *slots;
    const struct seen_record *seen;
    const struct gpu_facts *gpu;
    uint32_t slot, xid;
    uint32_t pid, ranks_left; /* SHIM_LOOKED; ranks_left UINT32_MAX: not known */
    uint64_t age_us;
    bool alive;
    bool is_unseen;       /* ADOPT: nobody here can know whether it is alive */
    bool is_other_server; /* SERVER_OPEN: not at the address of the last welcome */
};

enum launcher_action_type {
    LAUNCHER_CONNECT_SERVER,
    LAUNCHER_CLOSE_SERVER, /* text; SERVER_CLOSED follows */
    LAUNCHER_END,          /* text: end the process; a person must act. No shim is alive */
    LAUNCHER_LEFT,         /* after LEAVE: no shim is left; end the process */
    LAUNCHER_SEND_SERVER,  /* msg */
    LAUNCHER_SPAWN_SHIM,   /* msg (start): write the run directory, spawn, connect to its socket */
    LAUNCHER_SPAWN_AGAIN,  /* job_id, generation: as SPAWN_SHIM, for a shim that is gone */
    LAUNCHER_ASK_GPU,    /* slot, asked_us, bytes_max: query this GPU, off the loop. Where more than
                            * bytes_max is used and NVML names no process, find those that have the
                            * device file open */
    LAUNCHER_SAVE_SLOTS, /* slots: write the record to the state directory */
    LAUNCHER_SAVE_SEEN,  /* seen: the same, off the loop */
    LAUNCHER_CONNECT_SHIM, /* job_id, generation: an adopted one, or again after its socket
                            * closed */
    LAUNCHER_SEND_SHIM, /* job_id, generation, msg. A `lease` is also for a shim that is not connected: it is
                            * written to its page */
    LAUNCHER_KILL_SHIM, /* job_id, generation, text (why): SIGKILL; SHIM_GONE follows once its
                            * processes are gone too, which may be never */
    LAUNCHER_LOOK_SHIM, /* job_id, generation: SHIM_LOOKED follows */
    LAUNCHER_SIGNAL_RANKS, /* job_id, generation, signal: to the processes of its ranks, which a shim that does not
                            * answer cannot signal */
    LAUNCHER_REMOVE, /* job_id, generation: remove the run directory (logs stay) */
    LAUNCHER_LOG,    /* text; level info */
};

struct launcher_action {
    enum launcher_action_type type;
    uint64_t job_id;
    uint32_t generation;
    uint32_t slot, signal;
    uint64_t asked_us, bytes_max;
    const char *text; /* this and the pointers below: valid until the next step */
    const struct slots_record *slots;
    const struct seen_record *seen;
    struct msg msg; /* to send; borrows from the core or the event */
};

/* When the node leaves and no server has stopped its shims after this time, the node stops them
 * itself. When all have ended, the server has so long to record it. */
#define LAUNCHER_ALONE_US 10000000u

/* NVML answers within milliseconds. After a process ends, its memory is mostly free within 1 s. */
#define LAUNCHER_GPU_TIMEOUT_US 5000000u

/* A shim carries out a stop, and the end of the lease, by itself. If it is stuck (stopped, or its
 * disk hangs), it is killed this long after the time at which it should have sent SIGKILL. At the end of the lease one
 * that has not said by LEASE_LAUNCHER_US that it does it is killed then. */
#define LAUNCHER_STOP_SLACK_US 10000000u
#define LAUNCHER_LEASE_SLACK_US 5000000u
/* How long an adopted shim has to say hello if its lease is not known. */
#define LAUNCHER_UNKNOWN_US 5000000u
/* The time from the start order to "ready". A staged folder may have to be fetched first. */
#define LAUNCHER_PREPARE_US 600000000u
/* A shim that is starting, or waits for the go, answers a question at once, whatever its children do: it is asked when
 * it has said nothing for QUIET_US, and then every ASK_US. After so many questions without an answer it is stuck, and
 * is killed. After the go it may be busy for longer: it starts each rank, and opens its log. While an order waits for
 * an archive, the questions stand for pieces that do not come (node_stage.c has 60 s for one). */
#define LAUNCHER_QUIET_US 10000000u
#define LAUNCHER_ASK_US 5000000u
#define LAUNCHER_ASKS_MAX 4u
#define LAUNCHER_ASKS_GO_MAX 10u
#define LAUNCHER_ASKS_HELD_MAX 14u
/* One whose ranks run is asked likewise, but people are told, and it is not killed. After a stop, which it answers at
 * once, it is asked sooner. */
#define LAUNCHER_STOP_ASK_US 1000000u
#define LAUNCHER_ASKS_STOP_MAX 3u
/* A connection to the server has lasted when it has answers so long after its welcome. One that ends sooner is a
 * failed attempt: a server that welcomes this node and closes is called ever less often. If the same server is there
 * again at once, the connection did not hold. If it was gone meanwhile, or another one leads now, that was the reason. */
#define LAUNCHER_STEADY_US 30000000u
/* After this many in a row people are told, once. */
#define LAUNCHER_SHORT_TOLD 3u
/* A warm process that has got the order must execute the shim, which says hello. That takes some 10
 * ms. The limit is the same as for its ranks (shim_take.h). */
#define LAUNCHER_TAKE_US 5000000u
/* A killed process that still exists after this time hangs in the kernel, perhaps for ever. */
#define LAUNCHER_UNKILLABLE_US 60000000u

/* Bounds of one step. Each is the sum of what its producers can give:
 *   an event:  two actions for each shim (connect, kill; a question or a look; or lease), one for each slot (a drain's
 *              line), and of its own at most 10: the answer of a GPU gives 3 events with a line
 *              each, 2 drains and 1 closing with a line each, 9
 *   the slots: one action for each slot (a question, or a line that NVML hangs), and the record
 *   a beat:    the beat, and one action for each shim (a request, or a dead one's report)
 * and reports about dead shims: one for the shim of the event, one for each in the beat. */
#define LAUNCHER_EVENT_ACTIONS_MAX (2 * SHIMS_PER_NODE_MAX + SLOTS_PER_NODE_MAX + 10)
#define LAUNCHER_SLOTS_ACTIONS_MAX (SLOTS_PER_NODE_MAX + 1)
#define LAUNCHER_BEAT_ACTIONS_MAX (SHIMS_PER_NODE_MAX + 1)
#define LAUNCHER_ACTIONS_MAX                                                                       \
    (LAUNCHER_EVENT_ACTIONS_MAX + LAUNCHER_SLOTS_ACTIONS_MAX + LAUNCHER_BEAT_ACTIONS_MAX)
#define LAUNCHER_REPORTS_MAX (SHIMS_PER_NODE_MAX + 1)
#define LAUNCHER_LOGS_MAX (2 * SLOTS_PER_NODE_MAX + 10)
#define LAUNCHER_EVENTS_MAX 3
#define LAUNCHER_END_BYTES 1024u
struct launcher_actions {
    uint32_t count;
    uint64_t timer_at_us; /* when to step with TICK; UINT64_MAX: never; 0: at once */
    struct launcher_action items[LAUNCHER_ACTIONS_MAX];
    /* Memory for what the messages and texts point to. */
    struct part_beat_shim beat_shims[SHIMS_PER_NODE_MAX];
    struct part_slot_closed closed[SLOTS_PER_NODE_MAX];
    struct part_shim_silent silent[SHIMS_SILENT_MAX];
    struct part_cluster_seen seen[CLUSTERS_SEEN_MAX];
    struct slots_record slots;
    struct part_report_rank ranks[LAUNCHER_REPORTS_MAX][SLOTS_PER_NODE_MAX];
    char log_texts[LAUNCHER_LOGS_MAX][320];
    char end_text[LAUNCHER_END_BYTES]; /* the text of END */
    char event_texts[LAUNCHER_EVENTS_MAX][REASON_BYTES_MAX];
    uint32_t rank_rows, log_count, event_count; /* used of these three */
    bool has_beat;
};

void launcher_init(struct launcher *launcher, const struct launcher_options *options);
/* One event: changes the state and says in `actions` what the edge must do, in order. The time of
 * events never goes back. Asserts the invariants of the state (launcher_check.h). */
void launcher_step(struct launcher *launcher, const struct launcher_event *event,
                   struct launcher_actions *actions);
/* NULL: not known. */
const struct launcher_shim *launcher_find(const struct launcher *launcher, uint64_t job_id,
                                          uint32_t generation);

#endif
