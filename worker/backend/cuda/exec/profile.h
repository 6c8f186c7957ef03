/* Times of the pieces of a step, from events around them on the stream on which they are queued.
 *
 * While the profile is on, steps are queued piece by piece, never captured. So the time of a small
 * layer includes the wait for its next launch, if the host is slower than the device. At the end of
 * a step, or when another forward begins before that, the host waits for the device and adds up the
 * times. Without a profile every call here does nothing. */
#ifndef WORKER_BACKEND_CUDA_EXEC_PROFILE_H
#define WORKER_BACKEND_CUDA_EXEC_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/net/net.h"
#include "worker/net/profile.h"

struct cuda;
struct cuda_profile;
struct CUstream_st;

/* Parts of a step that belong to no layer. */
enum cuda_part {
    CUDA_PART_COPY, /* copies of images, on a separate stream */
    CUDA_PART_IMAGES,
    CUDA_PART_REDUCE, /* reductions of all buckets, on a separate stream */
    CUDA_PART_JOIN,   /* the part of the reductions that the rest of the step waited for */
    CUDA_PART_FINITE,
    CUDA_PART_CLIP,
    CUDA_PART_UPDATE,
    CUDA_PART_SCALER,
    CUDA_PARTS
};

/* Call after cuda->graph and runtime are set; the profile is on from the start. Errors:
 * STATUS_MEMORY, STATUS_LIBRARY. */
enum status cuda_profile_open(struct cuda *cuda, struct err *err);
void cuda_profile_close(struct cuda *cuda);
bool cuda_profile_is_on(const struct cuda *cuda);
/* A piece begins and ends on `stream`. At most one is open: in the order of the host's calls,
 * pieces do not overlap. */
void cuda_profile_layer(struct cuda *cuda, uint32_t layer, bool is_backward);
void cuda_profile_part(struct cuda *cuda, enum cuda_part part, struct CUstream_st *stream);
void cuda_profile_end(struct cuda *cuda);
/* Waits for the device and adds up the times. */
void cuda_profile_collect(struct cuda *cuda);

/* For struct backend. */
bool cuda_profile_entry(const void *state, uint32_t index, struct net_profile *profile);
void cuda_profile_set(void *state, bool is_on);

#endif
