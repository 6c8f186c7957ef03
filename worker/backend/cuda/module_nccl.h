/* NCCL as a table of functions of the CUDA module: one communicator over all ranks, which averages
 * gradients on the device.
 *
 * Everything is non-blocking inside and bounded outside: whoever waits here also looks at the clock
 * and asks `gone` whether a peer was lost, so nothing hangs. One thread calls, but for check and
 * abort, which may come from another at any time; after an abort every call fails with
 * STATUS_CLOSED until close. Errors: STATUS_NOT_FOUND, STATUS_UNSUPPORTED (the library, by name and
 * version), STATUS_LIBRARY with NCCL's words, STATUS_TIMEOUT, and what `gone` says. */
#ifndef WORKER_BACKEND_CUDA_MODULE_NCCL_H
#define WORKER_BACKEND_CUDA_MODULE_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/graph.h"

#define NCCL_ID_BYTES 128

struct CUstream_st;
struct nccl_link;

struct nccl_link_options {
    const char *library;       /* NULL: libnccl.so.2 */
    uint8_t id[NCCL_ID_BYTES]; /* rank 0's, the same on all ranks; a secret */
    uint32_t rank, world;
    uint64_t timeout_us; /* for all ranks to come */
    uint32_t ctas_max;   /* blocks that a collective may take from backward; 0: NCCL's choice */
    float factor;        /* every value is multiplied by this before the sum; 0: by 1 / world */
    const char *address; /* of this node: NCCL uses the interface that has it, unless
                            NCCL_SOCKET_IFNAME is set; NULL: NCCL's choice */
    /* False: all peers live. True: *err says who was lost. */
    bool (*gone)(void *user, struct err *err);
    void *user;
};

struct cuda_nccl {
    /* On rank 0: what all others need. */
    enum status (*id_new)(const char *library, const char *address, uint8_t id[NCCL_ID_BYTES],
                          struct err *err);
    /* All ranks, each with its device current. Waits for all. */
    enum status (*open)(struct nccl_link **link, const struct nccl_link_options *options,
                        struct err *err);
    /* Makes device memory known to NCCL, so that it needs no copies of its own; until close. That
     * NCCL cannot is no error. */
    enum status (*hold)(struct nccl_link *link, void *memory, size_t bytes, struct err *err);
    /* Queues: `memory`, [count] of dtype, becomes the mean over all ranks (with options.factor the
     * sum of products); each value is multiplied before the sum, as PyTorch does. May be recorded.
     */
    enum status (*queue_average)(struct nccl_link *link, void *memory, size_t count,
                                 enum graph_dtype dtype, struct CUstream_st *stream,
                                 struct err *err);
    /* What NCCL has run into since, by its own account. */
    enum status (*check)(struct nccl_link *link, struct err *err);
    /* Ends what is queued, on this rank; all ranks have to. Returns when no record (CUDA graph)
     * with a collective of the link is left. */
    void (*abort)(struct nccl_link *link);
    /* In order where all ranks do so within the time, else as abort does. Behind the end of
     * every record with a collective of the link. NULL inside is legal. */
    void (*close)(struct nccl_link **link, uint64_t timeout_us);
};

/* The table of this module. */
extern const struct cuda_nccl cuda_nccl;

#endif
