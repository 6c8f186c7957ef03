#include "launcherd/node/node_server.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "common/io/address.h"
#include "common/log.h"
#include "launcherd/node/keep_files.h"

#define LOOPBACK "127.0.0.1"

enum status node_server_init(struct node_server *server, struct err *err)
{
    const struct node_options *options = server->options;

    enum status status = server_list_parse(&server->list, options->server, err);

    assert(server->host != NULL && options != NULL && server->on_message != NULL);
    /* A saved key was accepted once, so its server's name was right. */
    server->was_welcomed = options->key != NULL && !options->key_is_new;
    if (status != STATUS_OK || options->key == NULL)
        return status;
    return tls_client_new(&server->tls, options->key, err);
}

void node_server_free(struct node_server *server)
{
    tls_context_free(&server->tls);
}

/* -- failures ---------------------------------------------------------------------------------- */

/* `why`: why trying again cannot help; NULL: it may help. */
static struct launcher_event closed_event(const char *why)
{
    return (struct launcher_event){.type = LAUNCHER_EVENT_SERVER_CLOSED, .text = why};
}

/* The core has said that the connection does not hold. */
static bool is_told(const struct node_server *server)
{
    return server->host->core->short_count >= LAUNCHER_SHORT_TOLD;
}

/* Logs one line for a series of failures. */
static void show_failure(struct node_server *server, const char *text)
{
    if (!server->is_failure_shown && !is_told(server))
        log_line(LOG_WARNING, node_about(server->host), "%s: trying again%s", text,
                 server->host->core->shim_count > 0 ? ", jobs go on" : "");
    server->is_failure_shown = true;
}

/* Why trying again cannot help when no connection came about; NULL: it may help. If a name led to
 * the server once, it is right, whatever the name servers answer now. */
static const char *explain_dial(struct node_server *server, enum status status, const char *text)
{
    const char *remedy = NULL;

    if (status == STATUS_UNSUPPORTED)
        remedy = "make one there with `ddpctl node add NAME` and give it with --join";
    else if (status == STATUS_BAD_INPUT || (status == STATUS_NOT_FOUND && !server->was_welcomed &&
                                            !address_is_unix(server_list_address(&server->list))))
        remedy = "correct --server, or the HOST:PORT in the key";
    if (remedy == NULL)
        return NULL;
    (void)snprintf(server->why, sizeof server->why, "%.300s; %s", text, remedy);
    return server->why;
}

/* Why trying again cannot help when a connection ended before the welcome; NULL: it may help. */
static const char *explain_close(struct node_server *server, enum status status, const char *text)
{
    const char *address = server_list_address(&server->list);
    const bool is_bad = status == STATUS_BAD_INPUT || status == STATUS_TOO_BIG;

    if (server->uses_tls && status == STATUS_REFUSED)
        (void)snprintf(server->why, sizeof server->why,
                       "the server at %.100s does not accept the key of %s: it was removed or "
                       "rotated, or is of another server; have a new one made (ddpctl node rotate "
                       "%s, or node add) and give it with --join",
                       address, server->options->key->name, server->options->key->name);
    else if (server->uses_tls && is_bad && !conn_is_proved(&server->conn))
        (void)snprintf(server->why, sizeof server->why,
                       "at %.100s is no server that takes keys (%.200s); correct --server, or the "
                       "HOST:PORT in the key",
                       address, text);
    else if (!server->uses_tls && is_bad && !address_is_unix(address))
        (void)snprintf(server->why, sizeof server->why,
                       "at %.100s is no server that takes nodes without a key (%.150s); make one "
                       "there with `ddpctl node add NAME` and give it with --join",
                       address, text);
    else
        return NULL;
    /* If it worked before, it may be wrong only for a moment: another program on the port. */
    return status == STATUS_REFUSED || !server->was_welcomed ? server->why : NULL;
}

/* -- events of the connection ------------------------------------------------------------------ */

static void on_message(struct conn *conn, const struct msg *msg)
{
    struct node_server *server = conn->owner;

    server->on_message(server->host->owner, msg);
    if (msg->type != MSG_TYPE_REFER || server->is_welcomed || server->is_referred)
        return;
    server->is_referred = true;
    (void)server_list_referred(&server->list, msg->refer.leader);
    conn_close(conn, STATUS_BUSY, "it stands by");
}

/* `stays`: why trying again does not help with this server, or NULL. Another of several servers may accept what this one
 * refuses, also one that does not answer now: this one may be of another cluster. */
static const char *after_failure(struct node_server *server, const char *stays)
{
    const bool is_news = stays != NULL && server_list_refused(&server->list);
    const bool is_final = stays != NULL && server_list_all_refused(&server->list);

    server_list_failed(&server->list);
    if (is_news && !is_final)
        log_line(LOG_WARNING, node_about(server->host),
                 "%s: trying the other addresses of --server", stays);
    server->is_failure_shown = server->is_failure_shown || is_news;
    return is_final ? stays : NULL;
}

static void on_closed(struct conn *conn, enum status why, const char *text)
{
    struct node_server *server = conn->owner;
    const char *stays = server->is_welcomed ? NULL : explain_close(server, why, text);
    char line[400];

    server->is_open = false;
    if (server->host->ending)
        return;
    if (server->is_referred) {
        server->host->step(server->host->owner, closed_event(NULL));
        return;
    }
    /* A server that requires a key closes a connection without TLS. */
    (void)snprintf(line, sizeof line, "the connection to %.100s ended (%s: %.200s)%s",
                   server_list_address(&server->list), status_name(why), text,
                   !server->uses_tls && !address_is_unix(server_list_address(&server->list)) &&
                           !server->was_welcomed
                       ? ", does it want a key (--join)?"
                       : "");
    stays = after_failure(server, stays);
    if (stays == NULL)
        show_failure(server, line);
    server->host->step(server->host->owner, closed_event(stays));
}

static const struct conn_handlers handlers = {on_message, on_closed};

static void on_moved(struct conn *conn)
{
    struct node_server *server = conn->owner;

    if (!server->host->closed)
        server->on_room(server->host->owner);
}

/* The address of this end of the connection: other nodes can reach us there if they reach the
 * server the same way. NULL: keep the one from the options. */
static const char *own_address(struct node_server *server)
{
    struct sockaddr_storage own = {0};
    int byte_count = sizeof own;
    char text[64];
    in_port_t port;

    if (server->options->address_is_fixed)
        return NULL;
    (void)snprintf(server->address, sizeof server->address, LOOPBACK);
    if (address_is_unix(server_list_address(&server->list)) ||
        uv_tcp_getsockname(&server->conn.handle.tcp, (struct sockaddr *)&own, &byte_count) != 0)
        return server->address;
    address_format_tcp(&own, text, sizeof text);
    if (!address_is_loopback(text))
        (void)address_split_tcp(text, server->address, sizeof server->address, &port);
    return server->address;
}

static struct launcher_event open_event(struct node_server *server)
{
    server->is_open = true;
    server->is_welcomed = false;
    server->conn.on_moved = on_moved;
    return (struct launcher_event){
        .type = LAUNCHER_EVENT_SERVER_OPEN,
        .text = own_address(server),
        .is_other_server = server->welcomed_at[0] != '\0' &&
                           strcmp(server->welcomed_at, server_list_address(&server->list)) != 0};
}

static struct launcher_event failed_event(struct node_server *server, enum status status,
                                          const char *text)
{
    const char *stays = after_failure(server, explain_dial(server, status, text));
    char line[400];

    (void)snprintf(line, sizeof line, "%.300s%s", text,
                   status == STATUS_TIMEOUT && !server->was_welcomed
                       ? " (is that machine on, and does no firewall drop what is sent there?)"
                       : "");
    if (stays == NULL)
        show_failure(server, line);
    return closed_event(stays);
}

static void on_dialed(struct conn_dial *dial, enum status status, const char *text)
{
    struct node_server *server = dial->owner;
    const struct node_host *host = server->host;

    if (host->ending) {
        if (status == STATUS_OK)
            conn_close(&server->conn, STATUS_OK, "launcherd ends");
        return;
    }
    host->step(host->owner,
               status == STATUS_OK ? open_event(server) : failed_event(server, status, text));
}

/* -- for node.c --------------------------------------------------------------------------------- */

void node_server_connect(struct node_server *server)
{
    const struct node_host *host = server->host;
    enum status status;
    struct err err;

    assert(!server->is_open && !server->dial.is_running);
    if (host->ending)
        return;
    server->conn.owner = server;
    server->dial.owner = server;
    server->is_referred = false;
    server->uses_tls = server->tls != NULL && !address_is_unix(server_list_address(&server->list));
    status = conn_dial_start(&server->dial, &server->conn, host->loop,
                             server_list_address(&server->list), server->tls, FRAME_LARGE_BYTES_MAX,
                             &handlers, on_dialed, &err);
    if (status != STATUS_OK)
        host->post(host->owner, failed_event(server, status, err.text));
    else if (!server->dial.is_running)
        host->post(host->owner, open_event(server));
}

static void on_key_kept(struct file_work *work, const char *late)
{
    const struct key_files *files = (struct key_files *)work;
    struct node_server *server = files->owner;

    server->is_keeping_key = false;
    server->is_key_lost = late != NULL || files->status != STATUS_OK;
    if (!server->is_key_lost)
        log_line(LOG_INFO, node_about(server->host),
                 "the key is kept in %s: later starts need no --join", files->path);
    else
        log_line(LOG_ERROR, node_about(server->host),
                 "the key could not be kept, give it with --join at the next start: %s",
                 late != NULL ? late : files->err.text);
    server->on_key_kept(server->host->owner);
}

/* Saves the key. A key that the server has not accepted must never replace one that it accepts. */
static void keep_key(struct node_server *server)
{
    const struct node_options *options = server->options;
    struct key_files *files =
        key_files_new(options->state_dir, NODE_KEY_FILE, options->key, server);

    if (files != NULL) {
        files->work.done = on_key_kept;
        server->is_keeping_key = true;
        if (file_work_start(server->host->files, &files->work))
            return;
        server->is_keeping_key = false;
    }
    server->is_key_lost = true;
    log_line(LOG_ERROR, node_about(server->host),
             "the key could not be kept, give it with --join at the next start: no memory");
}

void node_server_welcomed(struct node_server *server)
{
    const struct node_options *options = server->options;

    if (options->key_is_new && !server->was_welcomed)
        keep_key(server);
    if (server->is_failure_shown && !is_told(server))
        log_line(LOG_INFO, node_about(server->host), "connected to %s",
                 server_list_address(&server->list));
    server->is_failure_shown = false;
    (void)snprintf(server->welcomed_at, sizeof server->welcomed_at, "%s",
                   server_list_address(&server->list));
    server_list_reached(&server->list);
    server->is_welcomed = server->was_welcomed = true;
}

size_t node_server_unsent(const struct node_server *server)
{
    return server->is_open ? server->conn.queued_bytes : 0;
}

static void leave_bytes_out(struct msg *msg)
{
    static const char why[] = "too many answers wait for the connection of this node; ask again";

    if (msg->type == MSG_TYPE_LOG_DATA && msg->log_data.bytes.count > 0) {
        msg->log_data.bytes.count = msg->log_data.runs.count = 0;
        msg->log_data.is_final = false;
        msg->log_data.problem = why;
    } else if (msg->type == MSG_TYPE_NODE_DATA && msg->node_data.bytes.count > 0) {
        msg->node_data.bytes.count = 0;
        msg->node_data.problem = why;
    }
}

void node_server_send(struct node_server *server, const struct msg *msg)
{
    struct msg copy = *msg;
    struct err err;

    if (!server->is_open)
        return;
    if (node_server_unsent(server) > NODE_BULK_BYTES_MAX)
        leave_bytes_out(&copy);
    if (conn_send(&server->conn, &copy, &err) != STATUS_OK && err.status != STATUS_CLOSED)
        log_line(LOG_WARNING, node_about(server->host), "a %s was not sent: %s",
                 msg_type_name(msg->type), err.text);
}

void node_server_close(struct node_server *server, enum status why, const char *text)
{
    conn_dial_cancel(&server->dial);
    if (server->is_open)
        conn_close(&server->conn, why, text);
}
