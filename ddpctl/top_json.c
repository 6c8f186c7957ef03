#include "ddpctl/top_json.h"

#include <math.h>

#include "ddpctl/json_parts.h"

/* A number, or null where it is not known. */
static void add_gauge(cJSON *object, const char *name, double value)
{
    add_known(object, name, value, !isnan(value));
}

static void add_slot(cJSON *array, const struct slot_gauges *slot)
{
    cJSON *item = cJSON_CreateObject();

    add_number(item, "slot", slot->slot);
    (void)cJSON_AddStringToObject(item, "state", slot_state_name(slot->state));
    add_known(item, "job_id", (double)slot->job_id, slot->job_id > 0);
    add_known(item, "rank", slot->rank, slot->job_id > 0);
    if (slot->has_gpu) {
        add_text(item, "gpu", slot->gpu);
        add_text(item, "uuid", slot->uuid);
        add_gauge(item, "utilization_percent", slot->utilization_percent);
        add_gauge(item, "memory_used_bytes", slot->memory_used);
        add_gauge(item, "memory_total_bytes", slot->memory_total);
        add_gauge(item, "temperature_c", slot->temperature_c);
        add_gauge(item, "power_w", slot->power_w);
        add_gauge(item, "power_limit_w", slot->power_limit_w);
        add_gauge(item, "age_s", slot->age_s);
        add_text(item, "error", slot->error);
    }
    (void)cJSON_AddItemToArray(array, item);
}

static void add_gauges(cJSON *item, const struct gauges_row *row)
{
    const struct node_gauges *gauges = &row->gauges;
    cJSON *array;

    add_gauge(item, "load", gauges->load);
    add_gauge(item, "cpus", gauges->cpus);
    add_gauge(item, "cpu_percent", gauges->cpu_percent);
    add_gauge(item, "memory_total_bytes", gauges->memory_total);
    add_gauge(item, "memory_available_bytes", gauges->memory_available);
    add_gauge(item, "disk_total_bytes", gauges->disk_total);
    add_gauge(item, "disk_free_bytes", gauges->disk_free);
    array = cJSON_AddArrayToObject(item, "slot_list");
    for (uint32_t i = 0; i < gauges->slot_count; i++)
        add_slot(array, &gauges->slots[i]);
}

static void add_nodes(cJSON *object, const struct top_view *view)
{
    cJSON *array = cJSON_AddArrayToObject(object, "nodes");

    for (uint32_t i = 0; i < view->cluster->node_count; i++) {
        const struct cluster_node *node = &view->cluster->nodes[i];
        const struct gauges_row *row = gauges_table_find(view->gauges, node->part.name);
        cJSON *item = cJSON_CreateObject();

        output_add_node(item, &node->part);
        add_known(item, "gauges_s_ago",
                  row != NULL ? (double)(view->now_us - row->read_us) / 1e6 : 0,
                  row != NULL && row->is_known);
        if (row != NULL && row->is_known)
            add_gauges(item, row);
        (void)cJSON_AddItemToArray(array, item);
    }
}

static void add_jobs(cJSON *object, const struct top_view *view)
{
    cJSON *array = cJSON_AddArrayToObject(object, "jobs");

    for (uint32_t i = 0; i < view->cluster->job_count; i++) {
        const struct cluster_job *job = &view->cluster->jobs[i];
        cJSON *item = cJSON_CreateObject();

        output_add_job(item, &job->part);
        add_gauge(item, "steps_per_s", job->steps_per_s);
        (void)cJSON_AddItemToArray(array, item);
    }
}

void top_json_write(const struct top_view *view, struct buf *out)
{
    cJSON *object = object_new();

    (void)cJSON_AddStringToObject(object, "type", "top");
    add_time(object, "at", view->cluster->wall_ms);
    add_jobs(object, view);
    add_nodes(object, view);
    object_print(object, out);
}
