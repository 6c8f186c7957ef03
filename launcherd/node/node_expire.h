/* Removes the logs of jobs that ended long ago (--keep-logs), from time to time, on a thread
 * (expire_files.h). A folder of logs is removed when no shim of its job is known here and nothing in it was
 * written for that long. The end of a shim counts as a write (node_expire_touch). Once, soon after the start, it also removes the
 * cgroups that killed starts have left. */
#ifndef LAUNCHERD_NODE_NODE_EXPIRE_H
#define LAUNCHERD_NODE_NODE_EXPIRE_H

#include <uv.h>

#include "launcherd/node/node_host.h"
#include "launcherd/process/log_folders.h"

struct node_expire {
    const struct node_host *host;
    uv_timer_t timer, sweep_timer;
    uint64_t told[LOG_FOLDERS_TOLD_MAX]; /* of the last run (log_folders.h) */
    uint32_t told_count;
};

void node_expire_open(struct node_expire *expire, const struct node_host *host);
/* No removal begins after this. */
void node_expire_close(struct node_expire *expire);
/* Counts the age of a job's logs from now on. */
void node_expire_touch(const struct node_host *host, const char *cluster, uint64_t job_id,
                       int64_t submitted_ms);

#endif
