#include "ddpctl/top_order.h"

#include <stdlib.h>
#include <string.h>

struct ordering {
    const struct cluster *cluster;
    uint32_t sort;
};

static double progress_of(const struct part_job *job)
{
    return job->steps > 0 ? (double)job->step / (double)job->steps : -1;
}

/* Jobs that have slots come before jobs that wait; then by the chosen sort; then by job number. */
static int compare_jobs(const void *a, const void *b, void *context)
{
    const struct ordering *ordering = context;
    const struct part_job *x = &ordering->cluster->jobs[*(const uint32_t *)a].part;
    const struct part_job *y = &ordering->cluster->jobs[*(const uint32_t *)b].part;
    int order = (x->state == JOB_QUEUED) - (y->state == JOB_QUEUED);

    if (order == 0 && ordering->sort == TOP_BY_PROGRESS)
        order = (progress_of(x) < progress_of(y)) - (progress_of(x) > progress_of(y));
    else if (order == 0 && ordering->sort == TOP_BY_RATE)
        order = (x->samples_per_s < y->samples_per_s) - (x->samples_per_s > y->samples_per_s);
    else if (order == 0 && ordering->sort == TOP_BY_USER)
        order = strcmp(x->user, y->user);
    return order != 0 ? order : (x->job_id > y->job_id) - (x->job_id < y->job_id);
}

/* How much a node needs an operator: first lost, then silent, then drained, then closed slots. */
static uint32_t trouble_of(const struct part_node *node)
{
    if (node->state == NODE_LOST)
        return 4000;
    if (node->state == NODE_SUSPECT)
        return 3000;
    return (node->drained ? 2000 : 0) + node->slots_closed;
}

static int compare_nodes(const void *a, const void *b, void *context)
{
    const struct ordering *ordering = context;
    const uint32_t *i = a, *k = b;
    const struct part_node *x = &ordering->cluster->nodes[*i].part;
    const struct part_node *y = &ordering->cluster->nodes[*k].part;
    int order = 0;

    if (ordering->sort == TOP_BY_FREE)
        order = (x->slots_free < y->slots_free) - (x->slots_free > y->slots_free);
    else if (ordering->sort == TOP_BY_TROUBLE)
        order = (trouble_of(x) < trouble_of(y)) - (trouble_of(x) > trouble_of(y));
    return order != 0 ? order : (*i > *k) - (*i < *k); /* the server's order: node2, node10 */
}

uint32_t *top_order_new(const struct cluster *cluster, enum top_pane pane, uint32_t sort)
{
    struct ordering ordering = {.cluster = cluster, .sort = sort};
    uint32_t count = pane == TOP_JOBS ? cluster->job_count : cluster->node_count;
    uint32_t *order = calloc(count + 1u, sizeof *order);

    if (order == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    qsort_r(order, count, sizeof *order, pane == TOP_JOBS ? compare_jobs : compare_nodes,
            &ordering);
    return order;
}
