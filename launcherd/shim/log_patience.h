/* How long the end of a job waits for the disk of its logs: as long as that takes something, within a limit. It is looked
 * at every LOG_LOOK_MS, and looks are counted, not time: a shim that was stopped, or did not get the processor, has looked
 * once meanwhile. */
#ifndef LAUNCHERD_SHIM_LOG_PATIENCE_H
#define LAUNCHERD_SHIM_LOG_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#define LOG_LOOK_MS 1000u
#define LOG_IDLE_LOOKS                                                                             \
    2u /* a disk that has taken nothing between so many looks is not waited for any more */
#define LOG_LOOKS_MAX 30u /* nor is a slow one after so many */

struct log_patience {
    uint64_t done_count; /* what was written at the last look */
    uint32_t looks, idle_looks;
};

static inline struct log_patience log_patience_begin(uint64_t done_count)
{
    return (struct log_patience){.done_count = done_count};
}

/* A look. True: it is not waited for any more. */
static inline bool log_patience_ends(struct log_patience *patience, uint64_t done_count)
{
    patience->idle_looks = done_count == patience->done_count ? patience->idle_looks + 1 : 0;
    patience->done_count = done_count;
    return ++patience->looks >= LOG_LOOKS_MAX || patience->idle_looks >= LOG_IDLE_LOOKS;
}

#endif
