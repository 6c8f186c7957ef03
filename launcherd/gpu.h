/* How many GPUs this node has, by NVML, which is loaded where it is there and needed nowhere. */
#ifndef LAUNCHERD_GPU_H
#define LAUNCHERD_GPU_H

#include <stdint.h>

#include "common/status.h"

/* Asked in a thread of its own, for NVML may hang on a broken GPU: after `timeout_us` it is left
 * alone. STATUS_NOT_FOUND: no NVML (no NVIDIA driver); STATUS_LIBRARY: it answered with an error;
 * STATUS_TIMEOUT. `*count` is 0 unless STATUS_OK. */
enum status gpu_count(uint32_t *count, uint64_t timeout_us, struct err *err);

#endif
