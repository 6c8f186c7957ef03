/* The rows of `ddpctl top`: a job, a node, a rank, a slot, and their headings. Pure. */
#ifndef DDPCTL_TOP_ROWS_H
#define DDPCTL_TOP_ROWS_H

#include "ddpctl/top_lines.h"
#include "ddpctl/top_view.h"

void top_row_sentence(struct top_lines *lines, const char *style, const char *text);

void top_row_jobs_head(struct top_lines *lines);
void top_row_job(struct top_lines *lines, const struct top_view *view,
                 const struct cluster_job *job, bool is_chosen);
void top_row_nodes_head(struct top_lines *lines);
void top_row_node(struct top_lines *lines, const struct top_view *view,
                  const struct cluster_node *node, bool is_chosen);
/* Three lines about view->job. */
void top_row_job_facts(const struct top_view *view, struct top_lines *lines);
void top_row_ranks_head(struct top_lines *lines);
void top_row_rank(struct top_lines *lines, const struct top_view *view,
                  const struct part_job_rank *rank, bool is_chosen);
void top_row_slots_head(struct top_lines *lines);
void top_row_slot(struct top_lines *lines, const struct top_view *view,
                  const struct slot_gauges *slot, bool is_chosen);

/* NULL: the node has sent none yet. */
const struct node_gauges *top_gauges(const struct top_view *view, const char *node);

#endif
