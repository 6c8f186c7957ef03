#include "ddpctl/node_gauges.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_strict.h"
#include "common/msg.h"

#define FIELDS_MAX 16u /* most fields of a slot, and of the whole object */

/* A number from 0 to 1e18; NaN: there is none. */
static double number(const cJSON *object, const char *name)
{
    const cJSON *item = json_member(object, name);

    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > 1e18)
        return NAN;
    return item->valuedouble;
}

/* 0: the field is missing, or not an integer up to `max`. */
static uint64_t integer(const cJSON *object, const char *name, uint64_t max)
{
    double value = number(object, name);

    return !isnan(value) && value <= (double)max && value == floor(value) ? (uint64_t)value : 0;
}

static void text(const cJSON *object, const char *name, char *out, size_t out_bytes)
{
    const cJSON *item = json_member(object, name);

    out[0] = '\0';
    if (cJSON_IsString(item))
        (void)snprintf(out, out_bytes, "%s", item->valuestring);
}

static bool take_slot(const cJSON *object, uint32_t index, struct slot_gauges *slot)
{
    const cJSON *state = json_member(object, "state");

    *slot = (struct slot_gauges){.slot = index, .state = SLOT_UNKNOWN};
    if (!cJSON_IsObject(object) || !cJSON_IsString(state) ||
        !slot_state_parse(state->valuestring, &slot->state))
        return false;
    slot->job_id = integer(object, "job_id", JOB_ID_MAX);
    slot->generation = (uint32_t)integer(object, "generation", GENERATION_MAX);
    slot->rank = (uint32_t)integer(object, "rank", RANKS_PER_JOB_MAX - 1);
    slot->has_gpu = json_member(object, "gpu") != NULL;
    text(object, "gpu", slot->gpu, sizeof slot->gpu);
    text(object, "uuid", slot->uuid, sizeof slot->uuid);
    text(object, "error", slot->error, sizeof slot->error);
    slot->utilization_percent = number(object, "utilization_percent");
    slot->memory_used = number(object, "memory_used_bytes");
    slot->memory_total = number(object, "memory_total_bytes");
    slot->temperature_c = number(object, "temperature_c");
    slot->power_w = number(object, "power_w");
    slot->power_limit_w = number(object, "power_limit_w");
    slot->age_s = number(object, "age_s");
    return true;
}

static enum status take_slots(const cJSON *slots, struct node_gauges *gauges, struct err *err)
{
    int count = cJSON_IsArray(slots) ? cJSON_GetArraySize(slots) : -1;
    const cJSON *item;

    if (count < 0 || count > (int)SLOTS_PER_NODE_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0, "its gauges have no list of slots");
    gauges->slots = calloc((size_t)count + 1, sizeof *gauges->slots);
    if (gauges->slots == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for its gauges");
    cJSON_ArrayForEach(item, slots)
    {
        if (!take_slot(item, gauges->slot_count, &gauges->slots[gauges->slot_count]))
            return err_set(err, STATUS_BAD_INPUT, 0, "its gauges have a slot without a state");
        gauges->slot_count++;
    }
    return STATUS_OK;
}

static enum status take(const cJSON *object, struct node_gauges *gauges, struct err *err)
{
    const cJSON *schema = json_member(object, "schema"), *load = json_member(object, "load");
    const cJSON *first = cJSON_IsArray(load) ? cJSON_GetArrayItem(load, 0) : NULL;

    if (!cJSON_IsString(schema) || strcmp(schema->valuestring, "ddp.gauges.v1") != 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "its gauges are of no schema that is known here");
    gauges->load = first != NULL && cJSON_IsNumber(first) && first->valuedouble >= 0
                       ? first->valuedouble
                       : NAN;
    gauges->cpus = number(object, "cpus");
    gauges->cpu_percent = number(object, "cpu_percent");
    gauges->memory_total = number(object, "memory_total_bytes");
    gauges->memory_available = number(object, "memory_available_bytes");
    gauges->disk_total = number(object, "disk_total_bytes");
    gauges->disk_free = number(object, "disk_free_bytes");
    gauges->up_s = number(object, "up_s");
    return take_slots(json_member(object, "slots"), gauges, err);
}

enum status node_gauges_parse(struct node_gauges *gauges, const char *bytes, size_t byte_count,
                              struct err *err)
{
    const struct json_limits limits = {.depth_max = 4,
                                       .token_max = 2 * FIELDS_MAX * (SLOTS_PER_NODE_MAX + 1)};
    struct node_gauges found = {0};
    cJSON *object = NULL;
    enum status status = json_strict_parse(bytes, byte_count, &limits, &object, err);

    if (status == STATUS_OK)
        status = take(object, &found, err);
    cJSON_Delete(object);
    if (status == STATUS_OK) {
        node_gauges_free(gauges);
        *gauges = found;
    } else {
        node_gauges_free(&found);
    }
    return status;
}

void node_gauges_free(struct node_gauges *gauges)
{
    free(gauges->slots);
    *gauges = (struct node_gauges){0};
}
