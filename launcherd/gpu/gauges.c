#include "launcherd/gpu/gauges.h"

#include <cjson/cJSON.h>
#include <stdio.h>

/* A number, or null where it is not known. */
static void add_known(cJSON *object, const char *name, double value)
{
    if (value >= 0)
        (void)cJSON_AddNumberToObject(object, name, value);
    else
        (void)cJSON_AddNullToObject(object, name);
}

static void add_text(cJSON *object, const char *name, const char *text)
{
    if (text[0] != '\0')
        (void)cJSON_AddStringToObject(object, name, text);
    else
        (void)cJSON_AddNullToObject(object, name);
}

/* Rounded, so that the text stays short. */
static double tenths(double value)
{
    return (double)(int64_t)(value * 10 + 0.5) / 10;
}

static void add_watts(cJSON *object, const char *name, int64_t milliwatts)
{
    add_known(object, name, milliwatts < 0 ? -1 : tenths((double)milliwatts / 1000));
}

static void add_gpu(cJSON *item, const struct gpu_gauges *gpu, uint64_t now_us)
{
    bool is_known = gpu->read_us > 0;

    add_text(item, "gpu", gpu->name);
    add_text(item, "uuid", gpu->uuid);
    add_known(item, "utilization_percent", is_known ? gpu->utilization_percent : -1);
    add_known(item, "memory_used_bytes", is_known ? (double)gpu->memory_used_bytes : -1);
    add_known(item, "memory_total_bytes", is_known ? (double)gpu->memory_total_bytes : -1);
    add_known(item, "temperature_c", is_known ? gpu->temperature_c : -1);
    add_watts(item, "power_w", is_known ? gpu->power_mw : -1);
    add_watts(item, "power_limit_w", is_known ? gpu->power_limit_mw : -1);
    add_known(item, "age_s",
              is_known && now_us >= gpu->read_us ? tenths((double)(now_us - gpu->read_us) / 1000000)
                                                 : -1);
    add_text(item, "error", gpu->error);
}

static void add_slot(cJSON *array, const struct gauges *gauges, uint32_t index)
{
    const struct slot_gauges *slot = &gauges->slots[index];
    cJSON *item = cJSON_CreateObject();

    (void)cJSON_AddNumberToObject(item, "slot", index);
    (void)cJSON_AddStringToObject(item, "state", slot_state_name(slot->state));
    add_known(item, "job_id", slot->job_id > 0 ? (double)slot->job_id : -1);
    add_known(item, "generation", slot->job_id > 0 ? slot->generation : -1.0);
    add_known(item, "rank", slot->job_id > 0 ? slot->rank : -1.0);
    add_text(item, "reason", slot->reason);
    if (index < gauges->gpu_count)
        add_gpu(item, &gauges->gpus[index], gauges->now_us);
    (void)cJSON_AddItemToArray(array, item);
}

void gauges_write(const struct gauges *gauges, struct buf *out)
{
    const struct host_gauges *host = &gauges->host;
    cJSON *object = cJSON_CreateObject(), *load, *slots;
    char *text;

    (void)cJSON_AddStringToObject(object, "schema", "ddp.gauges.v1");
    (void)cJSON_AddStringToObject(object, "node", gauges->node);
    load = cJSON_AddArrayToObject(object, "load");
    for (int i = 0; i < 3 && host->load[i] >= 0; i++)
        (void)cJSON_AddItemToArray(load, cJSON_CreateNumber(host->load[i]));
    add_known(object, "cpus", host->cpus > 0 ? host->cpus : -1.0);
    add_known(object, "cpu_percent", host->cpu_percent < 0 ? -1 : tenths(host->cpu_percent));
    add_known(object, "memory_total_bytes", (double)host->memory_total_bytes);
    add_known(object, "memory_available_bytes", (double)host->memory_available_bytes);
    add_known(object, "disk_total_bytes", (double)host->disk_total_bytes);
    add_known(object, "disk_free_bytes", (double)host->disk_free_bytes);
    add_known(object, "up_s", (double)host->up_s);
    slots = cJSON_AddArrayToObject(object, "slots");
    for (uint32_t i = 0; i < gauges->slot_count; i++)
        add_slot(slots, gauges, i);
    text = cJSON_PrintUnformatted(object);
    if (text != NULL)
        buf_add_text(out, text);
    else
        out->failed = true;
    cJSON_free(text);
    cJSON_Delete(object);
}
