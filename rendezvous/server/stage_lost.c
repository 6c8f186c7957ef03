/* A node cannot have an archive, and never will: the jobs that are to start there with it are told (RDZV_EVENT_STAGE_LOST). */
#include <stdio.h>

#include "rendezvous/server/internal.h"

#define JOBS_MAX 64u

void stage_lost(struct server *server, uint64_t peer_id, const char *hash, const char *why)
{
    const struct peer *peer = peer_find(server, peer_id);
    char text[REASON_BYTES_MAX];
    uint64_t ids[JOBS_MAX], after_id = 0;
    uint32_t count;

    if (peer == NULL)
        return;
    (void)snprintf(text, sizeof text, "node %.60s cannot get the staged directory: %.140s",
                   peer->name, why);
    do {
        count = store_stage_jobs(server->store, hash, after_id, ids, JOBS_MAX);
        for (uint32_t i = 0; i < count; i++) {
            struct rdzv_event event = {
                .type = RDZV_EVENT_STAGE_LOST, .conn = peer_id, .job_id = ids[i], .text = text};

            after_id = ids[i];
            server_step(server, &event);
        }
    } while (count == JOBS_MAX);
}
