/* NCCL as a table of functions of the CUDA module: one communicator over all ranks, which sums
 * gradients on the device.
 *
 * NCCL is used in non-blocking mode, unless options.blocks: every wait has a deadline and calls
 * `gone` to check for a lost peer, so nothing hangs. One thread makes all calls, except check and
 * abort, which any thread may call at any time. After an abort every call fails with STATUS_CLOSED
 * until close.
 *
 * Errors: STATUS_NOT_FOUND    the library is missing
 *         STATUS_UNSUPPORTED  it is too old; `err` has name and versions
 *         STATUS_LIBRARY      with NCCL's words
 *         STATUS_TIMEOUT      and those of `gone` */
#ifndef WORKER_BACKEND_CUDA_NCCL_NCCL_H
#define WORKER_BACKEND_CUDA_NCCL_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph/graph.h"

#define NCCL_ID_BYTES 128

struct CUstream_st;
struct nccl_link;

struct nccl_link_options {
    const char *library;       /* NULL: $DDP_NCCL, else libnccl.so.2 */
    uint8_t id[NCCL_ID_BYTES]; /* rank 0's, the same on all ranks; a secret */
    uint32_t rank, world;
    uint64_t timeout_us; /* how long to wait for all ranks to join */
    bool blocks;         /* calls return when they have finished, without a deadline */
    uint32_t ctas_max;   /* blocks that a collective may take from backward; 0: NCCL's choice */
    const char *address; /* of this node: NCCL uses the interface with this address, unless
                            NCCL_SOCKET_IFNAME is set; NULL: NCCL's choice */
    /* False: all peers are alive. True: a peer was lost, *err names it. */
    bool (*gone)(void *user, struct err *err);
    void *user;
};

/* Which NCCL is used. */
struct nccl_found {
    uint32_t version; /* as ncclGetVersion tells it: 23007 for 2.30.7 */
    char path[160];   /* the file */
};

struct cuda_nccl {
    /* Opens the library, which stays loaded. */
    enum status (*find)(const char *library, struct nccl_found *found, struct err *err);
    /* Call on rank 0: creates the id that all other ranks need. */
    enum status (*id_new)(const char *library, const char *address, uint8_t id[NCCL_ID_BYTES],
                          struct err *err);
    /* Called by all ranks, each with its device current. Waits for all ranks. */
    enum status (*open)(struct nccl_link **link, const struct nccl_link_options *options,
                        struct err *err);
    /* Device memory that NCCL can register in full (ncclMemAlloc), 256-byte aligned, not zeroed; on
     * the current device. Needs no communicator; is freed after the communicator's end. */
    enum status (*memory_new)(const char *library, void **memory, size_t bytes, struct err *err);
    void (*memory_free)(const char *library, void **memory);
    /* Registers device memory until close, so that NCCL needs no copies of its own. If NCCL cannot
     * register it, that is no error. */
    enum status (*register_memory)(struct nccl_link *link, void *memory, size_t bytes,
                                   struct err *err);
    /* Queues an all-reduce in place; may be captured. memory: [count] of dtype. A plain sum:
     * backward has already multiplied by 1 / world (struct device_collective). */
    enum status (*queue_sum)(struct nccl_link *link, void *memory, size_t count,
                             enum graph_dtype dtype, struct CUstream_st *stream, struct err *err);
    /* The asynchronous error of the communicator, if any. */
    enum status (*check)(struct nccl_link *link, struct err *err);
    /* Ends queued collectives on this rank; every rank has to call it. Returns when no captured
     * graph contains a collective of the link any more. */
    void (*abort)(struct nccl_link *link);
    /* Finalizes the communicator if all ranks do so within the time, else aborts it. Call after
     * every captured graph with one of its collectives was destroyed. `*link` may be NULL. */
    void (*close)(struct nccl_link **link, uint64_t timeout_us);
};

/* The table of this module. */
extern const struct cuda_nccl cuda_nccl;

#endif
