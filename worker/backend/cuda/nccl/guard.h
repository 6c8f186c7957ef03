/* A thread that watches training over NCCL and aborts it in time: see watch.h.
 *
 * It keeps its verdict for nccl_guard_verdict, which the training thread calls when a call failed
 * and between steps. It aborts the communicator so that the training thread returns from the
 * device. If that thread does not return within grace_us, the guard's thread calls `give_up`, which
 * reports the error and ends the process. */
#ifndef WORKER_BACKEND_CUDA_NCCL_GUARD_H
#define WORKER_BACKEND_CUDA_NCCL_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/backend/cuda/nccl/nccl.h"

struct nccl_guard;

struct nccl_guard_options {
    const struct cuda_nccl *nccl;
    struct nccl_link *link; /* borrowed until nccl_guard_free */
    /* As in nccl_link_options; called on the guard's thread. */
    bool (*gone)(void *user, struct err *err);
    void (*give_up)(void *user, const struct err *why); /* does not return */
    void *user;
    uint64_t grace_us; /* how long to wait for the training thread */
    bool has_launcher; /* the launcher finds hangs too, see watch.h */
};

/* Errors: STATUS_MEMORY, STATUS_SYSTEM. */
enum status nccl_guard_new(struct nccl_guard **guard, const struct nccl_guard_options *options,
                           struct err *err);
/* Call before the link is closed and after net_drop_captures, since it waits for an abort to end.
 * `*guard` may be NULL. */
void nccl_guard_free(struct nccl_guard **guard);
/* Call when a step has ended on the device. */
void nccl_guard_progress(struct nccl_guard *guard);
/* No step is expected to end until the next nccl_guard_progress. */
void nccl_guard_pause(struct nccl_guard *guard);
/* This rank begins or ends waiting for its own next batch; that time is no stall. */
void nccl_guard_loading(struct nccl_guard *guard, bool is_loading);
/* STATUS_OK, or why training was aborted: STATUS_PEER_LOST naming the rank, STATUS_LIBRARY,
 * STATUS_TIMEOUT. */
enum status nccl_guard_verdict(struct nccl_guard *guard, struct err *err);

#endif
