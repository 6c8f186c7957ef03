/* The oracle's state; only its own files include this. */
#ifndef TESTS_SIM_ORACLE_FACTS_H
#define TESTS_SIM_ORACLE_FACTS_H

#include "tests/sim/oracle.h"

#define ORACLE_CAUSES_MAX 24u
#define ORACLE_STARTED_MAX 1024u
#define ORACLE_DRAINS_MAX 64u
#define DRIFT_PM 1u /* per mille: two clocks never drift apart faster */

/* A failure in a generation. */
struct oracle_cause {
    uint64_t at_us;
    int32_t rank;    /* -1: none */
    uint32_t number; /* exit code, or 1000 and a signal */
    uint32_t node;   /* of a rank or part that could not be started; else UINT32_MAX */
    bool was_told;   /* the server was told when it happened, by the age in the report */
    bool came_late;  /* it came after its node was lost, so its part counts as over */
    uint64_t told_us;
};

struct oracle_part {
    uint32_t node;
    uint32_t rank_base, local_count;
    uint64_t slot_mask;
    bool is_ready;
    bool ready_was_told, running_was_told, end_was_told; /* this server was told */
    bool was_lost; /* lost with its node, before the next generation started */
    bool was_gone; /* its node was gone too long to wait for the part */
    bool was_late; /* its node had not done its part, when the start had failed as late */
};

/* What the server has heard about a rank's progress. */
struct oracle_told {
    uint64_t at_us;    /* 0: nothing yet */
    uint64_t first_us; /* the first message to this server */
    uint32_t server;   /* which server */
};

/* One generation of a job, from the actions of shims and workers. */
struct oracle_gen {
    struct oracle_gen *older;
    uint64_t job_id;
    uint32_t generation;
    uint64_t stored_us, running_us; /* when it was stored; as running, 0: not yet */
    uint32_t part_count, world;
    struct oracle_part *parts; /* [part_count] */
    uint16_t *node_of;         /* [world]: node + 1 of each rank that was ever spawned */
    bool *has_joined;          /* [world] */
    struct oracle_told *told;  /* [world] */
    uint64_t step, step_us;    /* the highest step reported, and when; 0: none */
    uint64_t gap_max_us;       /* the longest time between two reported steps */
    uint64_t told_us;          /* the newest progress reported by any rank */
    uint64_t heard_since_us;   /* the time since which all of its nodes can be heard */
    uint64_t stands_since_us;  /* the time since which none of its processes has moved */
    uint64_t stood_us;       /* the last time at which one of its processes stood still; 0: never */
    uint64_t still_since_us; /* the time since which no rank takes steps, nor will take one */
    uint32_t joined, exited_ok;
    uint8_t blob;
    uint32_t port;
    bool go_was_sent;
    bool was_late;        /* when it was stopped its start, or its world, was late */
    uint64_t up_since_us; /* the time since which the server runs and all of its nodes are up */
    uint64_t no_go_us;    /* until then it did not wait for a go, or not all could be heard */
    uint64_t no_start_us, no_world_us; /* likewise */
    uint32_t late_node;                /* that was named for a late start, and 1; 0: none */
    uint64_t late_us;                  /* when */
    uint64_t no_stop_us;  /* until then it was not to stop, or some node could not carry that out */
    uint32_t stopping;    /* the stored value */
    uint64_t stop_us;     /* when that was stored */
    uint32_t stop_server; /* which server stored it */
    uint64_t checkpoint;  /* the newest that its workers have committed */
    bool has_hung;        /* the server has concluded that it hangs */
    bool has_impostor;    /* another process has used the name of one of its nodes */
    uint32_t cause_count;
    struct oracle_cause causes[ORACLE_CAUSES_MAX];
};

/* What ended a generation: the program; a machine or the network; a rank whose GPU or whose lost
 * peers may be the cause; nothing, since it was planned. */
enum oracle_blame { BLAME_PROGRAM, BLAME_MACHINE, BLAME_UNSURE, BLAME_NOBODY, BLAME_COUNT };

/* What clients were told of a job (oracle_clients.c). */
struct oracle_shown {
    uint64_t floor;       /* the highest value */
    uint32_t generation;  /* the highest */
    bool cancel_is_acked; /* to some client */
    uint32_t cancelled;   /* the generation that a client saw that asked after that; 0: none yet */
    struct sim_end end;   /* if it has ended */
};

struct oracle_job {
    struct oracle_gen *newest;
    uint64_t submitted_us;
    uint64_t checkpoint_heard; /* the newest of the current generation that the server knows of */
    enum oracle_blame blame;   /* for the end of the last generation */
    uint32_t restarts[BLAME_COUNT]; /* since the last checkpoint that is in the store */
    uint32_t kept[BLAME_COUNT];     /* the same when the store was copied */
    uint32_t failures[BLAME_COUNT]; /* in all */
    uint32_t late_starts;           /* each may exclude its node at once */
    uint32_t crashes;               /* ranks that died of a signal, in all */
    uint64_t closed_us;             /* when its last generation had ended, */
    uint32_t closed_server;         /* by which server, */
    uint32_t closed_wall;           /* after how many settings of the wall clock */
    int64_t place_ms;               /* its place in the queue, as a time */
    uint64_t limited_step; /* the checkpoint when its time limit was last over; 0: it was not */
    uint64_t kept_step;    /* the same when the store was copied */
    struct oracle_shown shown;
    bool
        is_unasked; /* an older version has written its row, which does not say that --max-restarts was asked for */
    bool is_old; /* an older version has written its row, or the row was put back */
};

/* What a node has told the present server, from the messages that the server acknowledged. */
struct oracle_node {
    uint32_t shim_count;
    struct part_beat_shim shims[SHIMS_PER_NODE_MAX];
    uint64_t closed_mask; /* listed as closed, or with a GPU whose shim ended since the list */
    uint64_t left_mask;   /* with a GPU whose part ended since; listed before or not */
    uint32_t conn;        /* the open connection that the server accepted; 0: none */
    uint32_t owner;       /* the process that said hello last; 0: none yet */
    bool is_expected;     /* with a GPU, whose part has ended since; listed before or not */
    uint64_t heard_us;    /* on the clock of oracle_ran_us */
    uint64_t heard_at_us; /* true time */
    uint64_t closed_us;   /* true time: its connection closed; 0: never */
    uint64_t hello_us;    /* true time: it opened; 0: never */
    bool has_called;      /* the launcherd that this server heard was its own, at least once */
    uint64_t lost_us;     /* true time: the last at which it might count as lost; 0: never */
    bool was_shared;      /* another process has had the name, also before this server */
    uint64_t
        left_us; /* true time: when the process was last heard whose place another one took; 0 */
    uint64_t
        unknown_until_us; /* true time: until then another process than this one, which does not say who it is, may
                                * have parts that it does not list; 0: no other */
};

struct oracle_drain {
    uint32_t node;
    uint64_t slot_mask; /* 0: all of it */
};

/* A preempted job, the job that preempted it, and that job's generation at that time. */
struct oracle_turn {
    uint64_t job_id, first_id;
    uint32_t first_generation;
};

struct oracle {
    uint32_t job_count; /* [job_count], by id */
    struct oracle_job *jobs;
    uint32_t node_count;
    struct oracle_node *nodes;
    uint64_t ran_us, ran_at_us; /* how long the server had run at ran_at_us */
    uint32_t wall_sets;
    uint64_t grown_id; /* a job that has committed a checkpoint in this transaction; 0: none */
    uint32_t started_count;
    uint64_t started[ORACLE_STARTED_MAX]; /* jobs that this transaction starts */
    uint32_t turn_count;
    struct oracle_turn turns[ORACLE_STARTED_MAX]; /* preempted jobs that it starts again */
    uint32_t preempted_count;                     /* by jobs whose rows do not wait yet */
    struct oracle_turn preempted[ORACLE_STARTED_MAX];
    uint32_t drain_count;
    struct oracle_drain drains[ORACLE_DRAINS_MAX];
    /* The first job that waits, and what was running when it became the first. */
    uint64_t first_id;
    uint32_t before_count;
    uint64_t before[ORACLE_STARTED_MAX];
    uint32_t before_generation[ORACLE_STARTED_MAX];
};

/* NULL: it is not in the store. */
struct oracle_job *oracle_job(const struct sim *sim, uint64_t job_id);
struct oracle_gen *oracle_gen(const struct sim *sim, uint64_t job_id, uint32_t generation);
struct oracle_part *oracle_part(const struct oracle_gen *gen, uint32_t node);
/* How long the server has run in total, without times in which it was stopped for more than 2 s. */
uint64_t oracle_ran_us(const struct sim *sim);
/* Whether a node may have said that the command cannot be run. */
bool oracle_cannot_run(const struct oracle_gen *gen);
void oracle_add_cause(struct sim *sim, uint64_t job_id, uint32_t generation, int32_t rank,
                      uint32_t number);
/* The node has been silent long enough to count as lost. */
bool oracle_may_be_lost(struct sim *sim, uint32_t node);
/* Slots of a node that could be given to this job, by what the server was told and has stored. */
uint64_t oracle_free_mask(const struct sim *sim, uint32_t node, uint64_t job_id);

/* oracle_queue.c, after each transaction */
void oracle_check_queue(struct sim *sim);
void oracle_check_ranks(struct sim *sim, const struct rdzv_record *record);
/* oracle_elastic.c */
bool oracle_is_elastic(const struct sim *sim, uint64_t job_id);
/* Whether the end of the generation need not wait for this node. */
bool oracle_may_be_gone(const struct sim *sim, const struct oracle_gen *gen, uint32_t node);
/* The node is back. */
void oracle_is_back(struct sim *sim, uint32_t node);
void oracle_check_elastic(struct sim *sim, const struct rdzv_record *before,
                          const struct rdzv_record *after);
void oracle_check_growth(struct sim *sim);
/* Slots become free only when jobs end, and stay: no GPUs, drains, restarts, silent or leaving nodes, nor leftover shims. */
bool oracle_is_calm(const struct sim *sim);
/* oracle_hang.c */
bool oracle_has_hung(const struct sim *sim, const struct oracle_gen *gen);
/* The shim of a part; NULL: none. */
const struct sim_shim *oracle_shim_of(const struct sim *sim, const struct oracle_gen *gen,
                                      const struct oracle_part *part);
/* Its shim, launcherd and the server hear one another. */
bool oracle_is_heard(const struct sim *sim, const struct oracle_gen *gen,
                     const struct oracle_part *part);
/* The server has concluded that the generation hangs. */
void oracle_check_hang(struct sim *sim, const struct oracle_gen *gen,
                       const struct rdzv_record *after);
void oracle_told_progress(struct sim *sim, struct oracle_gen *gen,
                          const struct msg_progress *progress);
void oracle_check_hangs(struct sim *sim);
/* oracle_warm.c: the server sends MSG_WARM; a rank runs; a regular check. */
void oracle_warms(struct sim *sim, uint32_t node, const struct msg_warm *warm);
void oracle_warm_spawned(struct sim *sim, uint32_t node, const struct sim_shim *shim,
                         uint32_t worker);
void oracle_check_warm(struct sim *sim);
/* oracle_history.c. */
/* A row is about to be written. */
void oracle_check_numbers(struct sim *sim, const struct rdzv_record *before,
                          const struct rdzv_record *after);
/* oracle_array.c */
void oracle_check_arrays(struct sim *sim);
/* As many jobs of its array as allowed are running or restarting, or have ended and may linger. */
bool oracle_array_is_full(const struct sim *sim, const struct rdzv_record *record);
/* oracle_linger.c */
/* The job has ended, and a node of it was lost, so that the server may still wait for its ranks. */
bool oracle_may_linger(const struct sim *sim, uint64_t job_id);
/* The server, which was started after the generation, has heard nothing of a part of it for a lease, and what says that it
 * is the part's node does not show that it is the machine of before: the node was restarted meanwhile, or another process
 * has had its name. */
bool oracle_may_not_have_begun(const struct sim *sim, const struct rdzv_record *before);
/* A rank of `shim` is spawned, and one of another job's lives on `node`. */
void oracle_check_lingering(struct sim *sim, const struct sim_shim *shim, uint32_t node,
                            const struct sim_shim *other);
/* oracle_requeue.c: the time limit has ended a generation, which is no failure. */
void oracle_limit_ended(struct sim *sim, const struct rdzv_record *after);
/* oracle_waits.c: a row is about to be written. */
void oracle_check_waits(struct sim *sim, const struct rdzv_record *before,
                        const struct rdzv_record *after);
/* After the transaction. */
void oracle_check_turns(struct sim *sim);
/* Whether a job that the client's jobs wait for has not succeeded. */
bool oracle_waits_in_vain(const struct sim *sim, const struct sim_client *client);
/* oracle_start.c */
/* The start may have taken longer than allowed, so its nodes may be blamed for that. */
bool oracle_start_is_late(const struct sim *sim, const struct oracle_gen *gen);
/* It has taken so long that the first failure of a node may exclude it. */
bool oracle_start_is_slow(const struct sim *sim, const struct oracle_gen *gen);
/* No rank of it has begun, and its stop has taken so long that its parts may be given up. */
bool oracle_stop_is_late(const struct sim *sim, const struct oracle_gen *gen);
void oracle_check_starts(struct sim *sim);
/* The generation has failed. If its start was late and nothing else has failed, the node that is named has not done its
 * part. */
void oracle_check_named(struct sim *sim, struct oracle_gen *gen, const struct rdzv_record *record);
/* A start order reaches launcherd. */
void oracle_check_arrived(struct sim *sim, uint32_t node, const struct msg_start *start);
/* A rank of it begins. */
void oracle_check_begun(struct sim *sim, uint32_t node, const struct sim_shim *shim,
                        const struct oracle_gen *gen);
/* oracle_job.c: the server has concluded a failure. */
void oracle_check_cause(struct sim *sim, const struct oracle_gen *gen,
                        const struct rdzv_record *record);
/* oracle_roster.c */
void oracle_check_roster(struct sim *sim);
/* The node lists the shim of its part. */
bool oracle_is_listed(const struct sim *sim, const struct oracle_gen *gen,
                      const struct oracle_part *part);
void oracle_check_placed(struct sim *sim, const struct rdzv_record *record);
/* The server sends a start order: no older shim is on its slots. */
void oracle_check_start(struct sim *sim, uint32_t node, const struct msg_start *start);
/* oracle_node.c */
void oracle_check_nodes(struct sim *sim);
/* oracle_job.c */
void oracle_check_jobs(struct sim *sim);

#endif
