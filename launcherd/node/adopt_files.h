/* What an earlier launcherd has left (node_adopt.h), read by a thread (file_work.h) before the loop runs. */
#ifndef LAUNCHERD_NODE_ADOPT_FILES_H
#define LAUNCHERD_NODE_ADOPT_FILES_H

#include <limits.h>
#include <stdbool.h>

#include "common/arena.h"
#include "common/msg.h"
#include "common/io/file_work.h"
#include "launcherd/core/launcher.h"
#include "launcherd/process/lease_page.h"
#include "launcherd/process/rundir.h"

/* A run directory with its order, or one that is unseen: only its job, generation and cluster are known then. */
struct adopt_found {
    struct adopt_found *next;
    char dir[PATH_MAX];
    struct arena arena;
    struct msg start, end; /* of the arena */
    struct rundir_shim process;
    bool has_process, same_boot; /* shim.json describes a process, of this boot */
    bool has_end;
    uint64_t age_us;         /* since something was last made in it; 0: not known */
    bool lives;              /* its process was there */
    struct lease_page *page; /* of that process; owned; NULL: it has none that can be read */
    bool is_warm;            /* that process had not become a shim: its start order was not taken */
    bool is_restored;        /* the directory was gone, and was made anew from the record */
    bool has_ns_ended;       /* with the launcherd that was its first process */
    bool is_unseen;          /* nobody here can know whether its processes run */
};

struct adopt_files {
    struct file_work work;
    void *owner; /* for the loop */
    char state_dir[PATH_MAX], boot_id[64], machine_id[IDENTITY_BYTES_MAX],
        state_id[IDENTITY_BYTES_MAX], pid_ns[32];
    char ended_ns
        [128]; /* the boot and the pid namespace that ended with the launcherd before; empty: none */
    bool is_restoring;
    bool is_new; /* no shim can have been started with this state directory (node_host.h) */
    /* Results. */
    struct adopt_found *first; /* owned, in the order of the folder */
    enum status status;        /* not OK: what is there cannot be read, and `err` says why */
    struct err err;
};

/* Of the options the ids of boot, machine and state directory. NULL: no memory. */
struct adopt_files *adopt_files_new(const char *state_dir, const struct launcher_options *options,
                                    void *owner);
/* `run`: reads all run directories, and makes those anew that are in the record (process/part_record.h) and are gone.
 * Kills what runs without an order that can be read or without its directory, and what is left of warm processes. A shim
 * that says it was started with this state directory, and that no file here names, is killed, too, and listed: the directory
 * may have been put back in place from an older copy, which a server takes for the one that knows all of its parts. */
void adopt_files_read(struct file_work *work);
void adopt_found_free(struct adopt_found *first);

#endif
