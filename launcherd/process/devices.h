/* Which GPUs of the machine are this node's: slot i is the i-th of the list. As text: "all", "none",
 * or NVML's indices, "0,2-3". */
#ifndef LAUNCHERD_PROCESS_DEVICES_H
#define LAUNCHERD_PROCESS_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

#define DEVICES_TEXT_BYTES (4u * SLOTS_PER_NODE_MAX)

struct devices {
    bool all; /* slot i is GPU i; the list is empty */
    uint32_t count;
    uint32_t items[SLOTS_PER_NODE_MAX]; /* each below SLOTS_PER_NODE_MAX, none twice */
};

/* STATUS_BAD_INPUT. */
enum status devices_parse(struct devices *devices, const char *text, struct err *err);
/* The text of `devices`; of "all" the `gpus` first ones, "all" where that is 0. */
void devices_format(const struct devices *devices, uint32_t gpus, char text[DEVICES_TEXT_BYTES]);

#endif
