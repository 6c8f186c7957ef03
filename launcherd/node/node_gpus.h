/* The GPUs of the node: carries the core's questions to gpu_watch, and the answers and Xids back;
 * keeps the record of the slots in the state directory (slots_file.h). */
#ifndef LAUNCHERD_NODE_NODE_GPUS_H
#define LAUNCHERD_NODE_NODE_GPUS_H

#include "launcherd/gpu/gpu_watch.h"
#include "launcherd/node/node_host.h"

struct node_gpus {
    const struct node_host *host;
    struct gpu_watch *watch;   /* borrowed; NULL: none */
    struct file_work *saving;  /* the record; NULL: no */
    bool has_next, is_unsaved; /* `next` is newer; it was logged that the record is not saved */
    struct slots_record next;
};

/* Finds this node's GPUs. If NVML does not answer, counts those in the driver's files or in this
 * boot's record. Blocks up to `timeout_us`; problems are logged. NULL: there is no way to watch
 * GPUs. */
struct gpu_watch *node_gpus_find(const char *state_dir, const char *boot_id, uint64_t timeout_us,
                                 uint32_t *gpus);

/* Starts to watch, and passes the record to the core (SLOTS_LOADED). Call before any shim is
 * adopted. */
enum status node_gpus_open(struct node_gpus *gpus, const struct node_host *host,
                           struct gpu_watch *watch, struct err *err);
/* LAUNCHER_ASK_GPU. */
void node_gpus_ask(struct node_gpus *gpus, const struct launcher_action *action);
/* LAUNCHER_SAVE_SLOTS: on a thread, again and again while it fails for the disk's sake. */
void node_gpus_save(struct node_gpus *gpus, const struct slots_record *record);
/* No answers come after this. May be called even if node_gpus_open was not called or failed. */
void node_gpus_close(struct node_gpus *gpus);

#endif
