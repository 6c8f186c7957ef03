/* The cgroups (version 2) of jobs: one for the workers of each shim. With it the kernel kills all of them at once,
 * wherever they hide, and limits their memory. A shim and its launcherd stay outside.
 *
 * As root the groups are in /ddp of the hierarchy. Otherwise they are in launcherd's own group, where an ordinary
 * user may make groups if it was delegated (systemd: Delegate=yes). Root does not use launcherd's own group,
 * because only a group without processes can pass on controllers: systemd could not start the daemon there again
 * while jobs run. Files and rules: cgroups(7), and Documentation/admin-guide/cgroup-v2.rst of the kernel. */
#ifndef LAUNCHERD_PROCESS_CGROUP_H
#define LAUNCHERD_PROCESS_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

#define CGROUP_PIDS_MAX 32768u /* of one job on one node, threads included: stops a fork bomb */

#define CGROUP_RANKS "ranks" /* a group in that of a job, for its workers without the job's store */

struct cgroup_limits {
    uint64_t memory_bytes; /* 0: no limit */
    uint32_t pids;         /* 0: no limit */
};

/* Finds and makes the folder for groups, and enables the controllers `memory` and `pids` as far as
 * possible. On failure jobs run without groups; `err` says why. */
enum status cgroup_find_base(char base[PATH_MAX], struct err *err);
/* The first half of it: finds the folder. The paths are /proc/self/mountinfo and /proc/self/cgroup,
 * or test files. */
enum status cgroup_locate(const char *mountinfo, const char *self, bool is_root,
                          char parent[PATH_MAX], struct err *err);
/* Removes the empty groups that killed processes have left while they tried out `base`. Reads all names there, so it is no part
 * of a start. */
void cgroup_sweep(const char *base);
/* Whether groups below `base` have the controller. */
bool cgroup_has(const char *base, const char *controller);

/* Makes the group and sets its limits. Without the controller `pids` its limit is skipped; without
 * `memory` a memory limit is an error. */
enum status cgroup_make(const char *dir, const struct cgroup_limits *limits, struct err *err);
/* Only sets the limits: the folder exists. */
enum status cgroup_limit(const char *dir, const struct cgroup_limits *limits, struct err *err);
/* Kills every process in it, including those that fork at that moment. False: this kernel cannot do
 * that (before 5.14), or the group does not exist. */
bool cgroup_kill(const char *dir);
/* Whether a process in it is alive. False also if the group does not exist. */
bool cgroup_is_populated(const char *dir);
/* How many of its processes the kernel has killed because memory was short. */
uint64_t cgroup_oom_kills(const char *dir);
/* Removes it and its CGROUP_RANKS. Does nothing while a process in it is alive. */
void cgroup_remove(const char *dir);

/* "8G", "512M", "1.5T", or bytes, in powers of 1024. False: no size. */
bool cgroup_parse_size(const char *text, uint64_t *bytes);
/* "8 GiB" */
void cgroup_format_size(uint64_t bytes, char *out, uint32_t out_bytes);

#endif
