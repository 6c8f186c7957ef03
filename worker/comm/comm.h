/* Collectives among the ranks of one generation. Every backend (Gloo on the CPU now, NCCL later)
 * has this face.
 *
 * Rank 0 makes a blob (comm_open) that travels to every rank through rendezvous; comm_connect()
 * with the same blob on all ranks builds the mesh. A dead peer is STATUS_PEER_LOST with the rank in
 * the text within 5 s, never a hang. */
#ifndef WORKER_COMM_COMM_H
#define WORKER_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm_half.h"

#define COMM_BLOB_BYTES_MAX 512

struct comm;

struct comm_blob {
    uint8_t bytes[COMM_BLOB_BYTES_MAX];
    uint32_t byte_count;
};

struct comm_options {
    uint32_t rank, world;
    uint64_t job_id; /* with generation: a peer of another job or generation is refused */
    uint32_t generation;
    const char *address; /* to bind and to announce: this node's address, "127.0.0.1" */
    uint64_t timeout_us; /* for the mesh to come up, and for one collective without progress */
};

/* On rank 0 only: opens the meeting point (port chosen by the kernel) and describes it, with a
 * random secret, in `blob`.
 * `*comm` is half made: pass it on to comm_connect. On other ranks comm is NULL before
 * comm_connect. */
enum status comm_open(struct comm **comm, const struct comm_options *options,
                      struct comm_blob *blob, struct err *err);
/* All ranks, with the same blob. Blocks until the mesh is up, a peer is lost or the time is over.
 * world == 1 is legal and needs no socket. */
enum status comm_connect(struct comm **comm, const struct comm_options *options,
                         const struct comm_blob *blob, struct err *err);
/* Orderly: tells peers that this rank leaves on purpose; they complete what it has completed, and a
 * later collective of theirs fails with STATUS_PEER_LOST, "rank 2 has left". Rank 0 waits up to a
 * second for the others to leave. NULL inside is legal. */
void comm_close(struct comm **comm);

/* Blocking collectives; every rank calls them in the same order, from one thread at a time. Sums
 * are added in an order that depends on count and world alone: the same bits on every rank and in
 * every run. After a failure only comm_close() is left. Errors: STATUS_PEER_LOST naming the rank,
 * STATUS_TIMEOUT naming who did not come, STATUS_CONFLICT where a peer makes another call. */
enum status comm_all_reduce_sum(struct comm *comm, float *values, size_t count, struct err *err);
/* Floats that hold values of `type` (COMM_F16, COMM_BF16): 16 bits a value travel, each sum is
 * rounded to the type. Half the bytes of comm_all_reduce_sum. */
enum status comm_all_reduce_sum_half(struct comm *comm, float *values, size_t count,
                                     enum comm_half type, struct err *err);
enum status comm_all_reduce_sum_f64(struct comm *comm, double *values, size_t count,
                                    struct err *err);
enum status comm_broadcast(struct comm *comm, void *bytes, size_t byte_count, uint32_t root,
                           struct err *err);
/* all: [world][byte_count] */
enum status comm_all_gather(struct comm *comm, const void *mine, size_t byte_count, void *all,
                            struct err *err);
enum status comm_barrier(struct comm *comm, struct err *err);

/* For whoever waits for the peers by other means (NCCL): STATUS_PEER_LOST, naming the rank, once
 * one was lost; `what` is what goes on meanwhile, "training". From any thread; does not block. */
enum status comm_lost(struct comm *comm, const char *what, struct err *err);

#endif
