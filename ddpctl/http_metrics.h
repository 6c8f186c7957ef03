/* A snapshot as Prometheus' text format 0.0.4, or as OpenMetrics 1.0. Names follow
 * prometheus.io/docs/practices/naming. Pure, apart from the heap. */
#ifndef DDPCTL_HTTP_METRICS_H
#define DDPCTL_HTTP_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "ddpctl/cluster.h"

struct http_view {
    const struct cluster *cluster; /* taken_us 0: there is no snapshot yet */
    const struct gauges_table *gauges;
    uint64_t now_us;
    int64_t now_ms;
    const char *lost_why; /* empty: the server answers */
};

struct http_family {
    const char *name, *type, *help; /* counters end with _total */
};
extern const struct http_family http_families[];
extern const size_t http_family_count;

/* If the server does not answer, writes only ddp_up 0, because old values would look current. */
void http_metrics_write(const struct http_view *view, bool openmetrics, struct buf *out);

#endif
