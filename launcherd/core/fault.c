/* Sources: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html)
 * and the table of NVIDIA's NVSentinel. They disagree about Xid 109. */
#include "launcherd/core/fault.h"

#include <stddef.h>

static const struct fault xids[] = {
    {8, 8, FAULT_PROGRAM, "the GPU stopped processing"},
    {11, 11, FAULT_PROGRAM, "an invalid or corrupted command stream"},
    {13, 13, FAULT_PROGRAM, "a graphics engine exception, mostly a bad access of the program"},
    {25, 25, FAULT_PROGRAM, "an invalid command"},
    {31, 31, FAULT_PROGRAM, "a memory page fault, mostly a bad access of the program"},
    {32, 32, FAULT_PROGRAM, "an invalid or corrupted push buffer"},
    {39, 41, FAULT_PROGRAM, "a copy engine exception"},
    {43, 43, FAULT_LOG, "the GPU stopped processing for one program"},
    {45, 45, FAULT_LOG, "a program's channel was torn down"},
    {46, 46, FAULT_DRAIN_RESET, "the GPU stopped processing"},
    {48, 48, FAULT_DRAIN_RESET, "an uncorrectable memory error (double-bit ECC)"},
    {60, 60, FAULT_PROGRAM, "a video processor exception"},
    {62, 62, FAULT_DRAIN_RESET, "the GPU's own controller halted"},
    {63, 63, FAULT_LOG, "a memory row will be remapped at the next reset"},
    {64, 64, FAULT_DRAIN_RESET, "a memory row could not be remapped"},
    {68, 72, FAULT_PROGRAM, "an engine exception"},
    {74, 74, FAULT_DRAIN_LINK, "an NVLink error"},
    {75, 77, FAULT_PROGRAM, "a copy engine exception"},
    {79, 79, FAULT_DRAIN_RESTART, "the GPU has fallen off the bus"},
    {80, 80, FAULT_PROGRAM, "corrupted data was sent to the GPU"},
    {92, 92, FAULT_LOG, "many correctable memory errors"},
    {93, 93, FAULT_LOG, "a warning about the GPU's inforom"},
    {FAULT_XID_CONTAINED, FAULT_XID_CONTAINED, FAULT_PROGRAM,
     "a contained memory error; reset the GPU when it suits"},
    {95, 95, FAULT_DRAIN_RESET, "an uncontained memory error"},
    {109, 109, FAULT_DRAIN_REPEATED, "a context switch timed out"},
    {110, 110, FAULT_DRAIN_RESET, "a security fault"},
    {119, 120, FAULT_DRAIN_RESET, "the GPU's system processor (GSP) does not answer"},
    {121, 121, FAULT_LOG, "a correctable error between the chips"},
    {126, 135, FAULT_PROGRAM, "an engine exception"},
    {136, 136, FAULT_DRAIN_RESET, "a fault that needs a reset"},
    {137, 137, FAULT_LOG, "a fault that came over NVLink"},
    {140, 140, FAULT_DRAIN_RESET, "an unrecovered memory error"},
    {143, 143, FAULT_DRAIN_RESET, "the GPU could not be initialised"},
    {144, 150, FAULT_DRAIN_LINK, "an NVLink error"},
    {154, 154, FAULT_LOG, "the recovery that the GPU asks for has changed"},
    {155, 156, FAULT_DRAIN_RESET, "a fault that needs a reset"},
    {158, 158, FAULT_DRAIN_RESET, "a fault that needs a reset"},
    {160, 160, FAULT_DRAIN_RESTART, "a fault that needs a restart of the machine"},
};
static const struct fault unknown_xid = {0, 0, FAULT_DRAIN_RESET,
                                         "a fault that is not in the table"};

const struct fault fault_ecc_uncorrected = {0, 0, FAULT_DRAIN_RESET,
                                            "uncorrectable memory errors (ECC)"};
const struct fault fault_ecc_contained = {0, 0, FAULT_LOG,
                                          "uncorrectable memory errors (ECC), contained (Xid 94)"};
const struct fault fault_remap_failed = {0, 0, FAULT_DRAIN_RESET,
                                         "a memory row could not be remapped"};
const struct fault fault_remap_pending = {0, 0, FAULT_LOG,
                                          "a memory row will be remapped at the next reset"};
const struct fault fault_lost = {0, 0, FAULT_DRAIN_RESTART, "the GPU has fallen off the bus"};
const struct fault fault_needs_reset = {0, 0, FAULT_DRAIN_RESET, "the driver asks for a reset"};

const struct fault *fault_of_xid(uint32_t xid)
{
    for (size_t i = 0; i < sizeof xids / sizeof xids[0]; i++)
        if (xid >= xids[i].first && xid <= xids[i].last)
            return &xids[i];
    return &unknown_xid;
}

bool fault_drains(enum fault_action action)
{
    return action == FAULT_DRAIN_RESET || action == FAULT_DRAIN_RESTART ||
           action == FAULT_DRAIN_LINK;
}

const char *fault_remedy(enum fault_action action)
{
    switch (action) {
    case FAULT_LOG:
    case FAULT_PROGRAM:
    case FAULT_DRAIN_REPEATED:
        break;
    case FAULT_DRAIN_RESET:
        return "reset the GPU, then resume the slot";
    case FAULT_DRAIN_RESTART:
        return "restart the machine";
    case FAULT_DRAIN_LINK:
        return "look at the links between the GPUs, then resume the slot";
    }
    return "";
}
