/* The worker's connection to its shim, and its place in the world from the environment: libddp with the
 * worker's own types.
 *
 * A worker that launcherd has started has torchrun's variables, and DDP_SHIM_FD: a stream socket to
 * its shim that carries frames of common/msg.h. Without DDP_SHIM_FD the worker is a world of one
 * rank, and every call here does nothing. One thread calls. A thread of its own tells the server that this
 * rank is there (agent_begin_telling). */
#ifndef WORKER_AGENT_H
#define WORKER_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm.h"

#define AGENT_TEXT_BYTES 64

/* This worker's place in the world. */
struct agent_place {
    uint32_t rank, world;
    uint32_t local_rank, local_world;
    uint64_t job_id;                /* 0: not started by launcherd */
    char cluster[AGENT_TEXT_BYTES]; /* whose server gave that number; "": unknown */
    uint32_t generation;            /* 1 without a launcher */
    char address[AGENT_TEXT_BYTES]; /* of this node, where its peers reach it */
    char node[AGENT_TEXT_BYTES];    /* the node's name; "": unknown */
    uint64_t checkpoint_step;       /* the newest that the server knows to be committed; 0: none */
    int shim_fd;                    /* -1: none */
};

/* Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; DDP_SHIM_FD, DDP_JOB_ID, DDP_GENERATION,
 * DDP_CHECKPOINT_STEP, DDP_NODE_ADDRESS, DDP_NODE_NAME, DDP_CLUSTER. With none of them set it is a
 * world of one rank. Errors: STATUS_BAD_INPUT (naming the variable), STATUS_UNSUPPORTED (several ranks without launcherd). */
enum status agent_read_place(struct agent_place *place, struct err *err);

struct agent;

/* `*agent` is NULL without a shim; all calls below take NULL. */
enum status agent_open(struct agent **agent, const struct agent_place *place, struct err *err);
void agent_close(struct agent **agent);

/* Joins the world and waits until all ranks have joined. `blob`: in, rank 0's (empty on the
 * others); out, rank 0's on every rank. Without a shim it stays. Errors: STATUS_CLOSED (the shim
 * has closed the connection: the job is being stopped, which is no error to report). */
enum status agent_join(struct agent *agent, struct comm_blob *blob, struct err *err);

/* From here until agent_end_telling a thread of the agent's own tells every second what is known, also when
 * nothing moves: so the server sees that this rank hangs, and where, or that its process is stopped.
 * `probe` is called on that thread. Errors: STATUS_SYSTEM. */
struct agent_now {
    uint64_t collectives; /* that have begun */
    bool in_collective;
    char text
        [AGENT_TEXT_BYTES]; /* "all-reduce number 88: bucket 3 of 7"; "": what agent_doing has said */
};
typedef void agent_probe(void *user, struct agent_now *now);
enum status agent_begin_telling(struct agent *agent, agent_probe *probe, void *user,
                                struct err *err);
void agent_end_telling(struct agent *agent);

/* What this rank does now; each report sets it to AGENT_STEPS. */
enum agent_phase { AGENT_STEPS, AGENT_PREPARING, AGENT_VALIDATING, AGENT_SAVING };
/* A new phase is told at once. `what` is a constant. */
void agent_phase(struct agent *agent, enum agent_phase phase, const char *what);
/* The part of a step that is at hand: cheap. `what` is a constant. */
void agent_doing(struct agent *agent, const char *what);

struct agent_progress {
    uint32_t epoch, epochs; /* counted from 1 */
    uint64_t step, steps;   /* of the whole training */
    double loss;
    double samples_per_s; /* over all ranks */
    uint64_t checkpoint_step;
    /* of the steps since the last report: how many, and what they took; see ddp.h */
    uint32_t timed_steps;
    uint64_t step_us, data_us, compute_us, update_us, wait_us;
};
/* Sends progress at most once a second; `is_urgent` is sent at any time. Never waits: a report that
 * the socket does not take is left out. Errors: STATUS_CLOSED (the shim is gone, and with it the
 * job). */
enum status agent_report(struct agent *agent, const struct agent_progress *progress,
                         bool is_urgent);
/* A checkpoint of that step is committed: told with the next report, or in the end. */
void agent_committed(struct agent *agent, uint64_t step);
/* Sends the error that ends this worker, for `ddpctl why`. Waits at most a second. */
void agent_fail(struct agent *agent, const char *text);

#endif
