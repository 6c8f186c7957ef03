/* Processes that wait on a spare node for their ranks. `launcherd --warm` starts the workers of a job
 * without a place in it: they load what they need and wait (worker/warm.h). When the node gets the start order of
 * that job, this process becomes its shim, by executing `launcherd --shim` itself: so its pid stays, the workers
 * stay its children, and the shim is one like any other from its first line on. It finds them in WARM_VARIABLE
 * (warm_workers.h).
 *
 *   shim.json        in the directory of SHIM_ARG_RUN_DIR (rundir.h): what it writes about itself before it starts
 *                    a worker. So whatever kills it, launcherd or the next one finds what is left, by the token in
 *                    the environment and by the cgroup, which becomes that of the shim
 *   stdin            the order, msg warm, as a frame
 *   SPAWN_EXTRA_FD   the link to launcherd. To it: WARM_IS_READY, once all workers wait. From it: the start, as
 *                    warm_order_build makes it. When it closes, the workers are killed, and this process ends
 *
 * It also ends when one of the workers does: then there is nothing to be had from the others. */
#ifndef LAUNCHERD_SHIM_WARM_MAIN_H
#define LAUNCHERD_SHIM_WARM_MAIN_H

#define WARM_ARGUMENT "--warm"
#define WARM_IS_READY 'r'

/* `arguments`: [SHIM_ARG_COUNT]. The run directory is rundir_warm_path. */
int warm_main(char *const *arguments);

#endif
