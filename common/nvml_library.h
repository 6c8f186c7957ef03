/* NVML, the library of NVIDIA's driver that tells which GPUs there are. launcherd uses it. */
#ifndef COMMON_NVML_LIBRARY_H
#define COMMON_NVML_LIBRARY_H

#include <stdbool.h>

#define NVML_LIBRARY "libnvidia-ml.so.1"

/* Whether this process could load it. If not, no program that is started from here could. */
bool nvml_library_is_there(void);

#endif
