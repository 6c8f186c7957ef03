/* Gives a new core what the store has of nodes: drains and holds. */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/server/internal.h"

/* Reads more than DRAINS_MAX, so that the core names those that it cannot take. */
enum status server_restore_drains(struct server *server, struct err *err)
{
    struct rdzv_drain *drains = calloc(2 * DRAINS_MAX, sizeof *drains);
    uint32_t count;

    if (drains == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the drains of the store");
    count = store_drains(server->store, drains, 2 * DRAINS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        struct rdzv_event event = {.type = RDZV_EVENT_RESTORE_DRAIN, .drain = &drains[i]};

        server_step(server, &event);
    }
    free(drains);
    return STATUS_OK;
}

void server_restore_holds(struct server *server)
{
    struct rdzv_hold hold, before = {.node = ""};

    /* A name that is too long is damaged, and would be found for ever. */
    while (store_hold_after(server->store, before.node, &hold) &&
           strcmp(hold.node, before.node) > 0) {
        struct rdzv_event event = {.type = RDZV_EVENT_RESTORE_HOLD, .hold = &hold};

        server_step(server, &event);
        before = hold;
    }
}
