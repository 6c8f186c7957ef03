/* Start orders whose working directory is staged (common/stage.h). The node fetches the archive from the server
 * into STATE_DIR/stage/HASH.tar, in pieces, and holds the order back until the archive is complete. Archives are
 * kept and reused; the oldest are removed when there are too many.
 *
 * Orders without a staged directory pass at once. */
#ifndef LAUNCHERD_NODE_NODE_STAGE_H
#define LAUNCHERD_NODE_NODE_STAGE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/msg.h"
#include "common/stage.h"
#include "launcherd/node/node_host.h"
#include "launcherd/node/node_shims.h"

struct stage_order;
struct stage_digest;

struct node_stage {
    const struct node_host *host;
    struct node_shims *shims;
    char dir[PATH_MAX];
    struct stage_order *first; /* orders held back, in order of arrival; owned */
    /* The current fetch. Threads do the work on files (archive_files.h). */
    bool is_fetching;
    char hash[STAGE_HASH_CHARS + 1];
    struct file_work *work; /* it has what was fetched; NULL: none */
    int fd;                 /* of HASH.part; -1: none, or the work has it */
    uint64_t have;
    struct stage_digest *digest;
    uv_timer_t timer; /* limits the server's time to answer */
};

void node_stage_init(struct node_stage *stage, const struct node_host *host,
                     struct node_shims *shims);
/* Closes the timer and drops the orders that are held back. */
void node_stage_close(struct node_stage *stage);
/* Carries out LAUNCHER_SPAWN_SHIM, now or later. If the archive cannot be fetched: SHIM_FAILED with
 * the reason. */
void node_stage_spawn(struct node_stage *stage, const struct msg *start);
/* For LAUNCHER_REMOVE: drops the order if it is held back. */
void node_stage_cancel(struct node_stage *stage, uint64_t job_id, uint32_t generation);
/* For LAUNCHER_KILL_SHIM: the same if the shim has not been started yet; its end is posted with the
 * reason `why`. */
void node_stage_kill(struct node_stage *stage, uint64_t job_id, uint32_t generation,
                     const char *why);
/* Takes stage_data of the server. */
void node_stage_data(struct node_stage *stage, const struct msg_stage_data *data);
/* The server is connected again: asks again for what is missing. */
void node_stage_connected(struct node_stage *stage);

#endif
