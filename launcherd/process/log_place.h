/* Which folder has the logs of a job. Its name carries the job's time of submission, so that the logs of one job are
 * never shown for another that got the same number: from a state that was put back, for example.
 *
 * Folders of release 0.1.0 are named without the time. Such a folder counts as the job's if it was made after the job
 * was submitted: a job that got the number again was submitted later.
 *
 * In a folder that several launcherds may use (--log-dir), the name ends with the id of the one that made it. Earlier
 * releases left that out. */
#ifndef LAUNCHERD_PROCESS_LOG_PLACE_H
#define LAUNCHERD_PROCESS_LOG_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "launcherd/process/rundir.h"

#define LOG_PLACE_SLACK_MS 60000 /* by which the clocks of the server and the node may differ */

struct log_place {
    struct rundir_logs logs; /* borrowed */
    const char *cluster;     /* borrowed */
    uint64_t job_id;
    int64_t submitted_ms; /* by the server's wall clock; 0: an earlier server did not say it */
};

/* Finds the folder that has `name`. Without one `out` is where it would be. Waits for the disk. */
void log_place_find(char out[PATH_MAX], const struct log_place *folder, const char *name);

#endif
