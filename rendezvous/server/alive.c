/* Tells the store that this server runs. How long ago the last one did says, at the next start, whether the state may have
 * gone on elsewhere meanwhile (store_is_newest). */
#include "rendezvous/server/internal.h"

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
    (void)uv_timer_start(&server->alive_timer, on_alive, STORE_ALIVE_MS, STORE_ALIVE_MS);
}
