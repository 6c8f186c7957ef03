/* What a shim writes about itself into its run directory, and the threads that touch its disks later. */
#ifndef LAUNCHERD_SHIM_SHIM_SELF_H
#define LAUNCHERD_SHIM_SHIM_SELF_H

#include <uv.h>

#include "common/msg.h"
#include "common/io/file_work.h"
#include "launcherd/process/rundir.h"
#include "launcherd/shim/warm_workers.h"

/* `cgroup_base`: the folder in which it makes its cgroup; empty: it has none. With warm workers it keeps their token,
 * and their cgroup, which is set in `warm`. Reads the run directory, so only before the loop runs. */
void shim_self_describe(struct rundir_shim *self, const char *run_dir,
                        const struct msg_start *start, const char *cgroup_base,
                        struct warm_workers *warm);

/* Opens the threads for the shim's files. `log_dir`: of the job. */
enum status shim_self_files(struct file_works **files, uv_loop_t *loop, const char *run_dir,
                            const char *log_dir, struct err *err);

#endif
