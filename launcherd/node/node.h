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
    const struct key *key;  /* for a server over TCP; NULL: none */
    bool server_is_default; /* nobody named one: it is this machine's */
    bool key_is_new;        /* from --join: saved once the server accepts it */
    bool address_is_fixed;  /* core.address is given; else found on the way to the server */
    const char *logs_dir;   /* logs of jobs */
    uint64_t log_max;       /* bytes of the log of a rank; 0: no limit */
    uint64_t keep_logs_us;  /* how long logs are kept after the end of their job */
    struct launcher_options core;
    struct devices devices;    /* the GPUs of the slots */
    bool allow_root;           /* jobs of root and of system accounts may run */
    uint64_t job_memory_bytes; /* the limit of a job here; 0: none */
    bool exit_with_parent;     /* a private run: shims end together with launcherd */
    struct gpu_watch *gpus;    /* NULL: none; borrowed until node_free, closed by the caller */
    void *owner;
    /* The server has welcomed us for the first time. `is_key_lost`: the key of --join could not be saved,
     * as a line of the log says. */
    void (*on_ready)(void *owner, bool is_key_lost);
    /* No server accepts this node until a person acts, and nothing runs here: call node_end. */
    void (*on_refused)(void *owner, const char *why);
    void (*on_left)(void *owner); /* after node_leave: nothing runs here any more; call node_end */
};

struct node;

/* Locks the state directory (STATUS_BUSY: another launcherd has it), adopts the shims that it finds
 * there, and begins to connect to the server. STATUS_REFUSED: a memory limit was requested, but
 * there is no cgroup to enforce it. `options` and its texts are borrowed until node_free. */
enum status node_open(struct node **node, uv_loop_t *loop, const struct node_options *options,
                      struct err *err);
/* Closes everything in order, so that the loop ends. Shims live on, unless exit_with_parent: then
 * they have 2 s to end and are killed after that. */
void node_end(struct node *node);
/* The node leaves: its jobs are stopped with their grace, by the server or here; then on_left is
 * called. */
void node_leave(struct node *node);
/* Whether everything is closed after node_end. Only a name lookup, which cannot be cancelled, may
 * still keep the loop running. */
bool node_has_ended(const struct node *node);
/* Call when the loop has ended. */
void node_free(struct node *node);

#endif
