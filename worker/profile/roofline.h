/* The roofline model: the limits of a device from its data sheet, and the least time for some work.
 * Pure functions over a table. */
#ifndef WORKER_PROFILE_ROOFLINE_H
#define WORKER_PROFILE_ROOFLINE_H

#include <stdbool.h>

#include "worker/graph/graph.h"

/* Limits of dense computation with sums in fp32. */
struct roof {
    const char *name;   /* part of the device's name: "H100 PCIe" */
    double half_tflops; /* fp16 and bf16 */
    double tf32_tflops;
    double float_tflops; /* fp32 without tensor cores */
    double memory_gb_s;  /* 10^9 bytes a second */
};

/* The limits of `device`, CUDA's name such as "NVIDIA H100 80GB HBM3". NULL: not in the table. */
const struct roof *roof_of(const char *device);
/* The least time in seconds for `flop` operations and `bytes` bytes:
 *   max(flop / peak of the type, bytes / memory bandwidth)
 *   tf32: fp32 products may use TF32
 * Source: Williams, Waterman and Patterson 2009, "Roofline". */
double roof_seconds(const struct roof *roof, enum graph_dtype dtype, bool tf32, double flop,
                    double bytes);

#endif
