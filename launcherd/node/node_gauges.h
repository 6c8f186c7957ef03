/* The gauges of this node (launcherd/gpu/gauges.h), for clients that watch the cluster. A thread
 * (gauges_files.h) reads them, one reading at a time; requests that come meanwhile share it. A reading
 * that is less than a second old is reused, so many readers cost no more than one. */
#ifndef LAUNCHERD_NODE_NODE_GAUGES_H
#define LAUNCHERD_NODE_NODE_GAUGES_H

#include "launcherd/gpu/gauges.h"
#include "launcherd/gpu/gpu_watch.h"
#include "launcherd/node/node_host.h"

enum { NODE_GAUGES_WAITS_MAX = 64 };

struct node_gauges {
    const struct node_host *host;
    struct gpu_watch *watch; /* borrowed; NULL: none */
    /* `json` is borrowed for the call. `problem` not empty: why there is no answer. */
    void (*on_answer)(void *owner, uint64_t request_id, const struct buf *json,
                      const char *problem);
    void *owner;
    bool is_busy, closed; /* a reading goes on; node_gauges_close was called */
    uint32_t wait_count;
    uint64_t waits[NODE_GAUGES_WAITS_MAX]; /* request ids */
    struct cpu_times times;                /* of the last reading */
    struct buf made;                       /* likewise */
    uint64_t read_us;                      /* when `made` was made; 0: never */
};

void node_gauges_open(struct node_gauges *gauges, const struct node_host *host,
                      struct gpu_watch *watch);
/* on_answer follows, possibly within this call, unless node_gauges_close is called first. */
void node_gauges_read(struct node_gauges *gauges, uint64_t request_id);
void node_gauges_close(struct node_gauges *gauges);
/* Call when the loop has ended. */
void node_gauges_free(struct node_gauges *gauges);

#endif
