/* Tells the store that this server runs. How long ago the last one did says, at the next start, whether the state may have
 * gone on elsewhere meanwhile (store/witness.h). */
#include "rendezvous/server/internal.h"
#include "rendezvous/store/witness.h"

static void on_alive(uv_timer_t *timer)
{
    const struct server *server = timer->data;

    if (server->store != NULL)
        store_alive(server->store);
}

void alive_begin(struct server *server)
{
    (void)uv_timer_init(server->loop, &server->alive_timer);
    server->alive_timer.data = server;
    (void)uv_timer_start(&server->alive_timer, on_alive, WITNESS_ALIVE_US / 1000,
                         WITNESS_ALIVE_US / 1000);
}
