/* The worker's link to its shim, and what the launcher told it through the environment.
 *
 * Started by our launcher a worker has torchrun's variables, and DDP_SHIM_FD: a stream socket to
 * its shim that carries frames of common/msg.h. Without it, it is one rank alone: every call here
 * is then a no-op. One thread. */
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
    uint64_t job_id;                /* 0: no launcher of ours */
    uint32_t generation;            /* 1 without a launcher */
    char address[AGENT_TEXT_BYTES]; /* of this node, where its peers reach it */
    int shim_fd;                    /* -1: none */
};

/* RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; DDP_SHIM_FD, DDP_JOB_ID, DDP_GENERATION,
 * DDP_NODE_ADDRESS. Nothing set: one rank alone. Errors: STATUS_BAD_INPUT naming the variable;
 * STATUS_UNSUPPORTED: several ranks without our launcher. */
enum status agent_read_place(struct agent_place *place, struct err *err);

struct agent;

/* `*agent` is NULL without a shim; all calls below take NULL. */
enum status agent_open(struct agent **agent, const struct agent_place *place, struct err *err);
void agent_close(struct agent **agent);

/* Joins the world with rank 0's blob (others: empty) and waits for everybody: `blob` becomes rank
 * 0's. STATUS_CLOSED: the shim hung up, the gang is being stopped: end quietly. Without a shim
 * `blob` stays. */
enum status agent_join(struct agent *agent, struct comm_blob *blob, struct err *err);

struct agent_progress {
    uint32_t epoch, epochs; /* counted from 1 */
    uint64_t step, steps;   /* global; of the whole training */
    double loss;
    double samples_per_s; /* over all ranks */
    uint64_t checkpoint_step;
};
/* At most once a second; `is_last` is sent at any time. Never waits: what does not fit is left out.
 * STATUS_CLOSED: the shim is gone, and so is the job. */
enum status agent_tell(struct agent *agent, const struct agent_progress *progress, bool is_last);
/* Last words, for `ddpctl why`. Waits at most a second. */
void agent_fail(struct agent *agent, const char *text);

#endif
