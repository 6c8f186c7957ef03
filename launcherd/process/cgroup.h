/* The cgroups (version 2) of jobs: one for the workers of each shim. The kernel then kills all of
 * them at once, whatever they did to hide, and can limit their memory. A shim and its launcherd
 * stay outside of it.
 *
 * As root the groups are in /ddp of the hierarchy, else in the launcherd's own group, where an
 * ordinary user may make groups if it was delegated (systemd: Delegate=yes). A daemon's own group
 * would not do for root: controllers can be given on only by a group without processes, so systemd
 * could not start the daemon there again while jobs run. Files and rules: cgroups(7), and
 * Documentation/admin-guide/cgroup-v2.rst of the kernel. */
#ifndef LAUNCHERD_PROCESS_CGROUP_H
#define LAUNCHERD_PROCESS_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

#define CGROUP_PIDS_MAX 32768u /* of one job on one node, threads too: ends a fork bomb */

#define CGROUP_RANKS "ranks" /* a group in that of a job, for its workers without the job's store */

struct cgroup_limits {
    uint64_t memory_bytes; /* 0: no limit */
    uint32_t pids;         /* 0: no limit */
};

/* Where groups can be made: writes the folder, makes it, and turns on the controllers `memory` and
 * `pids` as far as it goes. On failure jobs run without groups; `err` says why. */
enum status cgroup_find_base(char base[PATH_MAX], struct err *err);
/* The same, with the files of the kernel given: /proc/self/mountinfo and /proc/self/cgroup. */
enum status cgroup_locate(const char *mountinfo, const char *self, bool is_root,
                          char parent[PATH_MAX], struct err *err);
/* Whether groups below `base` have the controller. */
bool cgroup_has(const char *base, const char *controller);

/* Makes the group and sets its limits; without the controller `pids` its limit is left out, without
 * `memory` a limit of memory is an error. */
enum status cgroup_make(const char *dir, const struct cgroup_limits *limits, struct err *err);
/* The second half of cgroup_make: the folder is there. */
enum status cgroup_limit(const char *dir, const struct cgroup_limits *limits, struct err *err);
/* Kills every process in it, also those that fork meanwhile. False: this kernel cannot (before
 * 5.14), or there is no such group. */
bool cgroup_kill(const char *dir);
/* Some process in it lives. False also if there is no such group. */
bool cgroup_is_populated(const char *dir);
/* How many processes in it the kernel has killed for want of memory. */
uint64_t cgroup_oom_kills(const char *dir);
/* With the CGROUP_RANKS in it. Succeeds once no process in it lives; else it stays. */
void cgroup_remove(const char *dir);

/* "8G", "512M", "1.5T", or bytes, in powers of 1024. False: no size. */
bool cgroup_parse_size(const char *text, uint64_t *bytes);
/* "8 GiB" */
void cgroup_format_size(uint64_t bytes, char *out, uint32_t out_bytes);

#endif
