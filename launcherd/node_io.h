/* launcherd's edge: the connection to the server, the shims as processes and connections, their run
 * directories, and the logs that clients read. It carries out what the core (launcher.h) decides.
 */
#ifndef LAUNCHERD_NODE_IO_H
#define LAUNCHERD_NODE_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/status.h"
#include "launcherd/launcher.h"

struct gpu_watch;

struct node_options {
    const char *server; /* "unix:PATH" or "HOST:PORT" */
    const char *state_dir;
    struct launcher_options core;
    bool exit_with_parent;  /* a private run: its shims end with us */
    struct gpu_watch *gpus; /* NULL: none; borrowed until node_free, then to be closed */
    void *owner;
    void (*on_ready)(void *owner); /* the server has welcomed us for the first time */
};

struct node;

/* Counts this node's GPUs; what NVML does not tell, the driver's files or the last time in this
 * boot do. Blocks up to 5 s. Says what is wrong in the log. NULL: no thread to ask. */
struct gpu_watch *node_gpus_find(const char *state_dir, const char *boot_id, uint32_t *gpus);

/* Takes the state directory (STATUS_BUSY: another launcherd has it), adopts the shims that it finds
 * there and begins to call the server. `options` and its texts are borrowed until node_free. */
enum status node_open(struct node **node, uv_loop_t *loop, const struct node_options *options,
                      struct err *err);
/* Orderly end: closes everything, so that the loop's run returns. Shims live on, unless
 * exit_with_parent: then they are ended first, within 2 s by themselves, else killed. */
void node_end(struct node *node);
/* After the loop has run out. */
void node_free(struct node *node);

#endif
