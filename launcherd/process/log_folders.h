/* The folders of jobs' logs, LOGS/<cluster>-<job>-<submitted_ms>/ (rundir.h), and the removal of old ones. A folder is
 * ours if its name is of that form, it is no link, our user owns it and no other user may write in it.
 *
 * Several launcherds may use the same LOGS (--log-dir). Then each has its id at the end of its folders' names, and touches
 * those of jobs that it knows each time that it looks for old ones, at least once an hour. So a folder of another, or one
 * that an earlier release made and which may be of any of them, is nobody's when nothing has changed in it for
 * LOG_FOLDERS_FOREIGN_US: a job cannot run longer without its launcherd than its lease.
 *
 * What launcherd makes in it has known names; two folders of them are of the job's user, with all
 * that the user has put there. A folder with anything else in it stays as it is. */
#ifndef LAUNCHERD_PROCESS_LOG_FOLDERS_H
#define LAUNCHERD_PROCESS_LOG_FOLDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "launcherd/process/rundir.h"

#define LOG_FOLDERS_TOLD_MAX 64u
#define LOG_FOLDERS_FOREIGN_US (30ull * 24 * 3600 * 1000000)

/* "<cluster>-<job>-<submitted_ms>.<owner>", the name of a folder of logs; release 0.1.0 left the time out. */
struct log_folder_name {
    char cluster[33];
    char owner[RUNDIR_OWNER_CHARS + 1]; /* "": none */
    uint64_t job_id;
};

struct log_folders {
    struct rundir_logs logs;
    uint64_t keep_us;
    /* Jobs whose logs stay. */
    bool (*is_used)(void *owner, const struct log_folder_name *name);
    bool (*is_stopping)(void *owner);
    void *owner;
    /* Hashes of what was left alone and has had its log line. */
    uint64_t told[LOG_FOLDERS_TOLD_MAX];
    uint32_t told_count;
};

/* Parses "<cluster>-<job>-<submitted_ms>.<owner>", or without the time or the owner, with `suffix` after it, as rendezvous
 * names clusters and jobs. */
bool log_folder_parse(const char *text, const char *suffix, struct log_folder_name *name);
/* Removes the folders of ours in which nothing was written for `keep_us`. Returns how many. What is
 * left alone has one log line, in the first of many calls. Blocks. */
uint32_t log_folders_expire(struct log_folders *folders);

#endif
