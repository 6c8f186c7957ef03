#include "launcherd/c10d/c10d_server.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/accept_turn.h"
#include "common/io/address.h"
#include "common/io/conn.h"
#include "common/limits.h"
#include "common/log.h"
#include "launcherd/c10d/c10d_peers.h"

#define READ_BYTES (256u * 1024u)
#define TICK_MS 1000u
#define CLIENTS_DEFAULT 65536u
#define KEYS_DEFAULT (64u * 1024u * 1024u)
#define BYTES_DEFAULT (4ull * 1024u * 1024u * 1024u)
#define MESSAGE_BYTES_DEFAULT (256u * 1024u * 1024u)
#define HELLO_DEFAULT_US 30000000u
#define UNREAD_BYTES_DEFAULT (1024ull * 1024u * 1024u)
#define KEEPALIVE_S 60u
#define NO_NUMBER UINT32_MAX
#define CLOSED_TOLD_MAX 32u /* lines about closed clients in CLOSED_TICKS: anyone can cause them */
#define CLOSED_TICKS 60u

struct connection {
    uv_tcp_t tcp;
    struct connection *next, *previous;
    struct c10d_server *server;
    uint32_t number;   /* NO_NUMBER: not admitted */
    bool is_forgotten; /* the core no longer knows it and gets no more events */
    bool is_paused;    /* the core waits for C10D_EVENT_DRAINED */
    bool is_reading;
    size_t unread_bytes;
    char label[ADDRESS_BYTES_MAX];
};

struct write {
    uv_write_t request;
    struct connection *connection;
    size_t byte_count;
    char bytes[];
};

struct c10d_server {
    uv_loop_t *loop;
    uv_tcp_t listener;
    struct accept_turn turn;
    uv_timer_t timer;
    char bound[ADDRESS_BYTES_MAX];
    struct c10d *core;
    struct c10d_peers peers;
    struct connection *first;        /* all, including those that are not admitted */
    struct connection *spare;        /* for the next connection; NULL: no memory for one */
    struct connection **connections; /* [clients_max], by number */
    uint32_t *free_numbers;          /* [free_count]: a stack */
    uint32_t free_count;
    uint64_t unread_bytes, unread_bytes_max;
    size_t handles_open;
    uint64_t closed_count; /* clients closed for a reason within the last CLOSED_TICKS */
    uint32_t closed_ticks;
    bool accept_waits; /* a connection waits for `spare` */
    bool is_closing;
    void (*on_closed)(void *owner);
    void *owner;
    char read[READ_BYTES]; /* shared: used up within each callback */
};

static void *resize(void *owner, void *bytes, size_t byte_count)
{
    (void)owner;
    if (byte_count > 0)
        return realloc(bytes, byte_count);
    free(bytes);
    return NULL;
}

/* -- the end ----------------------------------------------------------------------------------- */

static void step(struct c10d_server *server, struct c10d_event event);
static void take_connection(void *owner);

static void free_server(struct c10d_server *server)
{
    c10d_free(&server->core);
    free(server->peers.ips);
    free(server->connections);
    free(server->free_numbers);
    free(server->spare);
    free(server);
}

static void handle_closed(struct c10d_server *server)
{
    void (*on_closed)(void *owner) = server->on_closed;
    void *owner = server->owner;

    if (--server->handles_open > 0 || !server->is_closing)
        return;
    free_server(server);
    if (on_closed != NULL)
        on_closed(owner);
}

static void link_connection(struct c10d_server *server, struct connection *connection)
{
    connection->next = server->first;
    if (server->first != NULL)
        server->first->previous = connection;
    server->first = connection;
}

static void unlink_connection(struct c10d_server *server, struct connection *connection)
{
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        server->first = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
}

static void on_connection_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    struct c10d_server *server = connection->server;

    if (!connection->is_forgotten && !server->is_closing)
        step(server, (struct c10d_event){.type = C10D_EVENT_CLOSED, .client = connection->number});
    if (connection->number != NO_NUMBER) {
        server->connections[connection->number] = NULL;
        server->free_numbers[server->free_count++] = connection->number;
    }
    unlink_connection(server, connection);
    if (server->spare == NULL) {
        *connection = (struct connection){.server = server};
        server->spare = connection;
        if (server->accept_waits && !server->is_closing)
            take_connection(server);
    } else {
        free(connection);
    }
    handle_closed(server);
}

static void close_connection(struct connection *connection)
{
    if (!uv_is_closing((uv_handle_t *)&connection->tcp))
        uv_close((uv_handle_t *)&connection->tcp, on_connection_closed);
}

/* -- reading ----------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    const struct connection *connection = handle->data;

    (void)suggested;
    *buf = uv_buf_init(connection->server->read, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t byte_count, const uv_buf_t *buf)
{
    struct connection *connection = stream->data;

    if (byte_count < 0)
        close_connection(connection);
    else if (byte_count > 0)
        step(connection->server, (struct c10d_event){.type = C10D_EVENT_BYTES,
                                                     .client = connection->number,
                                                     .bytes = buf->base,
                                                     .byte_count = (size_t)byte_count});
}

/* Starts or stops reading: nothing is read from a client that has replies to read. */
static void read_or_not(struct connection *connection)
{
    const bool wanted = connection->unread_bytes == 0 && !connection->is_paused &&
                        !uv_is_closing((uv_handle_t *)&connection->tcp);

    if (wanted == connection->is_reading)
        return;
    connection->is_reading = wanted;
    if (!wanted)
        (void)uv_read_stop((uv_stream_t *)&connection->tcp);
    else if (uv_read_start((uv_stream_t *)&connection->tcp, on_alloc, on_read) < 0)
        close_connection(connection);
}

/* Everything is written: ends the core's pause. */
static void drained(struct connection *connection)
{
    while (connection->is_paused && connection->unread_bytes == 0 && !connection->is_forgotten &&
           !uv_is_closing((uv_handle_t *)&connection->tcp)) {
        connection->is_paused = false;
        step(connection->server,
             (struct c10d_event){.type = C10D_EVENT_DRAINED, .client = connection->number});
    }
    read_or_not(connection);
}

/* -- writing ----------------------------------------------------------------------------------- */

static void on_written(uv_write_t *request, int code)
{
    struct write *write = (struct write *)request;
    struct connection *connection = write->connection;

    connection->unread_bytes -= write->byte_count;
    connection->server->unread_bytes -= write->byte_count;
    free(write);
    if (code < 0)
        close_connection(connection);
    else if (connection->unread_bytes == 0)
        drained(connection);
}

static void tell_closed(struct connection *connection, const char *command, const char *why)
{
    if (connection->server->closed_count++ < CLOSED_TOLD_MAX)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "store client %s closed: %s%s%s", connection->label,
                 command, command[0] != '\0' ? ": " : "", why);
}

static void tell_closed_more(struct c10d_server *server)
{
    if (++server->closed_ticks < CLOSED_TICKS)
        return;
    if (server->closed_count > CLOSED_TOLD_MAX)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "%llu more store clients were closed within a minute",
                 (unsigned long long)server->closed_count - CLOSED_TOLD_MAX);
    server->closed_count = 0;
    server->closed_ticks = 0;
}

static void give_up(struct connection *connection, const char *why)
{
    tell_closed(connection, "", why);
    close_connection(connection);
}

static void write_later(struct connection *connection, const char *bytes, size_t byte_count)
{
    struct c10d_server *server = connection->server;
    struct write *write;
    uv_buf_t buf;

    if (byte_count > server->unread_bytes_max - server->unread_bytes) {
        give_up(connection, "it does not read its replies, and too many wait");
        return;
    }
    write = malloc(sizeof *write + byte_count);
    if (write == NULL) {
        give_up(connection, "no memory for its reply");
        return;
    }
    write->connection = connection;
    write->byte_count = byte_count;
    memcpy(write->bytes, bytes, byte_count);
    buf = uv_buf_init(write->bytes, (unsigned)byte_count);
    if (uv_write(&write->request, (uv_stream_t *)&connection->tcp, &buf, 1, on_written) < 0) {
        free(write);
        close_connection(connection);
        return;
    }
    connection->unread_bytes += byte_count;
    server->unread_bytes += byte_count;
}

static void send_bytes(struct connection *connection, const char *bytes, size_t byte_count)
{
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)byte_count);
    int count = 0;

    if (uv_is_closing((uv_handle_t *)&connection->tcp))
        return;
    if (connection->unread_bytes == 0) {
        count = uv_try_write((uv_stream_t *)&connection->tcp, &buf, 1);
        if (count < 0 && count != UV_EAGAIN) {
            close_connection(connection);
            return;
        }
        if (count < 0)
            count = 0;
    }
    if ((size_t)count < byte_count)
        write_later(connection, bytes + count, byte_count - (size_t)count);
}

/* -- the core ---------------------------------------------------------------------------------- */

static void close_for(struct connection *connection, const struct c10d_action *action)
{
    connection->is_forgotten = true;
    if (action->reason != C10D_REASON_ASKED)
        tell_closed(connection, action->command, c10d_reason_words(action->reason));
    close_connection(connection);
}

/* The event of one client causes no event of another within the step: closing is reported later,
 * from the loop. */
static void step(struct c10d_server *server, struct c10d_event event)
{
    struct c10d_actions actions;
    struct connection *paused = NULL;

    event.now_us = clock_boot_us();
    actions = c10d_step(server->core, &event);
    for (size_t i = 0; i < actions.count; i++) {
        const struct c10d_action *action = &actions.items[i];
        struct connection *connection = server->connections[action->client];

        if (action->type == C10D_SEND)
            send_bytes(connection, action->bytes, action->byte_count);
        else if (action->type == C10D_CLOSE)
            close_for(connection, action);
        else
            (paused = connection)->is_paused = true;
        if (action->type == C10D_SEND && connection->unread_bytes > 0)
            read_or_not(connection);
    }
    if (paused != NULL && event.type != C10D_EVENT_DRAINED)
        drained(paused);
}

static void on_tick(uv_timer_t *timer)
{
    tell_closed_more(timer->data);
    step(timer->data, (struct c10d_event){.type = C10D_EVENT_TICK});
}

/* -- connections ------------------------------------------------------------------------------- */

/* Whether the peer may connect. Its name is added to the label. */
static bool is_peer(struct connection *connection)
{
    const struct c10d_server *server = connection->server;
    struct sockaddr_storage address = {0};
    int byte_count = sizeof address;

    if (uv_tcp_getpeername(&connection->tcp, (struct sockaddr *)&address, &byte_count) < 0)
        return false;
    address_format_tcp(&address, connection->label, sizeof connection->label);
    if (c10d_peers_have(&server->peers, &address))
        return true;
    tell_closed(connection, "", "it is no node of this job");
    return false;
}

static int open_connection(struct c10d_server *server, struct connection *connection)
{
    int code;

    connection->server = server;
    connection->number = NO_NUMBER;
    connection->is_forgotten = true;
    code = uv_tcp_init(server->loop, &connection->tcp);
    assert(code == 0); /* neither allocates nor asks the kernel */
    connection->tcp.data = connection;
    server->handles_open++;
    link_connection(server, connection);
    return uv_accept((uv_stream_t *)&server->listener, (uv_stream_t *)&connection->tcp);
}

/* False: refused, and logged. */
static bool admit(struct c10d_server *server, struct connection *connection)
{
    if (!is_peer(connection))
        return false;
    if (server->spare == NULL || server->free_count == 0) {
        tell_closed(connection, "",
                    c10d_reason_words(server->spare == NULL ? C10D_REASON_NO_MEMORY
                                                            : C10D_REASON_TOO_MANY_CLIENTS));
        return false;
    }
    return true;
}

/* A handle to accept with must always exist, because libuv would stop listening otherwise. While
 * there is no memory for another one, a connection is accepted only to be closed, and its handle is
 * used for the next. */
static void take_connection(void *owner)
{
    struct c10d_server *server = owner;
    struct connection *connection = server->spare;

    server->accept_waits = connection == NULL;
    if (connection == NULL)
        return; /* wait for on_connection_closed */
    server->spare = calloc(1, sizeof *connection);
    if (open_connection(server, connection) < 0 || !admit(server, connection)) {
        close_connection(connection);
        return;
    }
    connection->number = server->free_numbers[--server->free_count];
    connection->is_forgotten = false;
    server->connections[connection->number] = connection;
    (void)uv_tcp_nodelay(&connection->tcp, 1);
    (void)uv_tcp_keepalive(&connection->tcp, 1, KEEPALIVE_S);
    read_or_not(connection);
    step(server, (struct c10d_event){.type = C10D_EVENT_CONNECTED, .client = connection->number});
}

static void on_connection(uv_stream_t *listener, int code)
{
    struct c10d_server *server = listener->data;

    if (code < 0)
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "accept on %s: %s", server->bound, uv_strerror(code));
    else if (!accept_turn_is_over(&server->turn))
        take_connection(server);
}

/* -- the beginning ----------------------------------------------------------------------------- */

#define DEFAULT(field, value) ((field) != 0 ? (field) : (value))

static enum status make_core(struct c10d_server *server, const struct c10d_server_options *options,
                             struct err *err)
{
    struct c10d_limits limits = options->limits;
    const struct c10d_heap heap = {.resize = resize};

    limits.clients_max = DEFAULT(limits.clients_max, CLIENTS_DEFAULT);
    limits.keys_max = DEFAULT(limits.keys_max, KEYS_DEFAULT);
    limits.bytes_max = DEFAULT(limits.bytes_max, BYTES_DEFAULT);
    limits.message_bytes_max = DEFAULT(limits.message_bytes_max, MESSAGE_BYTES_DEFAULT);
    limits.hello_us = DEFAULT(limits.hello_us, HELLO_DEFAULT_US);
    server->unread_bytes_max = DEFAULT(options->unread_bytes_max, UNREAD_BYTES_DEFAULT);
    if (getrandom(limits.hash_seed, sizeof limits.hash_seed, 0) != (ssize_t)sizeof limits.hash_seed)
        return err_set(err, STATUS_SYSTEM, errno, "no random bytes for the store: %s",
                       strerror(errno));
    server->core = c10d_new(&limits, &heap);
    server->connections = calloc(limits.clients_max, sizeof(struct connection *));
    server->free_numbers = calloc(limits.clients_max, sizeof *server->free_numbers);
    server->spare = calloc(1, sizeof *server->spare);
    if (server->core == NULL || server->connections == NULL || server->free_numbers == NULL ||
        server->spare == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the store");
    for (uint32_t i = limits.clients_max; i > 0; i--)
        server->free_numbers[server->free_count++] = i - 1;
    return STATUS_OK;
}

static void on_handle_closed(uv_handle_t *handle)
{
    handle_closed(handle->data);
}

/* SIGPIPE: see common/io/conn.h. */
static int open_handles(struct c10d_server *server, int fd)
{
    int code;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)uv_timer_init(server->loop, &server->timer);
    (void)uv_tcp_init(server->loop, &server->listener);
    server->timer.data = server->listener.data = server;
    accept_turn_open(&server->turn, server->loop, take_connection, server);
    server->handles_open = 3;
    code = uv_tcp_open(&server->listener, fd);
    if (code < 0) {
        (void)close(fd);
        return code;
    }
    code = uv_listen((uv_stream_t *)&server->listener, SOMAXCONN, on_connection);
    return code < 0 ? code : uv_timer_start(&server->timer, on_tick, TICK_MS, TICK_MS);
}

static enum status bind_address(const char *address, int *fd, struct err *err)
{
    struct stat made;

    if (address_is_unix(address))
        return err_set(err, STATUS_BAD_INPUT, 0, "the store listens on HOST:PORT, not on %.100s",
                       address);
    return address_listen(address, 0, fd, &made, err);
}

/* After a failure the server is freed here, or when its handles have closed. */
static enum status start(struct c10d_server *server, int fd, struct err *err)
{
    struct sockaddr_storage bound = {0};
    socklen_t byte_count = sizeof bound;
    char address[ADDRESS_BYTES_MAX];
    int code;

    if (getsockname(fd, (struct sockaddr *)&bound, &byte_count) != 0) {
        code = errno;
        (void)close(fd);
        free_server(server);
        return err_set(err, STATUS_SYSTEM, code, "the store's socket: %s", strerror(code));
    }
    address_format_tcp(&bound, server->bound, sizeof server->bound);
    memcpy(address, server->bound, sizeof address);
    code = open_handles(server, fd);
    if (code == 0)
        return STATUS_OK;
    c10d_server_close(&server, NULL, NULL);
    return err_set(err, code == UV_EADDRINUSE ? STATUS_BUSY : STATUS_SYSTEM, code,
                   "listen on %.60s for the store: %s", address, uv_strerror(code));
}

struct c10d_server *c10d_server_new(uv_loop_t *loop, const struct c10d_server_options *options,
                                    struct err *err)
{
    struct c10d_server *server = calloc(1, sizeof *server);
    int fd = options->address == NULL ? options->fd : -1;
    enum status status = STATUS_OK;

    assert(options->peer_count > 0);
    if (server == NULL) {
        status = err_set(err, STATUS_MEMORY, 0, "no memory for the store");
    } else {
        server->loop = loop;
        status = c10d_peers_read(&server->peers, options->peers, options->peer_count, err);
    }
    if (status == STATUS_OK)
        status = make_core(server, options, err);
    if (status == STATUS_OK && fd < 0)
        status = bind_address(options->address, &fd, err);
    if (status == STATUS_OK)
        return start(server, fd, err) == STATUS_OK ? server : NULL;
    if (fd >= 0)
        (void)close(fd);
    if (server != NULL)
        free_server(server);
    return NULL;
}

const char *c10d_server_bound(const struct c10d_server *server)
{
    return server->bound;
}

const struct c10d *c10d_server_core(const struct c10d_server *server)
{
    return server->core;
}

const char *c10d_server_peer(const struct c10d_server *server, uint32_t client)
{
    return server->connections[client]->label;
}

void c10d_server_close(struct c10d_server **owned, void (*on_closed)(void *owner), void *owner)
{
    struct c10d_server *server = *owned;
    struct connection *next;

    *owned = NULL;
    server->is_closing = true;
    server->on_closed = on_closed;
    server->owner = owner;
    for (struct connection *one = server->first; one != NULL; one = next) {
        next = one->next;
        close_connection(one);
    }
    uv_close((uv_handle_t *)&server->timer, on_handle_closed);
    uv_close((uv_handle_t *)&server->listener, on_handle_closed);
    accept_turn_close(&server->turn, on_handle_closed);
}
