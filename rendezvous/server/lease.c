/* Which leases may be out, as the store has it. */
#include "rendezvous/server/internal.h"

static void write_lease(struct server *server, bool is_over)
{
    store_begin(server->store);
    store_write_lease(server->store, server->core_options.lease_us);
    if (is_over && server->core_options.is_copy)
        store_write_copy_over(server->store);
    store_commit(server->store);
}

void server_show_alive(struct server *server)
{
    if (server->is_stopping)
        return;
    store_begin(server->store);
    store_write_alive(server->store);
    server_flush_soon(server);
}

static void on_lease_before_over(uv_timer_t *timer)
{
    write_lease(timer->data, true);
}

/* Nothing gets a longer lease than the stored one. A shorter one is stored when what has the longer
 * one has ended, so that a server that starts until then knows of it, too. Likewise a restored copy
 * stays one until nothing of before it has a lease. */
void server_keep_lease(struct server *server)
{
    if (server->core_options.lease_before_us < server->core_options.lease_us)
        write_lease(server, false);
    if (server->core_options.lease_before_us > server->core_options.lease_us ||
        server->core_options.is_copy)
        server_keep_copy(server);
}

void server_write_lease_before(struct server *server, uint64_t lease_us)
{
    store_write_lease(server->store, lease_us);
    store_write_copy(server->store);
    server->core_options.is_copy = true;
    server->core_options.lease_before_us = lease_us;
    server_keep_copy(server);
}

void server_keep_copy(struct server *server)
{
    const uint64_t before_us = server->core_options.lease_before_us;
    const uint64_t own_us = server->core_options.lease_us;

    (void)uv_timer_start(&server->lease_timer, on_lease_before_over,
                         ((before_us > own_us ? before_us : own_us) + LEASE_MARGIN_US) / 1000 + 1,
                         0);
}
