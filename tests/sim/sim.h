/* The three production cores in one process, with a virtual clock, a network with faults, and crashes, all by seed.
 *
 * Every party is its core plus the smallest edge that can carry out its actions. The real codec encodes and decodes
 * messages. Each connection is a stream: messages arrive in order and once, until it is cut. Each machine has a clock
 * of its own, which drifts. sim_faults.h lists what can go wrong; each seed has its own subset. oracle.h lists what
 * must hold. Equal seeds give equal runs. A failing run is made smaller (sim_shrink.c) and printed with its trace. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/msg.h"
#include "launcherd/core/launcher.h"
#include "launcherd/core/shim.h"
#include "rendezvous/core/rdzv.h"
#include "tests/sim/sim_faults.h"

#define SECOND_US 1000000ull
#define SIM_SHIMS_MAX 40u  /* run directories of one node */
#define SIM_WORKERS_MAX 8u /* of one shim */
#define SIM_JOB_RANKS_MAX 512u
#define SIM_JOB_PARTS_MAX 256u
#define SIM_CLIENT_OPERATOR UINT32_MAX
#define SIM_TRACE_LINES 400u

/* The size of a run. A run of the swarm is small, so that thousands of seeds can run. `sim --large`
 * has 64 nodes with 8 slots each and 1,000 jobs; `sim --limits` is one run with 256 nodes and 512
 * jobs. */
struct sim_size {
    uint32_t nodes, slots, jobs, conns;
    uint64_t check_interval_us;   /* between two checks that are slow */
    uint32_t core_check_interval; /* steps of the server between two checks of all its tables */
    uint64_t cleanup_us;          /* from the end of the last job to the end of the run */
    uint64_t bound_us; /* after the last fault: every job has ended by then, except for the time
                        * that jobs which fail take for their restarts */
    uint32_t spinning; /* this many events in a second: a timer spins */
    bool no_store;     /* never keeps the rows in the real store */
};

/* A boot clock: runs slightly fast or slow, and started at its own time. */
struct sim_clock {
    uint64_t offset_us;
    int32_t drift_ppm;
};

/* What one side of a connection has sent and the other has not received: a stream. Messages arrive
 * in order, each once; from the moment that the stream is broken, none does. */
struct sim_stream {
    bool open;         /* the receiver has not closed it and does not know of its end */
    bool broken;       /* everything that is sent from now on is lost */
    uint64_t clear_us; /* when all that was sent has arrived; an orderly close comes after that */
    struct sim_bytes *first, *last;
};

/* A connection: `near` is the one that connected to `far`. */
struct sim_conn {
    bool is_server;   /* launcherd to the server; else launcherd to a shim */
    bool is_impostor; /* another process with the name of the node */
    uint32_t node;
    uint32_t shim, shim_serial; /* index on the node */
    uint32_t owner;             /* differs for each process that connects to the server */
    uint32_t twin;              /* index into sim->twins, plus 1; 0: of none */
    struct sim_stream to_near, to_far;
};

struct sim_worker {
    bool alive;
    bool is_coming;       /* its spawn was ordered */
    bool is_dying;        /* it does nothing more */
    uint32_t incarnation; /* events of earlier ones are ignored */
    uint32_t pid;
    bool has_world;
    uint32_t steps_left;
    uint64_t hung_at_us, hung_until_us, unkillable_until_us;
    uint64_t absent_until_us; /* it enters no collective until then; UINT64_MAX: ever; 0: it does */
    bool has_stepped;         /* in this generation */
    bool spins;               /* busy while it is absent; otherwise idle */
    bool is_waiting;          /* in a collective, for an absent rank */
};

/* The truth about the end of a shim's workers, whatever the shim knows; times are on the node's
 * clock. */
struct sim_shim_facts {
    uint64_t failed_us;  /* when a worker's failure reached it; 0: none */
    uint64_t stop_us;    /* when the workers must be dead, by the shim's orders; 0: never */
    bool kill_now;       /* it was told to kill without grace, or to forget */
    uint64_t order_us;   /* the same, by launcherd's orders */
    uint64_t killed_us;  /* when its process was gone or killed by launcherd; 0: not */
    uint64_t free_us;    /* the time since which it has run without a pause */
    uint64_t deaf_at_us; /* true time: since when it was stopped without a break, the last time */
    bool end_was_sent;   /* its end was reported to the server */
    bool spawned_late;   /* a worker was spawned after the stop, or after the failure */
    bool was_asked;      /* its workers got a signal that asks them to end */
    uint64_t lease_us;   /* the lease that the shim was last told */
    uint64_t running_us; /* when its last worker was spawned; 0: not yet */
    bool was_warned;
};

struct sim_shim {
    bool used;       /* the run directory exists */
    bool pending;    /* launcherd has not forked yet */
    bool alive;      /* its process runs */
    uint32_t serial; /* differs for each run directory */
    uint32_t boots;  /* boots of its machine when it began */
    uint32_t incarnation;
    uint64_t paused_until_us;
    uint64_t
        page_us; /* the end of its lease in memory that it shares with launcherd, also a later one */
    struct shim core;
    uint64_t timer_us; /* of the node's clock */
    uint32_t conn;     /* to launcherd; 0: none */
    uint64_t job_id;
    uint32_t generation, rank_base, local_count, world, node_count;
    bool store_runs; /* the process; on node rank 0 of half of the jobs */
    uint64_t slot_mask, grace_us;
    uint64_t warn_after_us; /* as ordered */
    uint32_t warn_signal;
    char cluster[33];
    int64_t submitted_ms;
    bool is_prepared;     /* the port is reserved, or none is needed */
    bool has_orphans;     /* children of its workers that have outlived them */
    uint32_t left_signal; /* what they got; 0: none */
    bool is_orphan;       /* its run directory is gone, and no launcherd knows it */
    struct sim_shim_facts facts;
    bool has_end;
    struct msg_shim_report end; /* recorded when it ended; its ranks: */
    struct part_report_rank end_ranks[SLOTS_PER_NODE_MAX];
    char end_cause[REASON_BYTES_MAX];
    struct sim_worker workers[SIM_WORKERS_MAX];
};

#define SIM_WARM_MAX 8u

/* Processes that wait on a node for a job (sim_warm.c). */
struct sim_warm {
    bool used;
    uint32_t serial; /* differs for each */
    uint64_t job_id, slot_mask;
    enum warm_state state;
    bool holds_up_order; /* a start order was dropped because of it */
    uint64_t heard_us;   /* when launcherd last heard the server */
    uint64_t wanted_us; /* for the oracle: the last time at which there was a reason to keep them */
};

/* The truth about one GPU, whatever launcherd knows. */
struct sim_gpu {
    uint64_t held_until_us;   /* until then a process of no job is on it */
    uint64_t leaked_until_us; /* until then it has memory of an ended job */
    uint64_t zombie_until_us; /* until then it has a process of a job that does not die */
    uint64_t ecc;
    bool is_faulty; /* launcherd has seen a fault that drains, and no operator has resumed it */
};

struct sim_node {
    bool alive;   /* launcherd */
    bool is_down; /* the machine */
    uint32_t boots;
    uint32_t installs,
        states; /* how often its machine was installed, its state directory made anew */
    struct sim_clock clock;
    uint32_t gpu_count; /* slots below it have one */
    struct sim_gpu gpus[SIM_WORKERS_MAX];
    uint64_t nvml_hangs_until_us;
    struct slots_record slots; /* launcherd's files */
    struct seen_record seen;
    bool cut_to_server, cut_to_node; /* messages in that direction do not arrive */
    /* See sim_orders.c. */
    enum msg_type lost_type;
    uint64_t lost_until_us, stalls_until_us;
    bool stalls_to_server;
    uint32_t incarnation;
    uint64_t paused_until_us; /* launcherd */
    uint64_t frozen_until_us; /* the whole machine */
    uint64_t steady_us;  /* the time since which launcherd has run without a pause; its clock */
    bool is_welcome;     /* on this connection */
    bool has_welcome;    /* since launcherd started */
    uint64_t welcome_us; /* when is_welcome became true, on its clock */
    uint64_t hello_us, lease_end_us; /* on its clock; from beats that were really acknowledged */
    uint64_t lease_us;               /* as the last welcome said */
    bool is_leaving;                 /* launcherd was told to leave, at this time: */
    uint64_t leave_at_us;
    uint64_t leave_told_us; /* on this connection: when the first beat said so; 0: not yet */
    bool leave_is_known;    /* the server has acknowledged that */
    struct launcher core;
    uint64_t timer_us; /* of its clock */
    uint32_t conn;     /* to the server */
    struct sim_shim shims[SIM_SHIMS_MAX];
    struct sim_warm warm[SIM_WARM_MAX];
};

struct sim_server {
    bool alive;
    bool is_loading;
    bool commits; /* a transaction is being written to the disk */
    uint32_t incarnation;
    uint32_t step_count;
    uint64_t started_us;
    uint64_t lease_before_us; /* what the store had when it started */
    struct sim_clock clock;
    int64_t wall_ms; /* the wall clock minus true time */
    uint64_t paused_until_us;
    uint64_t tick_us, stepped_us; /* on its clock; kept by the edge to notice pauses */
    uint64_t step_at_us;          /* when the last step was, before its transaction */
    int64_t step_wall_ms;         /* the same, by the wall clock at that time */
    void *memory;
    struct rdzv *core;
    uint32_t tear; /* the server dies in its next step with a transaction: 1: before the commit;
                    * n > 1: after it, before the n-1-th action */
};

struct sim_row {
    struct rdzv_record record;
    struct rdzv_part parts[SIM_JOB_PARTS_MAX]; /* the record's */
};

/* The server's disk: what was written, and what a loss of power would leave. */
struct sim_disk {
    uint32_t row_count, synced_count;
    struct sim_row *written, *synced; /* [size.jobs] */
    uint32_t unsynced_count;
    uint32_t *unsynced; /* [size.jobs]; rows */
    uint32_t drain_count, synced_drain_count;
    struct rdzv_drain drains[DRAINS_MAX], synced_drains[DRAINS_MAX];
    struct rdzv_hold *holds, *synced_holds; /* [size.nodes]; of a node, by its number */
    uint64_t last_job_id, synced_last_id;   /* the highest that may have been given */
    uint64_t lease_us, synced_lease_us;     /* the longest that may still be out */
};

#define SIM_ID_GAP 5u    /* numbers that a state of the past leaves out */
#define SIM_IDS_MAX 128u /* of jobs, in runs whose store is put back */

/* The store as of an earlier commit (sim_history.c). */
struct sim_past {
    uint64_t put_back_us; /* 0: never */
    bool is_known;        /* the server has said so since */
    uint32_t known_by;    /* which server has said so last; 0: none */
    uint32_t row_count;
    struct sim_row *rows;    /* [size.jobs]; NULL: no copy was made */
    struct rdzv_hold *holds; /* [size.nodes] */
    uint64_t last_job_id, lease_us;
    uint32_t lost[SIM_IDS_MAX]; /* by job id: the client whose job it was, and 1 */
};

/* One job, as its user sees it. */
#define SIM_RESTARTS_DEFAULT 3u /* --max-restarts of ddpctl, if the user names none */
#define SIM_GROW_US (5 * SECOND_US)

#define SIM_AFTER_MAX 3u

struct sim_client {
    char request_id[REQUEST_ID_CHARS + 1];
    uint32_t nodes, nodes_min, nproc; /* nodes_min: below nodes in an elastic job */
    uint32_t spares;
    bool joins;    /* its workers are ddp-workers */
    bool fails;    /* a rank exits 3 in each generation: the job must end as failed */
    bool says_why; /* then the same line is the last of its output each time */
    uint32_t steps, max_restarts;
    int32_t priority;
    uint64_t time_limit_us, grace_us;
    uint64_t submit_at_us, cancel_at_us; /* UINT64_MAX: never */
    uint32_t cancel_signal;
    int64_t cancel_grace_us; /* -1: the job's */
    bool acked, cancel_acked;
    uint64_t job_id;
    uint32_t array_count; /* this many equal jobs with consecutive ids from job_id on; 0: one job */
    uint32_t array_at_most; /* at a time; 0: all */
    uint64_t again_us;      /* how often its workers repeat their progress; 0: never */
    bool requeues;          /* at its time limit; its workers then resume from the checkpoint */
    uint64_t warn_us;       /* SIM_WARN_SIGNAL comes this long before the time limit; 0: never */
    struct sim_after {
        uint32_t client;      /* these jobs wait for those of client `client` - 1; 0: for none */
        bool any;             /* no matter how those jobs end */
        uint64_t first, last; /* ids of those jobs; 0: not acknowledged yet, so it does not wait */
    } after[SIM_AFTER_MAX];
    bool after_is_sure; /* it is submitted only when the jobs that it waits for are acknowledged */
};

#define SIM_WARN_SIGNAL 10u

static inline uint32_t client_job_count(const struct sim_client *client)
{
    return client->array_count == 0 ? 1 : client->array_count;
}

struct sim_event {
    uint64_t at_us, order;
    void (*run)(struct sim *sim, const struct sim_event *event);
    enum sim_party party; /* who handles the event; it waits while that party is stopped */
    uint32_t conn, node, shim, worker, incarnation;
    bool to_far;
    uint32_t number, step;
    uint64_t asked_us;
};

#define SIM_TWINS_MAX 8u

/* Another machine that tries to get the name of a node (sim_twins.c). */
struct sim_twin {
    uint32_t node, conn; /* conn 0: not connected */
    uint64_t instance, until_us;
};

/* How a job ended. */
struct sim_end {
    enum job_state state;
    int32_t exit_code;
    uint32_t signal;
};

#define SIM_ASKS_MAX 3u

/* A client that asks for the states of jobs, one at a time (sim_asks.c). */
struct sim_ask {
    uint64_t random; /* its own sequence */
    uint32_t server; /* which one it has asked */
    uint64_t job_id, at_us;
    uint64_t floor; /* what had been told when it asked */
    bool cancel_was_acked;
    bool is_found; /* the answer: */
    uint32_t generation;
    struct sim_end is;
};

/* The orders of a run, without repetitions. */
#define SIM_ORDERS_MAX 4096u
struct sim_order {
    enum msg_type type;
    uint32_t node, generation;
    uint64_t job_id;
    uint64_t what[2]; /* the ranks of a start, the signal and grace of a stop */
};
struct sim_orders {
    uint32_t count;
    struct sim_order items[SIM_ORDERS_MAX];
};

struct oracle;

struct sim {
    uint64_t seed, random;
    uint64_t now_us;
    uint64_t order;
    uint64_t event_total;
    uint64_t check_at_us;
    uint64_t moved_us;                       /* when a row was last written */
    uint64_t second_start_us, second_events; /* events in this second, to detect a spinning timer */
    uint64_t hash;
    bool failed, verbose, quiet;
    bool is_void; /* it came to what no server can know, and is not judged from there on */
    char rule[32], why[256]; /* after a failure: the rule, and how it was broken */
    struct sim_size size;
    uint32_t node_count, slots;
    uint64_t lease_us;   /* of the server, or the next one */
    uint64_t longest_us; /* the longest lease of this run */
    struct sim_faults faults;
    struct sim_server server;
    struct sim_disk disk;
    struct sim_past past;
    struct sim_node *nodes; /* [size.nodes] */
    uint32_t client_count;
    struct sim_client *clients; /* [size.jobs] */
    uint32_t conn_count;
    struct sim_conn *conns; /* [size.conns]; 0 is none */
    uint32_t twin_count;
    struct sim_twin twins[SIM_TWINS_MAX];
    struct sim_ask asks[SIM_ASKS_MAX];
    uint32_t pid_next;
    uint32_t heap_count, heap_capacity;
    struct sim_event *heap;
    uint32_t trace_count;
    char trace[SIM_TRACE_LINES][200]; /* the last lines, as a ring */
    bool operator_acked;
    bool has_absent;           /* some worker was absent */
    bool preempts;             /* the server's option of that name */
    bool has_spares;           /* some jobs have spares */
    bool is_even;              /* every draw is the middle */
    uint32_t quiet_count;      /* restarts of the server at quiet points */
    struct sim_orders *orders; /* NULL: not noted */
    bool tell_ids;             /* every launcherd says which state directory it has */
    struct rdzv_actions server_actions;
    struct launcher_actions launcher_actions;
    struct oracle *oracle;
};

/* sim.c */
uint64_t sim_draw(struct sim *sim, uint64_t below);
bool sim_chance(struct sim *sim, uint32_t per_mille);
void sim_at(struct sim *sim, uint64_t at_us, struct sim_event event);
void sim_note(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A rule is broken: the run ends here. */
void sim_fail(struct sim *sim, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_run(struct sim *sim);
/* Prepares a zeroed run of this size. */
void sim_begin(struct sim *sim, uint64_t seed, const struct sim_size *size);
bool sim_all_ended(const struct sim *sim);
void sim_free(struct sim *sim);
/* The present time on a clock, and the true time when it will show `local_us`, at least now. */
uint64_t sim_clock_us(const struct sim *sim, const struct sim_clock *clock);
uint64_t sim_clock_at(const struct sim *sim, const struct sim_clock *clock, uint64_t local_us);
static inline uint64_t sim_node_us(const struct sim *sim, uint32_t node)
{
    return sim_clock_us(sim, &sim->nodes[node].clock);
}

/* sim_setup.c: the kinds of runs */
void sim_init(struct sim *sim, uint64_t seed, const struct sim_mask *mask, bool is_large);
/* sim_limits.c: every count at its limit; each event hits all nodes or many jobs at once. */
void sim_init_limits(struct sim *sim);

/* sim_history.c: the store is put back to an earlier commit. */
void sim_init_history(struct sim *sim, uint64_t seed);
void history_free(struct sim *sim);
/* In an ordinary run: the state loses its last commits, with a server that dies. */
void history_lose(struct sim *sim);

/* sim_restarts.c: the same jobs with and without restarts of the server. How each client's job ended, and that both
 * runs agree. */
struct sim_ends {
    uint32_t count;
    struct sim_end items[SIM_CLIENTS_MASKED_MAX];
};
/* RESTARTS_QUIET: where nothing is in flight. */
enum sim_restarts { RESTARTS_NEVER, RESTARTS_ANY, RESTARTS_QUIET };
/* is_even: from here on each draw is the middle, so that it depends on no draw before. */
void sim_init_restarts(struct sim *sim, uint64_t seed, enum sim_restarts restarts, bool is_even);
/* The server sends an order. */
void restarts_note_order(struct sim *sim, uint32_t node, const struct msg *msg);
void restarts_compare_orders(struct sim *sim, const struct sim_orders *before);
void sim_note_ends(const struct sim *sim, struct sim_ends *ends);
void sim_compare_ends(struct sim *sim, const struct sim_ends *before);

/* sim_net.c */
uint32_t net_open(struct sim *sim, bool is_server, uint32_t node, uint32_t shim);
void net_send(struct sim *sim, uint32_t conn, bool from_near, struct msg *msg);
/* One side closes. The other side receives everything sent before and then notices, later if it is
 * cut off. */
void net_close(struct sim *sim, uint32_t conn, bool by_near);
/* The connection breaks: some messages in flight are lost. Both sides go on sending until they
 * notice, each in its own time within `unknown_us`. */
void net_break(struct sim *sim, uint32_t conn, uint64_t unknown_us);
void net_free(struct sim *sim);
/* The name of a node. */
void node_name(char out[NODE_NAME_BYTES_MAX], uint32_t node);
uint32_t node_of_name(const char *name);

/* sim_orders.c */
/* Faults: orders of one kind to some node are lost; large messages of some node are. */
void orders_lose(struct sim *sim);
void orders_stall(struct sim *sim);
void orders_lose_kind(struct sim *sim, uint32_t node, enum msg_type type, uint64_t us);
bool orders_is_lost(const struct sim *sim, uint32_t node, enum msg_type type);
/* Whether the connection ends as soon as such an order arrives. */
bool orders_cuts(const struct sim *sim, uint32_t node);
/* Whether this message, and with it all behind it on its connection, does not arrive. */
bool orders_is_stalled(const struct sim *sim, uint32_t node, bool to_server, const char *json);
/* A shim that was just spawned stops. */
void orders_stop_shim(struct sim *sim, uint32_t node, struct sim_shim *shim);

/* sim_disk.c: the store, as the server's edge uses it */
void disk_put(struct sim *sim, const struct rdzv_record *record);
void disk_put_drains(struct sim *sim, const struct rdzv_drain *drains, uint32_t count);
void disk_put_hold(struct sim *sim, const struct rdzv_hold *hold);
void disk_put_lease(struct sim *sim, uint64_t lease_us);
/* Makes everything that was put durable. */
void disk_commit(struct sim *sim);
/* The process or machine is gone, and with it all uncommitted data. */
void disk_crash(struct sim *sim);
/* No job up to this one is new. */
void disk_put_gap(struct sim *sim, uint64_t job_id);
/* Replaces everything by the copy in sim->past. */
void disk_put_back(struct sim *sim);
/* Rewrites the rows as an older version of the server would have written them. */
void disk_downgrade(struct sim *sim);
/* NULL: no such job is stored. */
const struct sim_row *disk_row(const struct sim *sim, uint64_t job_id);

/* sim_store.c: in some of the runs, the real store beside these rows. */
void store_begin_run(struct sim *sim);
void store_end_run(void);
/* This run has one. */
bool store_is_kept(const struct sim *sim);
void store_put(const struct rdzv_record *record);
void store_put_drains(const struct rdzv_drain *drains, uint32_t count);
void store_put_hold(const struct rdzv_hold *hold);
void store_put_lease(uint64_t lease_us);
void store_commit_all(void);
/* Checks that everything committed is there. */
void store_crash(struct sim *sim);

/* sim_server.c */
void server_start(struct sim *sim);
void server_kill(struct sim *sim);
/* The server is running and reads messages. */
bool server_is_ready(const struct sim *sim);
void server_step(struct sim *sim, struct rdzv_event event);
/* The last step was a submit, and was refused. */
bool server_has_refused(const struct sim *sim);
/* An operator's request; false: the server is away. */
bool server_operate(struct sim *sim, enum rdzv_event_type type, const struct msg *msg);
int64_t server_wall_ms(const struct sim *sim);

/* sim_warm.c */
/* Handles a message of the server. True: it was about warm processes, or is a start order that must
 * wait until they are gone. */
bool warm_takes(struct sim *sim, uint32_t node, const struct msg *msg);
/* Lists them for a beat; returns how many. */
uint32_t warm_list(const struct sim *sim, uint32_t node, struct part_warm_job out[SIM_WARM_MAX]);
/* If some fit its order, they become this shim. */
void warm_become_shim(struct sim *sim, uint32_t node, const struct sim_shim *shim);
/* Ends them all, together with launcherd. */
void warm_end_all(struct sim *sim, uint32_t node);

/* sim_twins.c: names that come back from elsewhere */
/* The ids that launcherd of this node says now. */
void twin_identity(const struct sim *sim, uint32_t node, char machine_id[IDENTITY_BYTES_MAX],
                   char state_id[IDENTITY_BYTES_MAX]);
/* Another process says hello with the name of a node, and leaves once it has an answer. */
void twin_impersonate(struct sim *sim);
/* Another machine tries for a while to get the name of this node, and has it for some seconds. */
void twin_comes(struct sim *sim, uint32_t node);
/* A message of the server reaches the other process; its connection was closed. */
void twin_hears(struct sim *sim, uint32_t conn, const struct msg *msg);
/* launcherd dies, and its state directory with it; what it has started runs on. False: not now,
 * since what is stuck there would outlive its lease. */
bool twin_lose_state(struct sim *sim, uint32_t node);
/* launcherd dies, and this shim with its run directory. False: not now. */
bool twin_lose_part(struct sim *sim, uint32_t node, uint32_t shim);
/* The shim of a lost state directory has ended: forgets it once its processes are gone. */
void twin_orphan_ends(struct sim *sim, uint32_t node, uint32_t shim);

/* sim_jobs.c */
/* Looks up the jobs that another one waits for, as rendezvous/store/jobs.c does. */
void jobs_find_failed(const struct sim *sim, struct rdzv_after *after);
void client_start(struct sim *sim, uint32_t client);
/* The client of a job; the first one if there is none. */
const struct sim_client *client_of(const struct sim *sim, uint64_t job_id);
const struct sim_client *client_of_record(const struct sim *sim, const struct rdzv_record *record);

/* sim_asks.c */
void asks_start(struct sim *sim);

/* sim_node.c */
void node_start(struct sim *sim, uint32_t node);
void node_kill(struct sim *sim, uint32_t node);
/* The machine loses its power: everything running is gone, its files stay, unless it gets a new
 * disk. */
void node_power_off(struct sim *sim, uint32_t node, bool new_disk);
void node_step(struct sim *sim, uint32_t node, struct launcher_event event);
struct sim_shim *node_find(struct sim *sim, uint32_t node, uint64_t job_id, uint32_t generation);

/* sim_shim.c */
void shim_spawn(struct sim *sim, uint32_t node, uint32_t shim);
void shim_kill(struct sim *sim, uint32_t node, uint32_t shim);
/* To launcherd, if it is connected. */
void shim_send_hello(struct sim *sim, const struct sim_shim *shim);
void shim_kill_store(struct sim *sim, uint32_t node, uint32_t shim);
void shim_write_page(struct sim_shim *shim, uint64_t until_us);
void shim_event(struct sim *sim, uint32_t node, uint32_t shim, struct shim_event event);
/* Tells launcherd when the process is gone, and when all its workers are gone. */
void shim_watch(struct sim *sim, uint32_t node, uint32_t shim, bool is_first);
/* It does nothing for that long. */
void shim_stop(struct sim *sim, uint32_t node, struct sim_shim *shim, uint64_t us);
bool shim_has_workers(const struct sim_shim *shim);
uint32_t shim_slot(const struct sim_shim *shim, uint32_t worker);

/* sim_worker.c */
void worker_spawn_all(struct sim *sim, uint32_t node, uint32_t shim);
void worker_signal_all(struct sim *sim, uint32_t node, uint32_t shim, uint32_t signal);
/* The same for processes that the workers left behind. */
void worker_signal_left(struct sim *sim, uint32_t node, uint32_t shim, uint32_t signal);
/* Kills all of them with everything that they started. */
void worker_kill_all(struct sim *sim, uint32_t node, uint32_t shim);
void worker_world(struct sim *sim, uint32_t node, uint32_t shim, uint32_t worker);
/* A worker ends by itself or is killed from outside. number: exit code, or 1000 + signal. */
void worker_end(struct sim *sim, uint32_t node, uint32_t shim, uint32_t worker, uint32_t number);

/* sim_gpu.c */
/* Carries out ASK_GPU, SAVE_SLOTS. */
void gpu_action(struct sim *sim, uint32_t node, const struct launcher_action *action);
void gpu_restore(struct sim *sim, uint32_t node);
/* A worker on this slot has ended. */
void gpu_left(struct sim *sim, uint32_t node, uint32_t slot);
/* An operator looks after the node until no slot is drained. */
void gpu_resume_later(struct sim *sim, uint32_t node);
/* Faults: a stranger comes, NVML hangs, an Xid or an ECC error, an operator drains. */
void gpu_hold(struct sim *sim);
void gpu_hang(struct sim *sim);
void gpu_fault(struct sim *sim);
void gpu_drain(struct sim *sim);

/* sim_shrink.c: looks for the same failure with fewer faults and jobs, and prints the smallest run
 * and its trace. */
void sim_shrink(uint64_t seed, bool is_large, bool is_starts);

#endif
