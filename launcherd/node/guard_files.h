/* Finds the page of a shim's lease (process/lease_page.h) and starts its guard (shim/guard.h), on a thread. One
 * that an earlier launcherd has started stays. */
#ifndef LAUNCHERD_NODE_GUARD_FILES_H
#define LAUNCHERD_NODE_GUARD_FILES_H

#include "common/io/file_work.h"
#include "launcherd/node/child_order.h"
#include "launcherd/process/lease_page.h"

struct node_shims;

struct guard_files {
    struct file_work work;
    struct child_order order;
    /* For the loop. */
    struct node_shims *shims;
    uint64_t job_id;
    uint32_t generation;
    pid_t pid; /* of the shim */
    /* Results. */
    struct lease_page *page; /* owned; NULL: not found */
    int page_fd;             /* owned; -1: not found */
    enum status status;      /* of the start */
    struct err err;
};

/* `run` and `drop` are set. NULL: no memory. */
struct guard_files *guard_files_new(struct node_child *child, pid_t pid);

#endif
