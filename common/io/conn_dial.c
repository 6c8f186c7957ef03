#include "common/io/conn_dial.h"

#include <assert.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/address.h"

/* Checks the connected address, because a name may resolve to anything. */
static bool peer_is_loopback(int fd)
{
    struct sockaddr_storage peer = {0};
    socklen_t byte_count = sizeof peer;
    char text[64];

    if (getpeername(fd, (struct sockaddr *)&peer, &byte_count) < 0)
        return false;
    address_format_tcp(&peer, text, sizeof text);
    return address_is_loopback(text);
}

static enum status refuse_plain(const char *address, struct err *err)
{
    return err_set(err, STATUS_UNSUPPORTED, 0,
                   "there is no key for %.100s: over a network only programs with a key talk to a "
                   "server",
                   address);
}

static enum status open_conn(struct conn_dial *dial, int fd, struct err *err)
{
    enum status status;

    if (dial->tls == NULL && !peer_is_loopback(fd)) {
        (void)close(fd);
        return refuse_plain(dial->address, err);
    }
    status = conn_open_fd(dial->conn, dial->dial.loop, fd, dial->payload_max, dial->handlers, err);
    if (status != STATUS_OK) {
        (void)close(fd);
        return status;
    }
    (void)snprintf(dial->conn->label, sizeof dial->conn->label, "%s", dial->address);
    if (dial->tls != NULL)
        (void)conn_secure(dial->conn, dial->tls, NULL); /* on_closed has a failure */
    return STATUS_OK;
}

static void on_dialed(struct dial *inner, enum status status, int fd, const char *text)
{
    struct conn_dial *dial = inner->owner;
    struct err err;

    dial->is_running = false;
    if (status == STATUS_OK) {
        status = open_conn(dial, fd, &err);
        if (status != STATUS_OK)
            text = err.text;
    }
    dial->done(dial, status, text);
}

enum status conn_dial_start(struct conn_dial *dial, struct conn *conn, uv_loop_t *loop,
                            const char *address, struct tls_context *tls, size_t payload_max,
                            const struct conn_handlers *handlers, conn_dial_done done,
                            struct err *err)
{
    enum status status;

    assert(!dial->is_running && done != NULL);
    *dial = (struct conn_dial){.conn = conn,
                               .tls = tls,
                               .payload_max = payload_max,
                               .handlers = handlers,
                               .done = done,
                               .owner = dial->owner};
    (void)snprintf(dial->address, sizeof dial->address, "%s", address);
    if (address_is_unix(address))
        return conn_open_to(conn, loop, address, payload_max, handlers, err);
    dial->dial.owner = dial;
    status = dial_start(&dial->dial, loop, address, on_dialed, err);
    dial->is_running = status == STATUS_OK;
    return status;
}

void conn_dial_cancel(struct conn_dial *dial)
{
    if (dial->is_running)
        dial_cancel(&dial->dial);
}
