/* Who a connection is, and what it may send.
 *
 * Over TLS its key decides: the peer has proved that it has the secret of one principal, and has that
 * principal's role. On a unix socket the kernel names the peer's user (SO_PEERCRED): root and the server's own
 * user may be an admin or a node, any other user is a user. Loopback TCP without TLS has nothing of the kind:
 * every peer counts as the server's own user. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/msg_schema.h"
#include "common/msg_version.h"
#include "rendezvous/server/internal.h"

static bool identify_by_key(struct peer *peer)
{
    const struct principal *principal = keys_take_peer(peer);

    if (principal == NULL) { /* removed after the handshake */
        peer_error(peer, "refused", "ask an admin of the server for a new key",
                   "this key was removed");
        peer_close(peer, STATUS_REFUSED, "its key was removed");
        return false;
    }
    peer->roles = 1u << principal->stored.role;
    (void)snprintf(peer->user, sizeof peer->user, "%s", principal->stored.name);
    peer->knows_user = true;
    return true;
}

static bool identify(struct peer *peer)
{
    if (peer->endpoint->uses_tls)
        return identify_by_key(peer);
    peer->roles =
        peer->uid == 0 || peer->uid == geteuid() ? ACCESS_NODE | ACCESS_ADMIN : ACCESS_USER;
    return true;
}

static const char *version_of(const struct msg *hello)
{
    return hello->type == MSG_TYPE_NODE_HELLO ? hello->node_hello.version
                                              : hello->client_hello.version;
}

/* Refuses a hello that does not fit the connection's role. */
static void refuse_hello(struct peer *peer, const struct msg *msg)
{
    const char *user = peer_user(peer);
    char why[160];

    if (msg->type == MSG_TYPE_CLIENT_HELLO)
        peer_error(peer, "refused",
                   "make a user's key, ddpctl user add NAME, and log in with it, ddpctl login",
                   "the key of %s is a node's: it cannot be used as a user", user);
    else if (peer->principal_serial != 0)
        peer_error(peer, "refused", "make a key for the node: ddpctl node add NAME",
                   "the key of %s is a user's: it cannot be used as a node", user);
    else
        peer_error(peer, "refused", "start launcherd as root or as the server's user",
                   "node %s comes from uid %u: nodes run jobs of every user", msg->node_hello.name,
                   peer->uid);
    (void)snprintf(why, sizeof why, "%s sent %s, which its role does not allow", user,
                   msg_type_name(msg->type));
    peer_log_hello(
        peer, "role",
        "%s, version %s (this server: %s); start launcherd as root, as the server's user "
        "or with a node's key, and ddpctl with a user's",
        why, version_of(msg), msg_release());
    peer_close(peer, STATUS_REFUSED, why);
}

static void refuse(struct peer *peer, const struct msg *msg)
{
    const bool is_node = peer->kind == PEER_NODE;

    if (peer->kind == PEER_UNKNOWN) {
        refuse_hello(peer, msg);
    } else if (!is_node && (access_roles(msg->type) & ACCESS_PERSON) != 0) {
        peer_error(peer, "refused", "ask root, the server's user, or another admin",
                   "user %s is no admin, and only an admin may %s", peer_user(peer),
                   msg->type == MSG_TYPE_NODE_DRAIN || msg->type == MSG_TYPE_NODE_RESUME
                       ? "drain or resume nodes"
                       : "see and change keys");
    } else {
        peer_error(peer, "bad_request", "", "a %s may not send %s", is_node ? "node" : "client",
                   msg_type_name(msg->type));
        if (is_node) /* a client may go on waiting for its answers */
            peer_close(peer, STATUS_BAD_INPUT, "it sent what a node may not send");
    }
}

bool peer_may_send(struct peer *peer, const struct msg *msg)
{
    if (peer->kind == PEER_UNKNOWN && msg->type != MSG_TYPE_CLIENT_HELLO &&
        msg->type != MSG_TYPE_NODE_HELLO) {
        peer_error(peer, "bad_request", "",
                   "the first message was %s; node_hello or client_hello is expected",
                   msg_type_name(msg->type));
        peer_close(peer, STATUS_BAD_INPUT, "no hello");
        return false;
    }
    if (peer->kind == PEER_UNKNOWN && !identify(peer))
        return false;
    if (access_allows(peer->roles, msg->type))
        return true;
    refuse(peer, msg);
    return false;
}

/* Only a name that the key proves is remembered. */
static bool has_name(const struct peer *peer, const char *name)
{
    return peer->principal_serial == 0 || strcmp(name, peer->user) == 0;
}

/* Remembers that a node is refused because of its build, for `ddpctl nodes`. */
__attribute__((format(printf, 3, 4))) static void
note_build(struct peer *peer, const struct msg *msg, const char *format, ...)
{
    char why[REASON_BYTES_MAX];
    va_list args;

    if (msg->type != MSG_TYPE_NODE_HELLO || !has_name(peer, msg->node_hello.name))
        return;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    refused_note(&peer->server->refused, &msg->node_hello, why, clock_boot_us(), clock_wall_ms());
}

/* Of two builds with one protocol number but different messages each would refuse what the other sends,
 * later, in the middle of a job. */
static bool check_schema(struct peer *peer, const char *who, const struct msg *msg)
{
    const char *schema = msg_hello_schema(msg);
    const bool is_node = msg->type == MSG_TYPE_NODE_HELLO;

    if (!msg_schema_differs(msg_protocol(), msg_hello_protocol(msg), schema))
        return true;
    peer_error(
        peer, "refused", "install the same build on both sides",
        "%s (%s) and this server (%s) both speak protocol %u, but they are different builds: "
        "their messages differ (schema %s there, %s here)",
        who, version_of(msg), msg_release(), msg_protocol(), schema, msg_schema());
    peer_log_hello(peer, is_node ? "a node's build" : "a client's build",
                   "%s, version %s, and this server, %s, both speak protocol %u, but are different "
                   "builds (schema %s there, %s here): install the same build on both sides",
                   who, version_of(msg), msg_release(), msg_protocol(), schema, msg_schema());
    note_build(peer, msg,
               "another build: version %s, of protocol %u as the server, but with other messages "
               "(schema %s there, %s here); install the server's build there",
               version_of(msg), msg_protocol(), schema, msg_schema());
    peer_close(peer, STATUS_UNSUPPORTED, "another build with the same protocol version");
    return false;
}

static bool check_protocol(struct peer *peer, const char *who, const struct msg *msg)
{
    const uint32_t own = msg_protocol(), protocol = msg_hello_protocol(msg);
    const bool is_node = msg->type == MSG_TYPE_NODE_HELLO;
    const char *hint = protocol < own ? "upgrade the programs there, or take it version by version"
                                      : "upgrade the server first";

    if (msg_protocol_is_near(own, protocol))
        return check_schema(peer, who, msg);
    peer_error(peer, "refused", hint,
               "%s speaks protocol %u, this server (%s) speaks %u and understands %u to %u", who,
               protocol, msg_release(), own, own - 1, own + 1);
    peer_log_hello(peer, is_node ? "a node's protocol" : "a client's protocol",
                   "%s, version %s, speaks protocol %u, and this server, %s, understands %u to %u: "
                   "%s",
                   who, version_of(msg), protocol, msg_release(), own - 1, own + 1, hint);
    note_build(peer, msg, "another build: it speaks protocol %u, and the server, %s, %u to %u; %s",
               protocol, msg_release(), own - 1, own + 1, hint);
    peer_close(peer, STATUS_UNSUPPORTED, "another protocol version");
    return false;
}

static void become(struct peer *peer, enum peer_kind kind, uint32_t roles)
{
    assert(peer->kind == PEER_UNKNOWN);
    peer->server->client_count += kind == PEER_CLIENT;
    peer->kind = kind;
    peer->roles &= roles; /* the hello has chosen the role */
    conn_deadline(&peer->conn, 0, "");
}

static void on_client_hello(struct peer *peer, const struct msg *hello)
{
    struct msg msg = {.type = MSG_TYPE_CLIENT_WELCOME};
    struct err err = {.text = ""};

    if (!check_protocol(peer, "this client", hello))
        return;
    if (!clients_take(peer))
        return;
    if (!peer_find_user(peer, &err)) {
        peer_error(peer, "full", "try again", "%s", err.text);
        peer_close(peer, STATUS_BUSY, err.text);
        return;
    }
    become(peer, PEER_CLIENT, ACCESS_PERSON);
    peer->conn.payload_max = FRAME_SUBMIT_BYTES_MAX;
    msg.client_welcome.version = msg_release();
    msg.client_welcome.cluster = store_cluster(peer->server->store);
    msg.client_welcome.protocol = msg_protocol();
    msg.client_welcome.schema = msg_schema();
    peer_send(peer, &msg);
}

static void on_node_hello(struct peer *peer, const struct msg *msg)
{
    const char *name = msg->node_hello.name;
    struct rdzv_event event = {.type = RDZV_EVENT_NODE_MSG, .conn = peer->id, .msg = msg};
    char hint[160], called[ADDRESS_BYTES_MAX];

    if (!check_protocol(peer, name, msg))
        return;
    if (!has_name(peer, name)) {
        (void)snprintf(hint, sizeof hint,
                       "start it with --name %s, or make a key: ddpctl node add %s", peer->user,
                       name);
        peer_error(peer, "refused", hint, "this key is of node %s, not of %s", peer->user, name);
        peer_log_hello(peer, "key",
                       "node %s, version %s, has the key of node %s (this server is %s): %s", name,
                       version_of(msg), peer->user, msg_release(), hint);
        (void)snprintf(hint, sizeof hint, "the key of %s was used for node %s", peer->user, name);
        peer_close(peer, STATUS_REFUSED, hint);
        return;
    }
    refused_forget(&peer->server->refused, name);
    become(peer, PEER_NODE, ACCESS_NODE);
    (void)snprintf(peer->name, sizeof peer->name, "%s", name);
    peer->is_core_node = true;
    peer_called(peer, called);
    event.text = called[0] != '\0' ? called : NULL;
    server_step(peer->server, &event);
}

void peer_hello(struct peer *peer, const struct msg *msg)
{
    if (msg->type == MSG_TYPE_CLIENT_HELLO)
        on_client_hello(peer, msg);
    else
        on_node_hello(peer, msg);
}
