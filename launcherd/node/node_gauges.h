/* The gauges of this node (launcherd/gpu/gauges.h), for clients that look at the cluster. A thread of
 * libuv's pool reads them, one reading at a time; whoever asks meanwhile gets the same one. What was read
 * less than a second ago is given again, so many readers cost what one costs. */
#ifndef LAUNCHERD_NODE_NODE_GAUGES_H
#define LAUNCHERD_NODE_NODE_GAUGES_H

#include "launcherd/gpu/gauges.h"
#include "launcherd/gpu/gpu_watch.h"
#include "launcherd/node/node_host.h"

enum { NODE_GAUGES_WAITS_MAX = 64 };

struct node_gauges {
    const struct node_host *host;
    struct gpu_watch *watch; /* borrowed; NULL: none */
    /* `json` is borrowed for the call. `problem` not empty: why there is none. */
    void (*on_answer)(void *owner, uint64_t request_id, const struct buf *json,
                      const char *problem);
    void *owner;
    uv_work_t work;
    uv_timer_t timer;     /* while a reading goes on */
    bool is_busy, closed; /* a reading goes on; node_gauges_close was called */
    uint32_t wait_count;
    uint64_t waits[NODE_GAUGES_WAITS_MAX]; /* request ids */
    struct gauges reading;                 /* the thread's while is_busy */
    struct cpu_times times;                /* likewise */
    struct buf made;                       /* likewise */
    uint64_t read_us;                      /* when `made` was made; 0: there is none */
};

void node_gauges_open(struct node_gauges *gauges, const struct node_host *host,
                      struct gpu_watch *watch);
/* on_answer follows, perhaps within this call; not after node_gauges_close. */
void node_gauges_read(struct node_gauges *gauges, uint64_t request_id);
void node_gauges_close(struct node_gauges *gauges);
/* After the loop has run out. */
void node_gauges_free(struct node_gauges *gauges);

#endif
