/* Limits of GPUs. See roofline.h. */
#include "worker/profile/roofline.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* Sources: NVIDIA's data sheets of the H200, H100, A100, B200 (HGX), GH200 and L40S. The first
 * name that is part of the device's name is used, so longer names come before shorter ones. */
static const struct roof roofs[] = {
    {"B200", 2250.0, 1125.0, 75.0, 8000.0},
    {"H200 NVL", 835.0, 417.5, 60.0, 4800.0},
    {"GH200", 989.5, 494.7, 66.9, 4000.0},
    {"H200", 989.5, 494.7, 66.9, 4800.0},
    {"H100 PCIe", 756.0, 378.0, 51.2, 2000.0},
    {"H100 NVL", 835.0, 417.5, 60.0, 3900.0},
    {"H100", 989.5, 494.7, 66.9, 3350.0},
    {"A100-SXM4-80GB", 312.0, 156.0, 19.5, 2039.0},
    {"A100 80GB PCIe", 312.0, 156.0, 19.5, 1935.0},
    {"A100", 312.0, 156.0, 19.5, 1555.0},
    {"L40S", 362.0, 183.0, 91.6, 864.0},
};

const struct roof *roof_of(const char *device)
{
    for (size_t i = 0; i < sizeof roofs / sizeof roofs[0]; i++)
        if (strstr(device, roofs[i].name) != NULL)
            return &roofs[i];
    return NULL;
}

double roof_seconds(const struct roof *roof, enum graph_dtype dtype, bool tf32, double flop,
                    double bytes)
{
    const double tflops = dtype != GRAPH_F32 ? roof->half_tflops
                          : tf32             ? roof->tf32_tflops
                                             : roof->float_tflops;
    const double computing = flop / (tflops * 1e12), moving = bytes / (roof->memory_gb_s * 1e9);

    assert(flop >= 0.0 && bytes >= 0.0);
    return computing > moving ? computing : moving;
}
