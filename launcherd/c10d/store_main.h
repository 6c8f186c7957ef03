/* The process `launcherd --store`: the c10d store of one generation. The shim of node rank 0 starts
 * it as the job's user. */
#ifndef LAUNCHERD_C10D_STORE_MAIN_H
#define LAUNCHERD_C10D_STORE_MAIN_H

#define STORE_ARGUMENT "--store"
#define STORE_LISTEN_FD 0 /* a bound TCP socket, for PyTorch's clients */
#define STORE_STATUS_FD                                                                            \
    3 /* a listening unix socket: each client gets c10d_status, then the connection closes */

/* `arguments`: its memory limit in bytes, then name and address of each node that may connect. Logs
 * to stderr. Runs until SIGTERM. Returns the exit code. */
int store_main(int count, char *const *arguments);

#endif
