/* Processes that ended workers leave behind, such as DataLoader workers, a forked logger or a
 * daemon. Signals them, and names them in the log of their rank and in the shim's log. Part of
 * shim_workers. */
#ifndef LAUNCHERD_SHIM_LEFTOVERS_H
#define LAUNCHERD_SHIM_LEFTOVERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LEFTOVERS_MAX 256u /* most processes that are looked at, or remembered as signalled */
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
    int signal;                                 /* the signal that they got */
    uint32_t count;
    struct {
        pid_t pid;
        uint64_t start_ticks;
    } signalled[LEFTOVERS_MAX];
};

/* Call when no worker runs. Sends the signal to each process that is left, except to those that
 * already got it, here or with the process group of their worker. `is_told`: first names all of
 * them in the logs, which may take LEFTOVERS_LOOK_MS. */
void leftovers_signal(struct shim_workers *workers, int signal, bool is_told);
/* Writes into the logs which processes are left. True: it is done. False: a thread looks of which ranks they are, and `then`
 * follows, within LEFTOVERS_LOOK_MS, unless leftovers_forget comes first. */
bool leftovers_name(struct shim_workers *workers, enum leftovers_fate fate,
                    void (*then)(struct shim_workers *workers));
void leftovers_forget(struct shim_workers *workers);

#endif
