/* Gauges of a GPU from NVML, for display only: no decision depends on them. */
#include <string.h>

#include "launcherd/gpu/gpu_holders.h"
#include "launcherd/gpu/nvml.h"

#define TEMPERATURE_GPU 0 /* nvmlTemperatureSensors_t */

/* A value that this driver or GPU does not have is GAUGE_UNKNOWN, not an error. */
static int64_t number(int (*get)(void *, unsigned *), void *device)
{
    unsigned value = 0;

    return get != NULL && get(device, &value) == NVML_SUCCESS ? (int64_t)value : GAUGE_UNKNOWN;
}

static void text(int (*get)(void *, char *, unsigned), void *device, char *out, size_t out_bytes)
{
    char found[96] = "";

    if (get == NULL || get(device, found, sizeof found) != NVML_SUCCESS)
        return;
    found[sizeof found - 1] = '\0';
    gpu_printable(found, out, out_bytes);
}

void nvml_gauges(const struct nvml *nvml, uint32_t index, uint64_t now_us,
                 struct gpu_gauges *gauges)
{
    struct nvml_utilization utilization = {0};
    struct nvml_memory memory = {0};
    unsigned celsius = 0;
    void *device = NULL;
    int code = nvml->get_handle(index, &device);

    if (code == NVML_SUCCESS)
        code = nvml->get_memory(device, &memory);
    if (code != NVML_SUCCESS) {
        gpu_printable(nvml_error_text(nvml, code), gauges->error, sizeof gauges->error);
        return;
    }
    *gauges = (struct gpu_gauges){.read_us = now_us,
                                  .memory_used_bytes = (int64_t)memory.used,
                                  .memory_total_bytes = (int64_t)memory.total,
                                  .utilization_percent = GAUGE_UNKNOWN,
                                  .temperature_c = GAUGE_UNKNOWN,
                                  .power_mw = number(nvml->get_power, device),
                                  .power_limit_mw = number(nvml->get_power_limit, device)};
    text(nvml->get_name, device, gauges->name, sizeof gauges->name);
    text(nvml->get_uuid, device, gauges->uuid, sizeof gauges->uuid);
    if (nvml->get_utilization != NULL &&
        nvml->get_utilization(device, &utilization) == NVML_SUCCESS && utilization.gpu <= 100)
        gauges->utilization_percent = (int32_t)utilization.gpu;
    if (nvml->get_temperature != NULL &&
        nvml->get_temperature(device, TEMPERATURE_GPU, &celsius) == NVML_SUCCESS && celsius < 1000)
        gauges->temperature_c = (int32_t)celsius;
}
