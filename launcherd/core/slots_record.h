/* What launcherd keeps of its GPUs' slots across its own restarts, within one boot of the machine:
 * baselines, counters and faults. node/slots_file.h has the file format. */
#ifndef LAUNCHERD_CORE_SLOTS_RECORD_H
#define LAUNCHERD_CORE_SLOTS_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"

struct slot_record {
    uint32_t slot;
    bool has_baseline;
    uint64_t baseline_bytes; /* GPU memory in use while the GPU is idle */
    bool has_ecc;
    uint64_t ecc_uncorrected; /* the counter as last seen */
    bool remap_failed;
    uint64_t incident;             /* of the fault that drained the slot; 0: it is not drained */
    char reason[REASON_BYTES_MAX]; /* of that fault; one line of UTF-8 */
};

struct slots_record {
    char boot_id[64]; /* the boot in which it was written; in another boot it is ignored */
    uint32_t gpus;    /* number of GPUs then */
    uint32_t count;
    struct slot_record slots[SLOTS_PER_NODE_MAX]; /* [count], each slot once */
};

#endif
