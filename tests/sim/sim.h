/* The three production cores in one process: a virtual clock, a network with faults, crashes, by
 * seed.
 *
 * Every party is its core plus the smallest edge that can carry its actions out. Messages are
 * encoded and decoded by the real codec, and each connection is a stream: in order, each message
 * once, until it is cut. Between any two messages there may be a fault: a delay; a connection closed
 * by one side, or broken with messages under way, which the two sides learn at different times; a
 * node cut off; the server (also between its transaction and its sends), launcherd, a shim or a
 * worker killed, and back later or, for nodes, not before long. Messages of two connections overtake
 * one another freely. The invariants of sim_check.c are checked after every event. The same seed
 * gives the same run; a failure prints seed and trace. */
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

#define SIM_SHIMS_MAX 40u  /* run directories of one node */
#define SIM_WORKERS_MAX 4u /* of one shim */
#define SIM_JOB_RANKS_MAX 256u
#define SIM_CLIENT_OPERATOR UINT32_MAX

/* How large a run may be. A seed of the swarm is small, so that thousands run; `sim --limits` is one
 * run with 256 nodes and 512 jobs. */
struct sim_size {
    uint32_t nodes, jobs, conns, generations;
    uint32_t check_interval; /* events between two checks of all that every event could break */
    uint32_t core_check_interval; /* steps of the server between two checks of all its tables */
    uint64_t cleanup_us;          /* from the end of the last job to the end of the run */
    uint64_t lease_us;
    uint32_t spinning; /* so many events within a second: some timer spins */
};

/* What one side of a connection has sent and the other has not received: a stream. Messages arrive
 * in order, each once; from the moment that the stream is broken, none does. */
struct sim_stream {
    bool open;         /* the receiver has not closed it, nor learned of its end */
    bool broken;       /* what is sent is lost */
    uint64_t clear_us; /* by then all that was sent has arrived; an orderly close comes after it */
    struct sim_bytes *first, *last;
};

/* A connection: `near` is the one that connected to `far`. */
struct sim_conn {
    bool is_server; /* launcherd to the server; else launcherd to a shim */
    uint32_t node;
    uint32_t shim; /* index on the node */
    struct sim_stream to_near, to_far;
};

struct sim_worker {
    bool alive;
    uint32_t incarnation; /* events of an older one do not reach it */
    uint32_t pid;
    bool has_world;
    uint32_t steps_left;
};

struct sim_shim {
    bool used;  /* the run directory is there */
    bool alive; /* the process */
    uint32_t incarnation;
    struct shim core;
    uint64_t timer_us;
    uint32_t conn; /* to launcherd; 0: none */
    uint64_t job_id;
    uint32_t generation, rank_base, local_count;
    uint64_t slot_mask, grace_us;
    char cluster[33];
    bool was_ready;
    bool has_end;
    struct msg_shim_report end; /* recorded when it ended; its ranks: */
    struct part_report_rank end_ranks[SLOTS_PER_NODE_MAX];
    char end_cause[REASON_BYTES_MAX];
    struct sim_worker workers[SIM_WORKERS_MAX];
};

/* What is true of one GPU, whatever launcherd knows of it. */
struct sim_gpu {
    uint64_t held_until_us;   /* a stranger is on it */
    uint64_t leaked_until_us; /* memory of a job that has ended */
    uint64_t ecc;
    bool is_faulty; /* launcherd has seen a fault that drains, and no operator has resumed it */
};

struct sim_node {
    bool alive;         /* launcherd */
    uint32_t gpu_count; /* slots below it have one */
    struct sim_gpu gpus[SIM_WORKERS_MAX];
    uint64_t nvml_hangs_until_us;
    struct slots_record slots; /* launcherd's file */
    bool cut_off;
    uint32_t incarnation;
    struct launcher core;
    uint64_t timer_us;
    uint32_t conn; /* to the server */
    struct sim_shim shims[SIM_SHIMS_MAX];
};

struct sim_server {
    bool alive;
    uint32_t incarnation;
    uint32_t step_count;
    void *memory;
    struct rdzv *core;
    uint64_t timer_us;
    uint32_t tear; /* the server dies in its next step with a transaction: 1: before the commit;
                    * n > 1: after it, before the n-1-th action */
};

/* What is on the server's disk. */
struct sim_row {
    struct rdzv_record record;
    struct rdzv_part parts[SIM_JOB_RANKS_MAX]; /* the record's */
    bool has_spec;
};

/* What a node has told the server that is alive now, read from the messages that it acknowledged. */
struct sim_told {
    uint32_t shim_count;
    struct part_beat_shim shims[SHIMS_PER_NODE_MAX];
    uint64_t closed_mask; /* listed as closed, or with a GPU whose shim has ended since the list */
};

/* What the checker knows of one generation of a job, from what shims and workers did. */
struct sim_generation {
    uint64_t job_id;
    uint32_t generation;
    uint32_t node_of[SIM_JOB_RANKS_MAX]; /* node + 1 of each rank that was ever spawned */
    uint32_t ready_count;                /* shims that have become ready */
    bool has_blob;
    uint8_t blob;
    uint32_t exited_ok;
};

/* One job as its user sees it. */
struct sim_client {
    char request_id[REQUEST_ID_CHARS + 1];
    uint32_t nodes, nproc;
    bool joins; /* its workers are ddp-workers */
    bool fails; /* a rank exits 3 in each generation: must end as failed */
    uint32_t steps, max_restarts;
    uint64_t submit_at_us, cancel_at_us; /* UINT64_MAX: never */
    bool acked;
    uint64_t job_id;
};

struct sim_faults {
    uint32_t break_pm, late_pm; /* per mille of messages */
    uint64_t late_max_us;
    uint32_t strangers, hangs, xids, drains, leak_pm; /* the last per mille of workers */
    uint32_t cuts, isolations, server_kills, launcher_kills, shim_kills, worker_kills;
    bool torn_steps; /* a server kill may fall between transaction and sends */
    uint64_t until_us;
};

struct sim;
struct sim_event {
    uint64_t at_us, order;
    void (*run)(struct sim *sim, const struct sim_event *event);
    uint32_t conn, node, shim, worker, incarnation;
    bool to_far;
    uint32_t number;
    uint64_t asked_us;
};

struct sim {
    uint64_t seed, random;
    uint64_t now_us;
    uint64_t order;
    uint64_t event_total;
    uint64_t second_start_us,
        second_events; /* a timer that fires in the past spins: seen by counting */
    uint64_t hash;
    bool failed, verbose;
    struct sim_size size;
    uint32_t node_count, slots;
    struct sim_faults faults;
    struct sim_server server;
    struct sim_node *nodes; /* [size.nodes] */
    uint32_t row_count;
    struct sim_row *rows; /* [size.jobs] */
    uint32_t drain_count;
    struct rdzv_drain drains[DRAINS_MAX];
    uint64_t last_job_id;
    uint32_t client_count;
    struct sim_client *clients; /* [size.jobs] */
    uint32_t conn_count;
    struct sim_conn *conns; /* [size.conns]; 0 is none */
    uint32_t generation_count;
    struct sim_generation *generations; /* [size.generations] */
    struct sim_told *told;              /* [size.nodes] */
    uint32_t pid_next;
    uint32_t heap_count, heap_capacity;
    struct sim_event *heap;
    uint32_t trace_count;
    char trace[256][200]; /* the last lines, as a ring */
    struct rdzv_actions server_actions;
    struct launcher_actions launcher_actions;
    struct shim_actions shim_actions;
};

/* sim.c */
uint64_t sim_draw(struct sim *sim, uint64_t below);
bool sim_chance(struct sim *sim, uint32_t per_mille);
void sim_at(struct sim *sim, uint64_t at_us, struct sim_event event);
void sim_note(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An invariant does not hold: the run ends here. */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_run(struct sim *sim);
/* One of the swarm. */
void sim_init(struct sim *sim, uint64_t seed);
/* Everything at its limit; what happens, happens to all at once. */
void sim_init_limits(struct sim *sim);
/* Zeroed, for a run of this size; and what its nodes and its server are. */
void sim_begin(struct sim *sim, uint64_t seed, const struct sim_size *size);
bool sim_all_ended(const struct sim *sim);
void sim_free(struct sim *sim);

/* sim_net.c */
uint32_t net_open(struct sim *sim, bool is_server, uint32_t node, uint32_t shim);
void net_send(struct sim *sim, uint32_t conn, bool from_near, struct msg *msg);
/* One side closes; the other receives what was sent before, then learns of it; later when it is cut
 * off. */
void net_close(struct sim *sim, uint32_t conn, bool by_near);
/* The connection breaks: some of what is under way is lost, both sides send into nothing, and learn
 * of it in their own time. */
void net_break(struct sim *sim, uint32_t conn);
void net_free(struct sim *sim);

/* sim_server.c */
void server_start(struct sim *sim);
void server_kill(struct sim *sim);
void server_message(struct sim *sim, uint32_t conn, const struct msg *msg);
void server_closed(struct sim *sim, uint32_t conn);
/* An operator's request; nothing while the server is away. */
void server_operate(struct sim *sim, enum rdzv_event_type type, const struct msg *msg);
void client_start(struct sim *sim, uint32_t client);
const struct sim_row *store_row(const struct sim *sim, uint64_t job_id);

/* sim_node.c */
void node_start(struct sim *sim, uint32_t node);
void node_kill(struct sim *sim, uint32_t node);
void node_step(struct sim *sim, uint32_t node, struct launcher_event event);
struct sim_shim *node_find(struct sim *sim, uint32_t node, uint64_t job_id, uint32_t generation);

/* sim_shim.c */
void shim_spawn(struct sim *sim, uint32_t node, uint32_t shim);
void shim_kill(struct sim *sim, uint32_t node, uint32_t shim);
void shim_event(struct sim *sim, uint32_t node, uint32_t shim, struct shim_event event);
void worker_kill(struct sim *sim, uint32_t node, uint32_t shim, uint32_t worker);

/* sim_gpu.c */
/* Carries out ASK_GPU, SAVE_SLOTS. */
void gpu_action(struct sim *sim, uint32_t node, const struct launcher_action *action);
void gpu_restore(struct sim *sim, uint32_t node);
/* A worker has ended on this slot. */
void gpu_left(struct sim *sim, uint32_t node, uint32_t slot);
/* Faults: a stranger comes, NVML hangs, an Xid or an ECC error, an operator drains. */
void gpu_hold(struct sim *sim, const struct sim_event *event);
void gpu_hang(struct sim *sim, const struct sim_event *event);
void gpu_fault(struct sim *sim, const struct sim_event *event);
void gpu_drain(struct sim *sim, const struct sim_event *event);

/* sim_check.c */
void check_placed(struct sim *sim, const struct rdzv_record *record);
/* The server has taken a message of a node: it has acknowledged it in its actions. */
void check_told(struct sim *sim, uint32_t conn, const struct msg *msg,
                const struct rdzv_actions *actions);
void check_ready(struct sim *sim, struct sim_shim *shim);
void check_order(struct sim *sim, uint32_t node, uint64_t slot_mask);
struct sim_generation *check_generation(struct sim *sim, uint64_t job_id, uint32_t generation);
void check_spawn(struct sim *sim, uint32_t node, const struct sim_shim *shim, uint32_t worker);
void check_world(struct sim *sim, const struct sim_shim *shim, uint8_t blob);
void check_write(struct sim *sim, const struct rdzv_record *before,
                 const struct rdzv_record *after);
void check_all(struct sim *sim);
void check_end(struct sim *sim);

#endif
