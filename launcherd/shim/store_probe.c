#include "launcherd/shim/store_probe.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/io/address.h"

static void try_now(struct store_probe *probe);

static void drop_socket(struct store_probe *probe)
{
    if (probe->has_socket)
        uv_close((uv_handle_t *)&probe->tcp, NULL);
    probe->has_socket = false;
}

void store_probe_close(struct store_probe *probe)
{
    drop_socket(probe);
    if (probe->is_open)
        uv_close((uv_handle_t *)&probe->timer, NULL);
    probe->is_open = false;
}

__attribute__((format(printf, 2, 3))) static void fail(struct store_probe *probe,
                                                       const char *format, ...)
{
    va_list args;

    store_probe_close(probe);
    va_start(args, format);
    (void)vsnprintf(probe->text, sizeof probe->text, format, args);
    va_end(args);
    probe->on_failed(probe->owner, probe->text);
}

/* A link-local address may have the name of its interface behind it. */
static bool is_same_host(const char *a, const char *b)
{
    const size_t count = strcspn(a, "%");

    return count == strcspn(b, "%") && strncmp(a, b, count) == 0;
}

/* The address from which it calls; "": not known. */
static void own_host(struct store_probe *probe, char host[ADDRESS_BYTES_MAX])
{
    struct sockaddr_storage own = {0};
    int byte_count = sizeof own;
    char text[ADDRESS_BYTES_MAX + 8];
    in_port_t port;

    host[0] = '\0';
    if (uv_tcp_getsockname(&probe->tcp, (struct sockaddr *)&own, &byte_count) != 0)
        return;
    address_format_tcp(&own, text, sizeof text);
    (void)address_split_tcp(text, host, ADDRESS_BYTES_MAX, &port);
}

static void give_room(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
    static char bytes[16];

    (void)handle;
    (void)wanted;
    *out = uv_buf_init(bytes, sizeof bytes);
}

/* The store has closed the connection: only addresses of nodes of the job are let in. */
static void on_read(uv_stream_t *stream, ssize_t byte_count, const uv_buf_t *bytes)
{
    struct store_probe *probe = stream->data;
    char host[ADDRESS_BYTES_MAX];

    (void)bytes;
    if (byte_count >= 0)
        return;
    own_host(probe, host);
    fail(probe,
         "node %s calls node %s (%s) from %s, which is not let in: start its launcherd with "
         "--address %s",
         probe->node, probe->master, probe->where, host, host);
}

/* Where it calls from the address that the store was told, the store lets it in. */
static bool is_let_in(struct store_probe *probe)
{
    char host[ADDRESS_BYTES_MAX];

    own_host(probe, host);
    return !probe->is_guess && is_same_host(host, probe->address);
}

static void on_time(uv_timer_t *timer)
{
    struct store_probe *probe = timer->data;

    if (uv_now(timer->loop) < probe->until_ms)
        try_now(probe);
    else if (probe->is_connected)
        store_probe_close(probe);
    else
        fail(probe,
             "node %s does not reach node %s: nothing answers at %s; is there a firewall between "
             "them? "
             "Let their TCP ports through, or name another way with launcherd --interface",
             probe->node, probe->master, probe->where);
}

/* What refuses may be a firewall, or may pass. */
static void try_later(struct store_probe *probe, int code)
{
    drop_socket(probe);
    if (uv_now(probe->timer.loop) + STORE_PROBE_AGAIN_MS < probe->until_ms)
        (void)uv_timer_start(&probe->timer, on_time, STORE_PROBE_AGAIN_MS, 0);
    else
        fail(
            probe,
            "node %s does not reach node %s at %s: %s; is there a firewall between them? Let their "
            "TCP ports through, or name another way with launcherd --interface",
            probe->node, probe->master, probe->where, uv_strerror(code));
}

static void on_connect(uv_connect_t *request, int status)
{
    struct store_probe *probe = request->data;

    if (!probe->has_socket)
        return;
    if (status != 0) {
        try_later(probe, status);
        return;
    }
    probe->is_connected = true;
    probe->tcp.data = probe;
    if (is_let_in(probe) || uv_read_start((uv_stream_t *)&probe->tcp, give_room, on_read) != 0)
        store_probe_close(probe);
}

static void try_now(struct store_probe *probe)
{
    const uint64_t now_ms = uv_now(probe->timer.loop);
    int code = uv_tcp_init(probe->timer.loop, &probe->tcp);

    assert(code == 0 &&
           now_ms < probe->until_ms); /* the first neither allocates nor asks the kernel */
    probe->has_socket = true;
    probe->connect.data = probe;
    (void)uv_timer_start(&probe->timer, on_time, probe->until_ms - now_ms, 0);
    code = uv_tcp_connect(&probe->connect, &probe->tcp, (const struct sockaddr *)&probe->to,
                          on_connect);
    if (code != 0)
        try_later(probe, code);
}

static bool resolve(const struct store_probe_way *way, struct sockaddr_storage *to)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;

    return uv_ip4_addr(way->master_addr, (int)way->port, (struct sockaddr_in *)to) == 0 ||
           uv_ip6_addr(way->master_addr, (int)way->port, v6) == 0;
}

void store_probe_begin(struct store_probe *probe, uv_loop_t *loop,
                       const struct store_probe_way *way, uint32_t timeout_ms)
{
    assert(!probe->is_open && probe->on_failed != NULL);
    probe->to = (struct sockaddr_storage){0};
    if (!resolve(way, &probe->to))
        return; /* a name: a server of long ago */
    (void)snprintf(probe->node, sizeof probe->node, "%s", way->node);
    (void)snprintf(probe->master, sizeof probe->master, "%s", way->master);
    (void)snprintf(probe->address, sizeof probe->address, "%s", way->address);
    probe->is_guess = way->is_guess;
    probe->is_connected = false;
    address_format_tcp(&probe->to, probe->where, sizeof probe->where);
    (void)uv_timer_init(loop, &probe->timer);
    probe->timer.data = probe;
    probe->is_open = true;
    probe->until_ms = uv_now(loop) + timeout_ms;
    try_now(probe);
}
