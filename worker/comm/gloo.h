/* Gloo's collectives on our own connections, as a C interface. No C++ exception leaves it. */
#ifndef WORKER_COMM_GLOO_H
#define WORKER_COMM_GLOO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct comm_gloo;

enum comm_gloo_result {
    COMM_GLOO_OK,
    COMM_GLOO_STOPPED,   /* stop_fd became readable */
    COMM_GLOO_STALLED,   /* no byte moved for too long; `rank` is one that we waited for */
    COMM_GLOO_PEER_GONE, /* the connection to `rank` is closed */
    COMM_GLOO_MISMATCH,  /* `rank` sent another size: it called another collective */
    COMM_GLOO_FAILED     /* anything else */
};

struct comm_gloo_failure {
    enum comm_gloo_result result;
    uint32_t rank;
    char text[160];
};

/* How long a collective may wait while no byte moves. */
struct comm_gloo_patience {
    uint64_t timeout_us;
    /* Called after that time: how much longer, 0: not at all. `waited_us`: the time so far. */
    uint64_t (*more_us)(void *user, uint64_t waited_us);
    void *user;
};

/*   fds: [world] connected, non-blocking sockets by rank; the own entry is ignored
 *   stop_fd: an eventfd; once it is readable, every wait ends with COMM_GLOO_STOPPED
 * Both are borrowed until comm_gloo_free. */
enum comm_gloo_result comm_gloo_new(struct comm_gloo **gloo, uint32_t rank, uint32_t world,
                                    const int *fds, int stop_fd,
                                    const struct comm_gloo_patience *patience,
                                    struct comm_gloo_failure *failure);
void comm_gloo_free(struct comm_gloo **gloo);

/* The calling thread does all I/O while it waits; there is no other thread. After a failure only
 * comm_gloo_free() is allowed. The order of additions depends only on count and world, so every
 * rank gets the same bits. */
enum comm_gloo_result comm_gloo_all_reduce_f32(struct comm_gloo *gloo, float *values, size_t count,
                                               struct comm_gloo_failure *failure);
enum comm_gloo_result comm_gloo_all_reduce_f64(struct comm_gloo *gloo, double *values, size_t count,
                                               struct comm_gloo_failure *failure);
/* add: a comm_half_add. */
enum comm_gloo_result
comm_gloo_all_reduce_u16(struct comm_gloo *gloo, uint16_t *values, size_t count,
                         void (*add)(void *, const void *, const void *, size_t),
                         struct comm_gloo_failure *failure);
enum comm_gloo_result comm_gloo_broadcast(struct comm_gloo *gloo, void *bytes, size_t byte_count,
                                          uint32_t root, struct comm_gloo_failure *failure);
/* mine: [byte_count], all: [world][byte_count] */
enum comm_gloo_result comm_gloo_all_gather(struct comm_gloo *gloo, const void *mine,
                                           size_t byte_count, void *all,
                                           struct comm_gloo_failure *failure);
/* From ranks[0] to the other ranks of ranks[rank_count], which are unique; a tree. A rank that is
 * not among them returns at once. */
enum comm_gloo_result comm_gloo_multicast(struct comm_gloo *gloo, void *bytes, size_t byte_count,
                                          const uint32_t *ranks, uint32_t rank_count,
                                          struct comm_gloo_failure *failure);
enum comm_gloo_result comm_gloo_barrier(struct comm_gloo *gloo, struct comm_gloo_failure *failure);

#ifdef __cplusplus
}
#endif

#endif
