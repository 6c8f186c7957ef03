/* Describes processes that NVML names and finds processes that have a device file open, from /proc.
 * May block on a slow user database: not for the loop thread. */
#ifndef LAUNCHERD_GPU_GPU_HOLDERS_H
#define LAUNCHERD_GPU_GPU_HOLDERS_H

#include <stddef.h>
#include <stdint.h>

#include "launcherd/core/gpu_facts.h"

/* Copies `text` to `out`, truncated where it does not fit. Bytes that are not printable ASCII
 * become '?'; an empty text becomes "?". */
void gpu_printable(const char *text, char *out, size_t out_bytes);
/* Fills all fields but pid and bytes. */
void gpu_process_describe(struct gpu_process *process);
/* Finds the processes, except ourselves, that have this file open, as far as we may see; returns
 * how many are in `out`. */
uint32_t gpu_openers_find(const char *path, struct gpu_process *out, uint32_t max);

#endif
