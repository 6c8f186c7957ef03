/* Clusters for tests: one in which every name is HTML markup and everything that can be unknown is
 * unknown, and one with many nodes. */
#ifndef TESTS_UNIT_DDPCTL_CLUSTER_TOOLS_H
#define TESTS_UNIT_DDPCTL_CLUSTER_TOOLS_H

#include "ddpctl/http_metrics.h"

#define SECOND_US 1000000ull

struct fixture {
    struct cluster cluster;
    struct gauges_table gauges;
    struct http_view view;
};

void fixture_open(struct fixture *fixture);
void fixture_close(struct fixture *fixture);
/* node0000, node0001, ... of eight free slots. */
void add_many_nodes(struct cluster *cluster, uint32_t count);

#endif
