/* A snapshot of the cluster: the server's lists of jobs and nodes, and the nodes' gauges. `top`
 * draws it, `http` serves it. Filled page by page from the server's answers. Pure, apart from the
 * heap. */
#ifndef DDPCTL_CLUSTER_H
#define DDPCTL_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/msg.h"
#include "ddpctl/node_gauges.h"

struct cluster_job {
    struct part_job part;
    uint64_t step_us;   /* when this step was first seen; our boot clock */
    double steps_per_s; /* recently; NaN: not known */
};

struct cluster_node {
    struct part_node part;
    const struct part_slot *closed; /* [closed_count] */
    uint32_t closed_count;
};

/* The last gauges of a node. They outlive snapshots. */
struct gauges_row {
    char node[NODE_NAME_BYTES_MAX];
    uint64_t read_us;  /* 0: never; our boot clock */
    uint64_t asked_us; /* 0: no question is pending */
    uint64_t tried_us; /* when it was last asked */
    bool is_known;
    struct node_gauges gauges;
    char problem[REASON_BYTES_MAX]; /* why the last question failed; empty: it did not */
};
struct gauges_table {
    struct gauges_row *rows; /* [count], in the order of strcmp, owned */
    uint32_t count;
};

/* What the server reports about itself. */
struct cluster_server {
    char version[32];
    bool is_known;
    struct msg_server_info info; /* its `version` is not kept */
};

struct cluster {
    struct arena arena;         /* texts and closed slots */
    struct cluster_job *jobs;   /* [job_count] waiting and running ones, by id; owned */
    struct cluster_job *newest; /* [newest_count] the newest ones, also ended, by id; owned */
    struct cluster_node *nodes; /* [node_count] as the server lists them, also lost ones; owned */
    uint32_t job_count, job_capacity, newest_count, newest_capacity, node_count, node_capacity;
    uint32_t jobs_by_state[JOB_CANCELLED + 1]; /* how many of `jobs` are in each state */
    struct cluster_server server;
    uint64_t taken_us; /* when it was complete; our boot clock */
    int64_t wall_ms;   /* the same by the wall clock */
};

/* Add a page of an answer. False: no memory. `before`: the previous snapshot, for values over time;
 * may be NULL. */
bool cluster_add_jobs(struct cluster *cluster, const struct msg_jobs *jobs,
                      const struct cluster *before, uint64_t now_us);
bool cluster_add_newest(struct cluster *cluster, const struct msg_jobs *jobs);
bool cluster_add_nodes(struct cluster *cluster, const struct msg_nodes *nodes);
void cluster_free(struct cluster *cluster);

/* Sums over the nodes that are up. */
struct cluster_sums {
    uint32_t up, slots, free_slots;
};
struct cluster_sums cluster_sums(const struct cluster *cluster);
/* NULL: no such waiting or running job. */
const struct cluster_job *cluster_find_job(const struct cluster *cluster, uint64_t job_id);

/* Adds and removes rows so that the table has exactly the snapshot's nodes. False: no memory, and
 * the table is unchanged. */
bool gauges_table_fit(struct gauges_table *table, const struct cluster *cluster);
/* NULL: there is no such node. */
struct gauges_row *gauges_table_find(const struct gauges_table *table, const char *node);
void gauges_table_free(struct gauges_table *table);

#endif
