/* The process `launcherd --store`: the c10d store of one generation, started by the shim of node rank 0 as the job's user. */
#ifndef LAUNCHERD_C10D_STORE_MAIN_H
#define LAUNCHERD_C10D_STORE_MAIN_H

#define STORE_ARGUMENT "--store"
#define STORE_LISTEN_FD 0 /* a bound TCP socket, for PyTorch's clients */
#define STORE_STATUS_FD                                                                            \
    3 /* a unix socket that listens: whoever connects gets c10d_status, and the end */

/* `arguments`: the memory that it may use, in bytes; then name and address of each node that may connect. Log lines go to
 * stderr. Runs until SIGTERM; returns the exit code. */
int store_main(int count, char *const *arguments);

#endif
