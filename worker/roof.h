/* What a device can do at most, by its maker's data sheet: a table. Pure. */
#ifndef WORKER_ROOF_H
#define WORKER_ROOF_H

#include <stdbool.h>

#include "worker/graph.h"

/* Dense, sums in fp32. */
struct roof {
    const char *name;   /* how the device is called, or a part of it: "H100 PCIe" */
    double half_tflops; /* fp16 and bf16 */
    double tf32_tflops;
    double float_tflops; /* fp32 without tensor cores */
    double memory_gb_s;  /* 10^9 bytes a second */
};

/* NULL: not in the table, so unknown. `device` is what CUDA calls it: "NVIDIA H100 80GB HBM3". */
const struct roof *roof_of(const char *device);
/* The least time in seconds for so much work; tf32: fp32 products may use it. */
double roof_seconds(const struct roof *roof, enum graph_dtype dtype, bool tf32, double flop,
                    double bytes);

#endif
