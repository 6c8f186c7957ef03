/* What shims need of the file system, as work for threads (file_work.h). shim_files.c has the thread's side: it
 * touches files and nothing of the loop. */
#ifndef LAUNCHERD_NODE_SHIM_FILES_H
#define LAUNCHERD_NODE_SHIM_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/msg.h"
#include "common/status.h"
#include "common/io/file_work.h"
#include "launcherd/node/child_files.h"
#include "launcherd/process/rundir.h"

struct node_shims;

/* A shim that is to be started: its folders and files, and its process. */
struct start_files {
    struct file_work work;
    struct node_shims *shims; /* this and the next two are for the loop */
    uint64_t job_id;
    uint32_t generation;
    char log_dir[PATH_MAX], log[PATH_MAX], dir[PATH_MAX], state_dir[PATH_MAX];
    char warm[PATH_MAX]; /* folder of a warm process, whose shim.json is moved; empty: none */
    mode_t log_mode;
    char *cwd;                /* owned */
    struct buf frame;         /* start.msg */
    struct child_order order; /* its process; no child: it is not started by this work */
    /* Results. */
    enum status status;
    struct err err;
    int log_fd; /* owned; -1: none */
    bool has_moved;
    bool has_child; /* the process runs */
    int link_fd;    /* the connection to it; owned; -1: none */
};

/* `start` NULL: without an order. Returns NULL: no memory. */
struct start_files *start_files_new(const struct msg_start *start);
/* `run`: makes all of it, then starts the process unless a warm one may take the order. */
void start_files_make(struct file_work *work);
/* `run`: gives the description back to the warm process if it was moved, and starts another one. */
void start_files_start(struct file_work *work);
void start_files_drop(struct file_work *work);

/* A run directory: its order, or what an ended shim has left there. */
struct shim_files {
    struct file_work work;
    struct node_shims *shims;
    uint64_t job_id;
    uint32_t generation;
    char dir[PATH_MAX];
    char log_dir[PATH_MAX]; /* shim_files_touch */
    /* Results. */
    struct arena arena;
    struct msg msg; /* the order, or the last report; of the arena */
    bool has_msg;
    bool is_unknown; /* a file is there, and cannot be read now */
    struct err err;  /* why there is no order */
    uint32_t found;  /* processes that were left, and were killed; a cgroup counts as one */
};

/* NULL: no memory. `drop` is set. */
struct shim_files *shim_files_new(const char *dir);
/* `run`: reads the order, and removes the cgroup of the process that had it. */
void shim_files_read_order(struct file_work *work);
/* `run`: reads the last report; without one, kills what is left of the shim's processes. */
void shim_files_sweep(struct file_work *work);
/* `run`: removes the directory and the cgroup that its shim.json names. */
void shim_files_remove(struct file_work *work);
/* `run`: counts the age of the job's logs from now on (node_expire.h). */
void shim_files_touch(struct file_work *work);

/* Kills the workers of a shim and all that they started, as described by its shim.json. Returns how
 * many were found; a cgroup counts as one. For threads. */
uint32_t shim_files_kill(const struct rundir_shim *process);

/* A unix socket, by its path. */
struct connect_files {
    struct file_work work;
    struct node_shims *shims;
    uint64_t job_id;
    uint32_t generation;
    char address[PATH_MAX + 16];
    enum status status;
    struct err err;
    int fd; /* owned; -1: none */
};

struct connect_files *connect_files_new(void);
/* `run`. */
void connect_files_open(struct file_work *work);

#endif
