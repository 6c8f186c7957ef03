/* The GPUs of a private run, those of the machine or of CUDA_VISIBLE_DEVICES, divided among its
 * nodes. launcherd counts them (--list-gpus), because it uses NVML. */
#ifndef DDPCTL_STANDALONE_GPUS_H
#define DDPCTL_STANDALONE_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

struct standalone_gpus {
    bool is_limited; /* CUDA_VISIBLE_DEVICES selects them, or selects none */
    uint32_t count;
    uint32_t items[SLOTS_PER_NODE_MAX]; /* NVML's numbers */
};

/* Asks the program `launcherd` if there is an NVIDIA driver, and applies CUDA_VISIBLE_DEVICES
 * (`visible`, NULL: not set). A launcherd that cannot be asked has no GPU.
 *   STATUS_BAD_INPUT  `visible` has something else than numbers */
enum status standalone_gpus_find(struct standalone_gpus *gpus, const char *launcherd,
                                 const char *visible, struct err *err);

/* The value of `launcherd --gpus` for node `node` of `nodes`, each with `workers` workers; "": no
 * such option. If there is a GPU for each worker, each gets one. If not, the workers of a single
 * node share them, and those of several nodes get none. */
void standalone_gpus_share(const struct standalone_gpus *gpus, uint32_t nodes, uint32_t workers,
                           uint32_t node, char *text, size_t text_bytes);
/* Why workers share a GPU or have none although there are GPUs; "": each has one. */
void standalone_gpus_explain(const struct standalone_gpus *gpus, uint32_t nodes, uint32_t workers,
                             char *text, size_t text_bytes);

#endif
