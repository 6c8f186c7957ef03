/* Clusters for tests: one with a name that is markup wherever one may stand, and all that can be unknown; and one with
 * many nodes. */
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
