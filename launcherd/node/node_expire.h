/* Removes the logs of jobs that ended long ago (--keep-logs), from time to time, on a thread of
 * libuv. A folder of logs is removed when no shim of its job is known here and nothing in it was
 * written for that long. The end of a shim counts as a write (node_expire_touch). */
#ifndef LAUNCHERD_NODE_NODE_EXPIRE_H
#define LAUNCHERD_NODE_NODE_EXPIRE_H

#include <stdatomic.h>
#include <uv.h>

#include "launcherd/node/node_host.h"
#include "launcherd/process/log_folders.h"

struct node_expire {
    const struct node_host *host;
    uv_timer_t timer;
    uv_work_t work;
    bool is_working;
    atomic_bool is_stopping;
    struct log_folders folders; /* the thread's, while it runs */
    /* The current run of the thread. */
    struct log_folder_name used[SHIMS_PER_NODE_MAX]; /* [used_count]: jobs with a shim here */
    uint32_t used_count, removed;
};

void node_expire_open(struct node_expire *expire, const struct node_host *host);
/* Closes; the loop ends when the thread has stopped. */
void node_expire_close(struct node_expire *expire);
/* Counts the age of a job's logs from now on. */
void node_expire_touch(const struct node_host *host, const char *cluster, uint64_t job_id);

#endif
