/* The device that --device chooses on this machine, and whether the devices of all ranks can train
 * together. */
#ifndef WORKER_DEVICE_H
#define WORKER_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/backend/cuda/nccl/nccl.h"
#include "worker/comm/comm.h"
#include "worker/net/backend.h"

struct cuda_runtime;

#define DEVICE_UUID_BYTES 16

/* What every rank sends to the others, byte for byte: all ranks run the same program. */
struct device_identity {
    char backend[16];                /* "cpu", "cuda" */
    char name[96];                   /* "NVIDIA H200, device 0" */
    uint8_t uuid[DEVICE_UUID_BYTES]; /* of a GPU */
};

struct device {
    const struct backend *backend;
    struct device_identity identity;
    const struct cuda_runtime *runtime; /* NULL: the CPU */
    const struct cuda_nccl *nccl;       /* NULL: the CPU, or a module without NCCL */
    struct nccl_found nccl_found;       /* after device_find_nccl; version 0: none */
    uint32_t device_count;              /* GPUs that this process sees; 0: the CPU */
    uint64_t open_us;                   /* how long device_open took */
};

/* Opens the device that `asked` names:
 *   cpu     the CPU
 *   cuda:N  GPU N
 *   cuda    GPU local_rank, modulo the number of visible GPUs
 *   auto    as cuda where module, driver, GPU and libraries are there, else the CPU; `notice` then
 *           has the reason
 * `notice` has an empty text in all other cases. Blocks.
 * Errors: STATUS_BAD_INPUT (another name); for cuda also those of cuda_load and of the libraries:
 * STATUS_NOT_FOUND, STATUS_CONFLICT, STATUS_UNSUPPORTED. */
enum status device_open(struct device *device, const char *asked, uint32_t local_rank,
                        struct err *notice, struct err *err);
/* Whether gradients of `world` ranks are NCCL's, if --comm is `comm`. */
bool device_takes_nccl(const struct device *device, const char *comm, uint32_t world);
/* Opens NCCL, so that its version and file are known. For a GPU. Errors: those of
 * cuda_nccl's find. */
enum status device_find_nccl(struct device *device, struct err *err);
/* "training on NVIDIA H200, device 0, NCCL 2.30.7 of /usr/lib/libnccl.so.2", for a GPU. */
void device_words(const struct device *device, char *text, size_t text_bytes);
/* Resets the GPU, after the last net is freed. A zeroed device is legal. */
void device_close(struct device *device);
/* The GPU on which nets are made from now on, when device_open has opened one. */
void device_choose(uint32_t index);
/* Whether `asked` is auto, cpu, cuda or cuda:N. */
bool device_is_valid(const char *asked);

/* Whether two ranks may be on one GPU. */
struct device_sharing {
    bool is_allowed, is_asked; /* is_asked: NCCL_MULTI_RANK_GPU_ENABLE is set, not to 0 */
    uint32_t nccl;             /* its version */
};
/* They may over Gloo; over NCCL where it is asked for, 2.30 or newer. */
struct device_sharing device_sharing(const struct device *device, const char *comm);
/* Collective: gathers the identities of all ranks and checks them. For a world above 1. Errors:
 * STATUS_CONFLICT (ranks with different backends, or two ranks on one GPU that may not share it):
 * the text names the ranks and a remedy. */
enum status device_check(const struct device *device, struct comm *comm, uint32_t world,
                         const struct device_sharing *sharing, struct err *err);
/* The check alone: pure. identities: [world], by rank. */
enum status device_check_identities(const struct device_identity *identities, uint32_t world,
                                    const struct device_sharing *sharing, struct err *err);

#endif
