/* The policy for faults of GPUs: what an Xid of the NVIDIA driver, or a counter of NVML, means for
 * the slot. Pure; the table is in fault.c. */
#ifndef LAUNCHERD_CORE_FAULT_H
#define LAUNCHERD_CORE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum fault_action {
    FAULT_LOG,            /* an event, nothing else */
    FAULT_PROGRAM,        /* an event: the program on the GPU failed, the GPU is fine */
    FAULT_DRAIN_REPEATED, /* an event; drains when it comes again within FAULT_REPEAT_US */
    FAULT_DRAIN_RESET,    /* drains until the GPU is reset */
    FAULT_DRAIN_RESTART,  /* drains until the machine is restarted */
    FAULT_DRAIN_LINK,     /* drains until the links between GPUs are repaired */
};

#define FAULT_REPEAT_US (24ull * 3600u * 1000000u)
/* A contained memory error: it also raises the counter of uncorrectable errors, which must not
 * drain the slot then. */
#define FAULT_XID_CONTAINED 94u

struct fault {
    uint32_t first, last; /* Xid numbers; 0: not an Xid */
    enum fault_action action;
    const char *text; /* what happened */
};

/* Never NULL: a number that is not in the table gets a row that drains until a reset. */
const struct fault *fault_of_xid(uint32_t xid);
bool fault_drains(enum fault_action action);
/* What the operator must do: "reset the GPU, then resume the slot". Empty: nothing. */
const char *fault_remedy(enum fault_action action);

/* Faults that NVML's counters and answers show, without an Xid. */
extern const struct fault fault_ecc_uncorrected, fault_ecc_contained, fault_remap_failed,
    fault_remap_pending, fault_lost, fault_needs_reset;

#endif
