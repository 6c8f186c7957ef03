/* What workers that have ended leave behind: DataLoader workers, a forked logger, a daemon. Signals it,
 * and names it in the log of its rank and in the shim's. Part of shim_workers. */
#ifndef LAUNCHERD_SHIM_LEFTOVERS_H
#define LAUNCHERD_SHIM_LEFTOVERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LEFTOVERS_MAX 256u /* that are remembered as signalled, and that are looked at */

struct leftovers {
    int signal; /* what they got */
    uint32_t count;
    struct {
        pid_t pid;
        uint64_t start_ticks;
    } signalled[LEFTOVERS_MAX];
};

enum leftovers_fate {
    LEFTOVERS_SIGNALLED, /* after success: they get the signal, and have a moment */
    LEFTOVERS_KILLED,    /* the grace is over; also workers that still run */
};

struct shim_workers;

/* No worker runs. Each process gets a signal once: not those that had it with the process group of their
 * worker. */
void leftovers_signal(struct shim_workers *workers, int signal, bool is_told);
/* Writes which processes are left into the logs. */
void leftovers_name(struct shim_workers *workers, enum leftovers_fate fate);

#endif
