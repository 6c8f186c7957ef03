/* Parts of node_warm.h: the processes of one job, and their start. */
#ifndef LAUNCHERD_NODE_NODE_WARM_JOB_H
#define LAUNCHERD_NODE_NODE_WARM_JOB_H

#include <limits.h>

#include "common/arena.h"
#include "common/io/file_work.h"
#include "launcherd/node/node_warm.h"
#include "launcherd/node/warm_files.h"

#define WARM_LOG "warm.log"

struct node_warm_job {
    struct node_warm *warm;
    struct node_warm_job *next;
    enum warm_state state;
    pid_t pid;                /* 0: none, or reaped */
    struct node_child *child; /* its process, until `pid` is known or it is over; NULL: none */
    bool has_left;            /* reaped, and processes that it started may still be there */
    bool is_taken;            /* a start order is about to take it (node_warm_reserve) */
    struct file_work *making, *sweeping; /* on threads; NULL: none */
    int stdin_fd;                        /* before `making`; else -1 */
    int link;                            /* -1: closed */
    uv_poll_t poll;
    bool poll_open, removed;
    struct arena arena;
    struct msg order; /* warm */
};

struct log_about node_warm_about(const struct node_warm_job *job);
/* Its folder. */
void node_warm_dir(const struct node_warm_job *job, char out[PATH_MAX]);
/* Work on its files, in this lane. NULL: no memory. */
struct warm_files *node_warm_files(const struct node_warm_job *job, enum file_lane lane);

/* No process is started any more. True: none is left; else node_warm_check_children will tell. */
bool node_warm_stop_start(struct node_warm_job *job);

/* Keeps the order, also as a file in memory, the process's stdin. False: failed. */
bool node_warm_take_order(struct node_warm_job *job, const struct msg_warm *order);
/* A thread makes its folders and starts its process. */
void node_warm_start(struct node_warm_job *job);

#endif
