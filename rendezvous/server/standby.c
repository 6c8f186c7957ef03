/* One of several servers on one etcd: what a standby answers, and the list of servers. */
#include <stdio.h>
#include <string.h>

#include "common/io/address.h"
#include "common/log.h"
#include "common/msg_version.h"
#include "rendezvous/server/internal.h"

void standby_refer(struct peer *peer, const struct msg *hello)
{
    struct msg msg = {.type = MSG_TYPE_REFER};
    struct election_view view = {.count = 0};
    const char *leader;

    if (peer->server->election != NULL)
        election_view(peer->server->election, &view);
    leader = view.count > 0 && view.servers[0].leads ? view.servers[0].address : "";
    msg.refer.leader = leader;
    msg.refer.why = leader[0] == '\0' && peer->server->lost != NULL ? peer->server->lost : "";
    if (msg_hello_protocol(hello) == 0) {
        peer_error(peer, "bad_request", "", "the first message was %s; a hello is expected",
                   msg_type_name(hello->type));
        peer_close(peer, STATUS_BAD_INPUT, "no hello");
        return;
    }
    peer_send(peer, &msg);
    peer_close(peer, STATUS_CLOSED, "this server stands by");
}

uint32_t standby_list(const struct server *server, struct election_view *view,
                      struct part_server servers[SERVERS_MAX])
{
    if (server->election == NULL)
        return 0;
    election_view(server->election, view);
    for (uint32_t i = 0; i < view->count; i++)
        servers[i] = (struct part_server){.address = view->servers[i].address,
                                          .host = view->servers[i].host,
                                          .leads = view->servers[i].leads};
    return view->count;
}

void standby_addresses(const struct server *server, char out[KEY_SERVERS_BYTES_MAX])
{
    struct election_view view = {.count = 0};
    size_t used = strlen(server->advertise);

    (void)snprintf(out, KEY_SERVERS_BYTES_MAX, "%s", server->advertise);
    if (server->election != NULL)
        election_view(server->election, &view);
    for (uint32_t i = 0; i < view.count; i++) {
        const char *address = view.servers[i].address;

        if (strcmp(address, server->advertise) == 0 || address_is_unix(address) ||
            used + 1 + strlen(address) >= KEY_SERVERS_BYTES_MAX)
            continue;
        (void)snprintf(out + used, KEY_SERVERS_BYTES_MAX - used, ",%s", address);
        used += 1 + strlen(address);
    }
}
