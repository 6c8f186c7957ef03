/* What an earlier launcherd has left (node_adopt.h), read by a thread (file_work.h) before the loop runs. */
#ifndef LAUNCHERD_NODE_ADOPT_FILES_H
#define LAUNCHERD_NODE_ADOPT_FILES_H

#include <limits.h>
#include <stdbool.h>

#include "common/arena.h"
#include "common/msg.h"
#include "common/io/file_work.h"
#include "launcherd/process/lease_page.h"
#include "launcherd/process/rundir.h"

/* A run directory with its order. */
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
};

struct adopt_files {
    struct file_work work;
    void *owner; /* for the loop */
    char state_dir[PATH_MAX], boot_id[64];
    struct adopt_found *first; /* result; owned, in the order of the folder */
};

/* NULL: no memory. */
struct adopt_files *adopt_files_new(const char *state_dir, const char *boot_id, void *owner);
/* `run`: reads all run directories. Kills what runs without an order that can be read, and what is left of warm
 * processes. */
void adopt_files_read(struct file_work *work);
void adopt_found_free(struct adopt_found *first);

#endif
