/* The three production cores in one process: a virtual clock, a lossy network, crashes, by seed.
 *
 * Every party is its core plus the smallest edge that can carry its actions out. Messages are
 * encoded and decoded by the real codec and pass through the real link rule. Between any two bytes
 * there may be a fault: a message delayed, lost, repeated or overtaken; a connection cut, on one
 * side first; a node cut off; the server (also between its transaction and its sends), launcherd, a
 * shim or a worker killed, and back later or, for nodes, not before long. The invariants of
 * sim_check.c are checked after every event. The same seed gives the same run; a failure prints
 * seed and trace. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/link.h"
#include "common/msg.h"
#include "launcherd/launcher.h"
#include "launcherd/shim.h"
#include "rendezvous/rdzv.h"

#define SIM_NODES_MAX 5u
#define SIM_SHIMS_MAX 24u  /* run directories of one node */
#define SIM_WORKERS_MAX 4u /* of one shim */
#define SIM_JOBS_MAX 8u
#define SIM_CONNS_MAX 4096u
#define SIM_STORE_MAX 32u
#define SIM_GENERATIONS_MAX 512u

enum sim_side { SIM_SERVER, SIM_LAUNCHER, SIM_SHIM };

/* A connection: `near` is the one that connected to `far`. */
struct sim_conn {
    bool is_server; /* launcherd to the server; else launcherd to a shim */
    uint32_t node;
    uint32_t shim; /* index on the node */
    bool near_open, far_open;
    struct link near_link, far_link;
    uint64_t near_clear_us, far_clear_us; /* an orderly close comes after what was sent */
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
    bool is_faulty; /* launcherd was told of a fault that drains, and nobody has mended it */
};

/* launcherd's file of slots. */
struct sim_kept {
    uint32_t count;
    struct part_slot_kept items[SIM_WORKERS_MAX];
    char reasons[SIM_WORKERS_MAX][REASON_BYTES_MAX];
};

struct sim_node {
    bool alive;         /* launcherd */
    uint32_t gpu_count; /* slots below it have one */
    struct sim_gpu gpus[SIM_WORKERS_MAX];
    uint64_t nvml_hangs_until_us;
    struct sim_kept kept;
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
    void *memory;
    struct rdzv *core;
    uint64_t timer_us;
    uint32_t tear; /* the next step with a transaction dies: 1 before it, else after that many
                      actions behind it */
};

/* What is on the server's disk. */
struct sim_row {
    struct rdzv_record record;
    bool has_spec;
};

/* What the checker knows of one generation of a job, from what workers did. */
struct sim_generation {
    uint64_t job_id;
    uint32_t generation;
    uint32_t
        node_of[SIM_NODES_MAX * SIM_WORKERS_MAX]; /* node + 1 of each rank that was ever spawned */
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
    uint32_t loss_pm, repeat_pm, late_pm; /* per mille of messages */
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
    char *bytes; /* owned */
    uint32_t byte_count;
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
    uint32_t node_count, slots;
    struct sim_faults faults;
    struct sim_server server;
    struct sim_node nodes[SIM_NODES_MAX];
    uint32_t row_count;
    struct sim_row rows[SIM_STORE_MAX];
    uint32_t drain_count;
    struct rdzv_drain drains[DRAINS_MAX];
    uint64_t last_job_id;
    uint32_t client_count;
    struct sim_client clients[SIM_JOBS_MAX];
    uint32_t conn_count;
    struct sim_conn conns[SIM_CONNS_MAX];
    uint32_t generation_count;
    struct sim_generation generations[SIM_GENERATIONS_MAX];
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
void sim_init(struct sim *sim, uint64_t seed);
void sim_free(struct sim *sim);

/* sim_net.c */
uint32_t net_open(struct sim *sim, bool is_server, uint32_t node, uint32_t shim);
void net_send(struct sim *sim, uint32_t conn, bool from_near, struct msg *msg);
/* One side closes; the other hears of it later, or never when it is cut off. */
void net_close(struct sim *sim, uint32_t conn, bool by_near);

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
/* Carries out ASK_GPU, KEEP_SLOTS. */
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
void check_order(struct sim *sim, uint32_t node, uint64_t slot_mask);
struct sim_generation *check_generation(struct sim *sim, uint64_t job_id, uint32_t generation);
void check_spawn(struct sim *sim, uint32_t node, const struct sim_shim *shim, uint32_t worker);
void check_world(struct sim *sim, const struct sim_shim *shim, uint8_t blob);
void check_write(struct sim *sim, const struct rdzv_record *before,
                 const struct rdzv_record *after);
void check_all(struct sim *sim);
void check_end(struct sim *sim);

#endif
