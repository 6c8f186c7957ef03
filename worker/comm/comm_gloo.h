/* Gloo's collectives over connections that we made: the C face of the shim. No exception leaves it.
 */
#ifndef WORKER_COMM_COMM_GLOO_H
#define WORKER_COMM_COMM_GLOO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct comm_gloo;

enum comm_gloo_result {
    COMM_GLOO_OK,
    COMM_GLOO_STOPPED,   /* stop_fd became readable */
    COMM_GLOO_STALLED,   /* no byte moved for the time-out; `rank` is one we waited for */
    COMM_GLOO_PEER_GONE, /* the connection with `rank` is over */
    COMM_GLOO_MISMATCH,  /* `rank` sends something of another size: it makes another call than we do
                          */
    COMM_GLOO_FAILED     /* anything else */
};

struct comm_gloo_failure {
    enum comm_gloo_result result;
    uint32_t rank;
    char text[160];
};

/* fds: [world] connected, non-blocking sockets by rank, the own entry ignored; stop_fd: an eventfd
 * that interrupts every wait, for good, once it is readable. Both are borrowed until
 * comm_gloo_free. */
enum comm_gloo_result comm_gloo_new(struct comm_gloo **gloo, uint32_t rank, uint32_t world,
                                    const int *fds, int stop_fd, uint64_t timeout_us,
                                    struct comm_gloo_failure *failure);
void comm_gloo_free(struct comm_gloo **gloo);

/* All I/O is done by the calling thread while it waits; there is no other. After a failure only
 * comm_gloo_free() is left. Sums are added in an order that depends on count and world alone, and
 * every rank gets the same bits. */
enum comm_gloo_result comm_gloo_all_reduce_f32(struct comm_gloo *gloo, float *values, size_t count,
                                               struct comm_gloo_failure *failure);
enum comm_gloo_result comm_gloo_all_reduce_f64(struct comm_gloo *gloo, double *values, size_t count,
                                               struct comm_gloo_failure *failure);
/* `add` as comm_half_add: adds elements of 16 bits. */
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
enum comm_gloo_result comm_gloo_barrier(struct comm_gloo *gloo, struct comm_gloo_failure *failure);

#ifdef __cplusplus
}
#endif

#endif
