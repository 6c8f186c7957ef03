/* launcherd's edge: the connection to the server, the shims as processes and connections, their run
 * directories, the GPUs, and the logs that clients read. It turns what happens there into events of
 * the core (core/launcher.h) and carries out its actions. The files, each calling only those after
 * it:
 *   node         steps of the core, beginning and end
 *   node_server  the server's connection
 *   node_adopt   shims that are there when launcherd starts
 *   node_sweep   shims that have ended, and the processes that they left
 *   node_shims   shims that run: start, connection, removal
 *   node_gpus, node_logs, node_questions, node_expire, slots_file */
#ifndef LAUNCHERD_NODE_NODE_H
#define LAUNCHERD_NODE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/key.h"
#include "common/status.h"
#include "launcherd/core/launcher.h"
#include "launcherd/process/devices.h"

#define NODE_KEY_FILE "key" /* in the state directory */

struct gpu_watch;

struct node_options {
    const char *server; /* "unix:PATH" or "HOST:PORT" */
    const char *state_dir;
    const struct key *key; /* for a server over TCP; NULL: none */
    bool key_is_new;       /* it becomes the one in the state directory once the server takes it */
    bool address_is_fixed; /* core.address; else it is that of the way to the server */
    const char *logs_dir;  /* logs of jobs */
    uint64_t log_max;      /* bytes of the log of a rank; 0: no limit */
    uint64_t keep_logs_us; /* how long logs are kept after the end of their job */
    struct launcher_options core;
    struct devices devices;    /* the GPUs of the slots */
    bool allow_root;           /* runs jobs of root and of accounts of the system */
    uint64_t job_memory_bytes; /* the limit of a job here; 0: none */
    bool exit_with_parent;     /* a private run: its shims end with launcherd */
    struct gpu_watch *gpus;    /* NULL: none; borrowed until node_free, then to be closed */
    void *owner;
    void (*on_ready)(void *owner); /* the server has welcomed us for the first time */
    /* No server takes this node until a person acts, and nothing runs here: node_end is called. */
    void (*on_refused)(void *owner, const char *why);
    void (*on_left)(void *owner); /* of node_leave: nothing runs here; node_end is called */
};

struct node;

/* Takes the state directory (STATUS_BUSY: another launcherd has it), adopts the shims that it finds
 * there and begins to call the server. STATUS_REFUSED: a limit of memory was asked for, and there is
 * no cgroup to hold it. `options` and its texts are borrowed until node_free. */
enum status node_open(struct node **node, uv_loop_t *loop, const struct node_options *options,
                      struct err *err);
/* Orderly end: closes everything, so that the loop's run returns. Shims live on, unless
 * exit_with_parent: then they are ended first, within 2 s by themselves, else killed. */
void node_end(struct node *node);
/* The jobs on this node are stopped with their grace, here and by the server; then on_left. */
void node_leave(struct node *node);
/* Of a node_end: everything is closed. What may still hold up the loop is the lookup of a name,
 * which cannot be stopped. */
bool node_has_ended(const struct node *node);
/* After the loop has run out. */
void node_free(struct node *node);

#endif
