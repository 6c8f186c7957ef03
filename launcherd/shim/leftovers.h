/* Processes that ended workers leave behind, such as DataLoader workers, a forked logger or a
 * daemon: names them in the log of their rank and in the shim's log. worker_signal.h signals them. Part of shim_workers. */
#ifndef LAUNCHERD_SHIM_LEFTOVERS_H
#define LAUNCHERD_SHIM_LEFTOVERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcherd/process/signal_tree.h"

#define LEFTOVERS_MAX 256u /* most processes that are looked at */
#define LEFTOVERS_LOOK_MS                                                                          \
    1000u /* until they are signalled without knowing of which rank they are */

struct environ_files;
struct shim_workers;

enum leftovers_fate {
    LEFTOVERS_SIGNALLED, /* all ranks exited 0: SIGTERM now, SIGKILL after the grace */
    LEFTOVERS_KILLED,    /* the grace is over: SIGKILL, also to workers that still run */
};

struct leftovers {
    struct environ_files *look; /* a thread looks of which ranks they are; NULL: none */
    enum leftovers_fate fate;
    void (*then)(struct shim_workers *workers); /* when they are named */
    int due;                                    /* the signal that they get then */
    struct signal_memory memory;                /* who has got which signal of the stop */
};

/* Writes into the logs which processes are left. True: it is done. False: a thread looks of which ranks they are, and `then`
 * follows, within LEFTOVERS_LOOK_MS, unless leftovers_forget comes first. */
bool leftovers_name(struct shim_workers *workers, enum leftovers_fate fate,
                    void (*then)(struct shim_workers *workers));
void leftovers_forget(struct shim_workers *workers);

#endif
