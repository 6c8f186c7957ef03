/* Warm workers: processes that wait on a spare node for their ranks. `launcherd --warm` starts the
 * workers of a job before they have ranks; they load what they need and wait (worker/warm.h). When
 * the node gets the start order of that job, this process becomes the job's shim: it executes
 * `launcherd --shim`. Its pid stays the same, and the workers stay its children. The shim finds
 * them in WARM_VARIABLE (warm_workers.h); otherwise it is like any other shim.
 *
 *   shim.json        in the directory SHIM_ARG_RUN_DIR (rundir.h): describes this process. Written
 *                    before the first worker is started, so that launcherd, or the next one, can
 *                    find what is left if this process is killed: by the token in the environment,
 *                    and by the cgroup, which becomes that of the shim
 *   stdin            the order, msg warm, as a frame
 *   SPAWN_EXTRA_FD   the connection to launcherd. This process writes WARM_IS_READY once all
 *                    workers wait, and reads the start, as warm_order_build makes it. If launcherd
 *                    closes the connection, this process kills the workers and ends
 *
 * This process also ends when one of the workers ends, because the others are then useless. */
#ifndef LAUNCHERD_SHIM_WARM_MAIN_H
#define LAUNCHERD_SHIM_WARM_MAIN_H

#define WARM_ARGUMENT "--warm"
#define WARM_IS_READY 'r'

/* `arguments`: [SHIM_ARG_COUNT]; the run directory is rundir_warm_path. Returns the exit code, or
 * executes the shim. */
int warm_main(char *const *arguments);

#endif
