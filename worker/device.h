/* What --device comes to on this machine, and whether the ranks of a world can train on what each
 * of them has. */
#ifndef WORKER_DEVICE_H
#define WORKER_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm.h"
#include "worker/net_backend.h"

struct cuda_nccl;
struct cuda_runtime;

#define DEVICE_UUID_BYTES 16

/* What every rank tells the others. Travels as it is, between equal programs. */
struct device_card {
    char backend[16];                /* "cpu", "cuda" */
    char name[96];                   /* "NVIDIA H200, device 0" */
    uint8_t uuid[DEVICE_UUID_BYTES]; /* of a GPU */
};

struct device {
    const struct backend *backend;
    struct device_card card;
    const struct cuda_runtime *runtime; /* NULL: the CPU */
    const struct cuda_nccl *nccl;       /* NULL with it */
};

/* `asked`: auto, cpu, cuda or cuda:N (else the local rank's). auto takes the GPU where module,
 * driver, device and libraries are there, else the CPU with the reason in `notice` (its text is
 * empty where there is nothing to say). Errors: STATUS_BAD_INPUT (another word), and with cuda what
 * cuda_load and the libraries say: STATUS_NOT_FOUND, STATUS_CONFLICT, STATUS_UNSUPPORTED. Blocks.
 */
enum status device_open(struct device *device, const char *asked, uint32_t local_rank,
                        struct err *notice, struct err *err);
/* Gives the GPU back, behind the last net. NULL inside is legal. */
void device_close(struct device *device);
/* auto, cpu, cuda, cuda:N? */
bool device_is_word(const char *asked);

/* Every rank calls it, with a world above 1. STATUS_CONFLICT where ranks have different backends,
 * or two of them one GPU without `allows_sharing`; names the ranks and says what to do. */
enum status device_check(const struct device *device, struct comm *comm, uint32_t world,
                         bool allows_sharing, struct err *err);
/* The decision alone: cards: [world]. */
enum status device_check_cards(const struct device_card *cards, uint32_t world, bool allows_sharing,
                               struct err *err);

#endif
