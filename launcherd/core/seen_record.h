/* The newest job that this node was told to start, for each cluster that it has worked for, with that job's generation
 * and the lease that it has there.
 * A server whose state is older than that learns it from the hello. node/seen_files.h has the file format. */
#ifndef LAUNCHERD_CORE_SEEN_RECORD_H
#define LAUNCHERD_CORE_SEEN_RECORD_H

#include <stdint.h>

#include "common/msg.h"

struct seen_record {
    uint32_t count;
    struct seen_job {
        char cluster[33];
        uint64_t job_id;
        uint32_t generation;   /* the highest of that job */
        uint64_t lease_us;     /* that the cluster's server gave last; 0: not known */
    } jobs[CLUSTERS_SEEN_MAX]; /* the cluster of the newest order first; the last one is dropped */
};

#endif
