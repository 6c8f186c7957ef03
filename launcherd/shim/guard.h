/* The guard of a shim: the process `launcherd --guard`, which launcherd starts when the ranks run. It ends the ranks when
 * their shim and launcherd cannot: both may be stopped, hang or be killed, and the server counts on the end of the lease.
 *
 *   the lease is over (lease_page.h) and the shim has not begun to act: all processes of the job are killed; the
 *     shim is left alone, and finds out when it goes on
 *   the shim was killed: what it left is killed
 *
 * It ends when the shim is gone and nothing is left. It neither reads nor writes a file after its start, except, after it
 * has killed, the log of the shim. Of several guards of one shim the first counts, until it ends (lease_page.h). launcherd
 * starts another one for it then (launcherd/node/node_guards.h). */
#ifndef LAUNCHERD_SHIM_GUARD_H
#define LAUNCHERD_SHIM_GUARD_H

#define GUARD_ARGUMENT "--guard"
/* The arguments after it, in this order. */
enum guard_argument {
    GUARD_ARG_RUN_DIR,
    GUARD_ARG_LOG, /* of the shim */
    GUARD_ARG_COUNT,
};

/* Runs until the guard exits, and returns the exit code. The page is SPAWN_EXTRA_FD. `arguments`: [GUARD_ARG_COUNT]. */
int guard_main(char *const *arguments);

#endif
