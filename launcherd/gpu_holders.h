/* Who is behind a pid that NVML names, and who has a device file open: from /proc. May block on a
 * slow user database: not for the loop thread. */
#ifndef LAUNCHERD_GPU_HOLDERS_H
#define LAUNCHERD_GPU_HOLDERS_H

#include <stddef.h>
#include <stdint.h>

#include "launcherd/gpu_facts.h"

/* `out` gets `text` with every byte that is no printable ASCII as '?', cut where it does not fit;
 * "?" where there is nothing. */
void gpu_printable(const char *text, char *out, size_t out_bytes);
/* Fills all but pid and bytes. */
void gpu_process_describe(struct gpu_process *process);
/* Processes but ourselves that have this file open, as far as we may look; described. How many are
 * in `out`. */
uint32_t gpu_openers_find(const char *path, struct gpu_process *out, uint32_t max);

#endif
