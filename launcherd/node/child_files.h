/* The start of `launcherd MODE ...` as a child, on a thread (file_work.h): until the child runs its program, whoever
 * starts it hangs with it. node_children.h has the loop's side. */
#ifndef LAUNCHERD_NODE_CHILD_FILES_H
#define LAUNCHERD_NODE_CHILD_FILES_H

#include "common/status.h"
#include "launcherd/node/child_order.h"
#include "common/io/file_work.h"

/* For `run`: starts it. The descriptors are borrowed; `extra_fd` -1: none. */
enum status child_files_start(struct file_work *work, const struct child_order *order, int stdin_fd,
                              int stdout_fd, int stderr_fd, int extra_fd, struct err *err);

/* A process that answers a question: work of its own. */
struct child_files {
    struct file_work work;
    struct child_order order;
    void *owner;                        /* for the loop */
    int stdin_fd, stdout_fd, stderr_fd; /* owned; -1: /dev/null */
    /* Results. */
    enum status status;
    struct err err;
};

/* `run` and `drop` are set; the process dies with its parent. NULL: no memory. */
struct child_files *child_files_new(struct node_child *child, const char *mode, void *owner);

#endif
