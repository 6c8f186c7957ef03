/* Which GPUs of the machine belong to this node: slot i has the i-th of the list. As text: "all",
 * "none", or NVML's indices such as "0,2-3". */
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
    uint32_t items[SLOTS_PER_NODE_MAX]; /* each below SLOTS_PER_NODE_MAX, no duplicates */
};

/* STATUS_BAD_INPUT. */
enum status devices_parse(struct devices *devices, const char *text, struct err *err);
/* The text of `devices`. "all" is written as the first `gpus` ones, or as "all" if `gpus` is 0. */
void devices_format(const struct devices *devices, uint32_t gpus, char text[DEVICES_TEXT_BYTES]);

#endif
