/* Collectives among the ranks of one generation, over TCP: Gloo's algorithms on connections of our
 * own. (Gradients on GPUs are averaged by NCCL, see worker/backend/cuda/nccl.)
 *
 * Rank 0 makes a blob (comm_open), which rendezvous sends to every rank. comm_connect() with this
 * blob on all ranks makes the connections. When a peer dies, calls fail with STATUS_PEER_LOST and
 * name its rank within 5 s; they never hang.
 *
 * This folder, besides ddp.h (data-parallel training), half.h (16-bit sums) and clock.h (how far
 * clocks are apart):
 *
 *     comm.c                  the collectives
 *     gloo.cc, transport.cc   Gloo on our connections
 *     mesh.c                  a connection between every two ranks: carries collectives
 *     star.c                  a connection from every rank to rank 0: bring-up, then liveness
 *     watch.c, live.c         a thread on the star that detects lost peers; its decisions (pure)
 *     greet.c, sock.c, wire.c listener, sockets, encoding */
#ifndef WORKER_COMM_COMM_H
#define WORKER_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/half.h"

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
    uint64_t busy_us; /* the longest that a collective waits more, while the missing rank is busy */
};

/* On rank 0 only: opens a listener for the other ranks (port chosen by the kernel) and describes
 * it, with a random secret, in `blob`. *comm cannot communicate yet: pass it to comm_connect(). On
 * other ranks *comm is NULL before comm_connect(). */
enum status comm_open(struct comm **comm, const struct comm_options *options,
                      struct comm_blob *blob, struct err *err);
/* On all ranks, with the same blob. Blocks until all connections are made, a peer is lost or the
 * time-out is over. world == 1 is legal and needs no socket. */
enum status comm_connect(struct comm **comm, const struct comm_options *options,
                         const struct comm_blob *blob, struct err *err);
/* Leaves in order. The peers complete the collectives that this rank has completed; a later one
 * fails with STATUS_PEER_LOST, "rank 2 has left". Rank 0 waits up to a second for the others to
 * leave. *comm may be NULL. */
void comm_close(struct comm **comm);
/* How many collectives this rank has begun. `*what`: the name of the current one, a constant; NULL:
 * none. May be called from any thread, between comm_connect and comm_close. */
uint64_t comm_now(const struct comm *comm, const char **what);

/* Blocking collectives. Every rank calls them in the same order, from one thread at a time.
 * Sums: the order of additions depends only on count and world, so every rank and every run gets
 * the same bits.
 * Errors: STATUS_PEER_LOST (names the rank), STATUS_TIMEOUT (names the rank that did not take
 * part), STATUS_CONFLICT (a peer called another collective). After an error only comm_close() is
 * allowed. */
enum status comm_all_reduce_sum(struct comm *comm, float *values, size_t count, struct err *err);
/* The same for floats that hold values of a 16-bit type. 16 bits per value are sent, and each sum
 * is rounded to the type. */
enum status comm_all_reduce_sum_half(struct comm *comm, float *values, size_t count,
                                     enum comm_half type, struct err *err);
enum status comm_all_reduce_sum_f64(struct comm *comm, double *values, size_t count,
                                    struct err *err);
enum status comm_broadcast(struct comm *comm, void *bytes, size_t byte_count, uint32_t root,
                           struct err *err);
/* From ranks[0] to the other ranks of ranks[rank_count]; these are unique. All ranks call it, with
 * the same list; for a rank that is not in it `bytes` is ignored, and it does not wait. */
enum status comm_multicast(struct comm *comm, void *bytes, size_t byte_count, const uint32_t *ranks,
                           uint32_t rank_count, struct err *err);
/* all: [world][byte_count] */
enum status comm_all_gather(struct comm *comm, const void *mine, size_t byte_count, void *all,
                            struct err *err);
enum status comm_barrier(struct comm *comm, struct err *err);

/* Whether this rank is in a phase without steps, as when it writes a checkpoint. While it is, others
 * that wait for it in a collective have more patience. Told within a second. */
void comm_set_busy(struct comm *comm, bool busy);

/* STATUS_PEER_LOST, naming the rank, once a peer was lost. For callers that wait for their peers by
 * other means, such as NCCL. `what` is what the text says was going on ("training"). Callable from
 * any thread; does not block. */
enum status comm_lost(struct comm *comm, const char *what, struct err *err);
/* As comm_lost(), and also STATUS_PEER_LOST once a rank has left in order: then the next collective,
 * of the name `what`, cannot complete. */
enum status comm_check_next(struct comm *comm, const char *what, struct err *err);

#endif
