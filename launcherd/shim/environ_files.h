/* Whose process it is, by its environment, as work for a thread (files/file_work.h): that is memory of the process, and
 * the kernel lets nobody read it while the process changes its memory, which may hang. */
#ifndef LAUNCHERD_SHIM_ENVIRON_FILES_H
#define LAUNCHERD_SHIM_ENVIRON_FILES_H

#include <stdint.h>

#include "common/io/file_work.h"
#include "launcherd/process/proc.h"

#define ENVIRON_PROCESSES_MAX 256u
#define ENVIRON_UNKNOWN UINT32_MAX

struct shim_workers;

struct environ_files {
    struct file_work work;
    struct shim_workers *workers;    /* for the loop; NULL: it waits no more */
    uint32_t rank_base, local_count; /* of the shim */
    uint32_t count;
    struct proc_found found[ENVIRON_PROCESSES_MAX];
    uint32_t
        locals[ENVIRON_PROCESSES_MAX]; /* the local rank, or ENVIRON_UNKNOWN: to be looked at */
    /* Results, for those: what RANK says; 0: nothing about this shim. */
    uint32_t seen[ENVIRON_PROCESSES_MAX];
};

/* `run`. */
void environ_files_look(struct file_work *work);

#endif
