/* What a GPU's faults mean for its slot: NVIDIA's Xid numbers, and what NVML's counters tell. */
#ifndef LAUNCHERD_FAULT_H
#define LAUNCHERD_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum fault_action {
    FAULT_RECORD,         /* noted; what follows from it shows elsewhere */
    FAULT_PROGRAM,        /* ends the program that ran there; the GPU is fine */
    FAULT_DRAIN_REPEATED, /* noted, and drains when it comes again within FAULT_REPEAT_US */
    FAULT_DRAIN_RESET,    /* the slot is drained until the GPU was reset */
    FAULT_DRAIN_RESTART,  /* ... until the machine was restarted */
    FAULT_DRAIN_LINK,     /* ... until the links between GPUs were looked at */
};

#define FAULT_REPEAT_US (24ull * 3600u * 1000000u)
#define FAULT_XID_CONTAINED                                                                        \
    94u /* its memory error is in the counter, too, and no more than this                          \
         */

struct fault {
    uint32_t first, last; /* Xid numbers; 0: not an Xid */
    enum fault_action action;
    const char *words;
};

/* Never NULL: of a number that is not in the table, a row that drains. */
const struct fault *fault_of_xid(uint32_t xid);
bool fault_drains(enum fault_action action);
/* What to do about it, in words: "reset the GPU, then resume the slot". Empty: nothing. */
const char *fault_remedy(enum fault_action action);

/* Not Xids: what a look at the counters found. */
extern const struct fault fault_ecc_uncorrected, fault_ecc_contained, fault_remap_failed,
    fault_remap_pending, fault_lost, fault_needs_reset;

#endif
