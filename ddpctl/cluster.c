#include "ddpctl/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE_NEW 0.3 /* weight of the newest steps in the rate */

static const char *keep(struct arena *arena, const char *text)
{
    return arena_text(arena, text, strlen(text));
}

/* Makes room for one more item. NULL: no memory. */
static void *grow(void *items, uint32_t count, uint32_t *capacity, size_t item_bytes)
{
    uint32_t wanted = *capacity > 0 ? *capacity * 2 : 64;
    void *grown = items;

    if (count < *capacity)
        return items;
    grown = realloc(items, wanted * item_bytes);
    if (grown != NULL)
        *capacity = wanted;
    return grown;
}

static bool keep_job(struct arena *arena, const struct part_job *job, struct cluster_job *kept)
{
    *kept = (struct cluster_job){.part = *job, .steps_per_s = NAN};
    kept->part.name = keep(arena, job->name);
    kept->part.user = keep(arena, job->user);
    kept->part.where = keep(arena, job->where);
    kept->part.reason = keep(arena, job->reason);
    kept->part.straggler = keep(arena, job->straggler);
    return kept->part.name != NULL && kept->part.user != NULL && kept->part.where != NULL &&
           kept->part.reason != NULL && kept->part.straggler != NULL;
}

/* Sets step_us, the time when this step was first seen, and the rate of steps. In a new generation
 * both start anew. */
static void take_pace(struct cluster_job *job, const struct cluster_job *before, uint64_t now_us)
{
    double rate;

    job->step_us = now_us;
    if (before == NULL || before->part.generation != job->part.generation ||
        before->part.step > job->part.step)
        return;
    job->steps_per_s = before->steps_per_s;
    if (before->part.step == job->part.step) {
        job->step_us = before->step_us;
        return;
    }
    if (before->part.step == 0 || now_us <= before->step_us)
        return;
    rate = (double)(job->part.step - before->part.step) * 1e6 / (double)(now_us - before->step_us);
    job->steps_per_s =
        isnan(before->steps_per_s) ? rate : before->steps_per_s * (1 - RATE_NEW) + rate * RATE_NEW;
}

bool cluster_add_jobs(struct cluster *cluster, const struct msg_jobs *jobs,
                      const struct cluster *before, uint64_t now_us)
{
    for (uint32_t i = 0; i < jobs->jobs.count; i++) {
        const struct part_job *job = &jobs->jobs.items[i];
        struct cluster_job *grown;

        if (cluster->job_count > 0 &&
            job->job_id <= cluster->jobs[cluster->job_count - 1].part.job_id)
            continue;
        grown = grow(cluster->jobs, cluster->job_count, &cluster->job_capacity, sizeof *grown);
        if (grown == NULL)
            return false;
        cluster->jobs = grown;
        if (!keep_job(&cluster->arena, job, &grown[cluster->job_count]))
            return false;
        take_pace(&grown[cluster->job_count],
                  before != NULL ? cluster_find_job(before, job->job_id) : NULL, now_us);
        cluster->jobs_by_state[job->state]++;
        cluster->job_count++;
    }
    return true;
}

bool cluster_add_newest(struct cluster *cluster, const struct msg_jobs *jobs)
{
    for (uint32_t i = 0; i < jobs->jobs.count; i++) {
        struct cluster_job *grown =
            grow(cluster->newest, cluster->newest_count, &cluster->newest_capacity, sizeof *grown);

        if (grown == NULL)
            return false;
        cluster->newest = grown;
        if (!keep_job(&cluster->arena, &jobs->jobs.items[i], &grown[cluster->newest_count]))
            return false;
        cluster->newest_count++;
    }
    return true;
}

static bool keep_node(struct arena *arena, const struct part_node *node, struct cluster_node *kept)
{
    *kept = (struct cluster_node){.part = *node};
    kept->part.name = keep(arena, node->name);
    kept->part.address = keep(arena, node->address);
    kept->part.drain_reason = keep(arena, node->drain_reason);
    kept->part.drained_by = keep(arena, node->drained_by);
    kept->part.version = keep(arena, node->version);
    kept->part.notice = keep(arena, node->notice);
    return kept->part.name != NULL && kept->part.address != NULL &&
           kept->part.drain_reason != NULL && kept->part.drained_by != NULL &&
           kept->part.version != NULL && kept->part.notice != NULL;
}

/* Copies the closed slots of `node` from the answer, which lists slots in the nodes' order. */
static bool keep_closed(struct arena *arena, const struct msg_nodes *nodes,
                        struct cluster_node *node)
{
    struct part_slot *kept;
    uint32_t count = 0;

    for (uint32_t i = 0; i < nodes->slots.count; i++)
        count += strcmp(nodes->slots.items[i].node, node->part.name) == 0;
    kept = arena_alloc(arena, (count + 1) * sizeof *kept);
    if (kept == NULL)
        return false;
    node->closed = kept;
    for (uint32_t i = 0; i < nodes->slots.count; i++) {
        const struct part_slot *slot = &nodes->slots.items[i];

        if (strcmp(slot->node, node->part.name) != 0)
            continue;
        kept[node->closed_count] = *slot;
        kept[node->closed_count].node = node->part.name;
        kept[node->closed_count].reason = keep(arena, slot->reason);
        kept[node->closed_count].drained_by = keep(arena, slot->drained_by);
        if (kept[node->closed_count].reason == NULL || kept[node->closed_count].drained_by == NULL)
            return false;
        node->closed_count++;
    }
    return true;
}

bool cluster_add_nodes(struct cluster *cluster, const struct msg_nodes *nodes)
{
    for (uint32_t i = 0; i < nodes->nodes.count; i++) {
        const struct part_node *node = &nodes->nodes.items[i];
        struct cluster_node *grown;

        grown = grow(cluster->nodes, cluster->node_count, &cluster->node_capacity, sizeof *grown);
        if (grown == NULL)
            return false;
        cluster->nodes = grown;
        grown += cluster->node_count;
        if (!keep_node(&cluster->arena, node, grown) || !keep_closed(&cluster->arena, nodes, grown))
            return false;
        cluster->node_count++;
    }
    return true;
}

void cluster_free(struct cluster *cluster)
{
    arena_reset(&cluster->arena);
    free(cluster->jobs);
    free(cluster->newest);
    free(cluster->nodes);
    *cluster = (struct cluster){0};
}

const struct cluster_job *cluster_find_job(const struct cluster *cluster, uint64_t job_id)
{
    uint32_t low = 0, high = cluster->job_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (cluster->jobs[middle].part.job_id < job_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < cluster->job_count && cluster->jobs[low].part.job_id == job_id
               ? &cluster->jobs[low]
               : NULL;
}

static int by_row_name(const void *a, const void *b)
{
    return strcmp(((const struct gauges_row *)a)->node, ((const struct gauges_row *)b)->node);
}

/* The rows are sorted by strcmp for gauges_table_find. The server's order differs: it lists node2
 * before node10. */
bool gauges_table_fit(struct gauges_table *table, const struct cluster *cluster)
{
    struct gauges_row *rows = calloc(cluster->node_count + 1u, sizeof *rows);
    uint32_t at = 0;

    if (rows == NULL)
        return false;
    for (uint32_t i = 0; i < cluster->node_count; i++)
        memcpy(rows[i].node, cluster->nodes[i].part.name, strlen(cluster->nodes[i].part.name) + 1);
    qsort(rows, cluster->node_count, sizeof *rows, by_row_name);
    for (uint32_t i = 0; i < cluster->node_count; i++) {
        int order = -1;

        while (at < table->count && (order = strcmp(table->rows[at].node, rows[i].node)) < 0)
            node_gauges_free(&table->rows[at++].gauges);
        if (at < table->count && order == 0)
            rows[i] = table->rows[at++];
    }
    while (at < table->count)
        node_gauges_free(&table->rows[at++].gauges);
    free(table->rows);
    table->rows = rows;
    table->count = cluster->node_count;
    return true;
}

static int by_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct gauges_row *)row)->node);
}

struct gauges_row *gauges_table_find(const struct gauges_table *table, const char *node)
{
    return table->count > 0 ? bsearch(node, table->rows, table->count, sizeof *table->rows, by_name)
                            : NULL;
}

void gauges_table_free(struct gauges_table *table)
{
    for (uint32_t i = 0; i < table->count; i++)
        node_gauges_free(&table->rows[i].gauges);
    free(table->rows);
    *table = (struct gauges_table){0};
}

struct cluster_sums cluster_sums(const struct cluster *cluster)
{
    struct cluster_sums sums = {0};

    for (uint32_t i = 0; i < cluster->node_count; i++) {
        const struct part_node *node = &cluster->nodes[i].part;
        if (node->state != NODE_UP)
            continue;
        sums.up++;
        sums.slots += node->slots;
        sums.free_slots += node->slots_free;
    }
    return sums;
}
