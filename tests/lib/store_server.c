/* The c10d store alone, for tests and benchmarks: store_server [--listen ADDRESS] [--peer ADDRESS]
 * [--clients N] [--unread BYTES]. Prints "listening ADDRESS". For each line on stdin it lists its
 * clients and the keys they wait for: a line "client ADDRESS waits KEY..." each, then "total
 * CLIENTS KEYS BYTES". It ends at the end of stdin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "common/log.h"
#include "common/options.h"
#include "launcherd/c10d/c10d_server.h"

struct settings {
    const char *listen, *peer;
    uint64_t clients, unread;
};

static struct c10d_server *server;
static uv_pipe_t input;

static void print_client(const struct c10d *core, const struct c10d_client_info *info)
{
    static const char *const words[] = {[C10D_WAITS_NOT] = "",
                                        [C10D_WAITS_FOR_KEYS] = " waits",
                                        [C10D_WAITS_AT_BARRIER] = " barrier"};
    const char *key;
    size_t byte_count;

    (void)printf("client %s%s", c10d_server_peer(server, info->client), words[info->waits]);
    for (uint32_t at = 0; c10d_next_missing(core, info->client, &at, &key, &byte_count);)
        (void)printf(" %.*s", (int)byte_count, key);
    (void)printf("\n");
}

static void print_state(void)
{
    const struct c10d *core = c10d_server_core(server);
    const struct c10d_totals totals = c10d_totals(core);
    struct c10d_client_info info;

    for (uint32_t from = 0; c10d_next_client(core, from, &info); from = info.client + 1)
        print_client(core, &info);
    (void)printf("total %u %llu %llu\n", totals.clients, (unsigned long long)totals.keys,
                 (unsigned long long)totals.bytes);
    (void)fflush(stdout);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char bytes[256];

    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof bytes);
}

static void on_input(uv_stream_t *stream, ssize_t byte_count, const uv_buf_t *buf)
{
    for (ssize_t i = 0; i < byte_count; i++)
        if (buf->base[i] == '\n')
            print_state();
    if (byte_count >= 0)
        return;
    c10d_server_close(&server, NULL, NULL);
    uv_close((uv_handle_t *)stream, NULL);
}

static enum status read_settings(int argc, char **argv, struct settings *settings)
{
    static const struct option_row rows[] = {{.name = "listen",
                                              .kind = OPTION_TEXT,
                                              OPTION_INTO(struct settings, listen),
                                              .help = "HOST:PORT"},
                                             {.name = "peer",
                                              .kind = OPTION_TEXT,
                                              OPTION_INTO(struct settings, peer),
                                              .help = "address that may connect"},
                                             {.name = "clients",
                                              .kind = OPTION_U64,
                                              OPTION_INTO(struct settings, clients),
                                              .help = "at most"},
                                             {.name = "unread",
                                              .kind = OPTION_U64,
                                              OPTION_INTO(struct settings, unread),
                                              .help = "bytes at most"}};
    static const struct option_table table = {.program = "store_server",
                                              .usage = "[options]",
                                              .rows = rows,
                                              .row_count = sizeof rows / sizeof rows[0]};
    struct option_result result;
    struct err err = {.text = ""};
    enum status status = options_parse(&table, argc, argv, NULL, settings, &result, &err);

    if (status != STATUS_OK)
        (void)fprintf(stderr, "%s\n", err.text);
    return status;
}

int main(int argc, char **argv)
{
    struct settings settings = {.listen = "127.0.0.1:0", .peer = "127.0.0.1"};
    struct c10d_server_options options = {.peers = &settings.peer, .peer_count = 1};
    struct err err = {.text = ""};
    uv_loop_t loop;

    log_open("store", LOG_INFO, false);
    if (read_settings(argc, argv, &settings) != STATUS_OK || uv_loop_init(&loop) < 0)
        return 2;
    options.address = settings.listen;
    options.limits.clients_max = (uint32_t)settings.clients;
    options.unread_bytes_max = settings.unread;
    server = c10d_server_new(&loop, &options, &err);
    if (server == NULL) {
        (void)fprintf(stderr, "%s\n", err.text);
        (void)uv_run(&loop, UV_RUN_DEFAULT);
        return uv_loop_close(&loop) == 0 ? 1 : 3;
    }
    (void)printf("listening %s\n", c10d_server_bound(server));
    (void)fflush(stdout);
    if (uv_pipe_init(&loop, &input, 0) < 0 || uv_pipe_open(&input, 0) < 0 ||
        uv_read_start((uv_stream_t *)&input, on_alloc, on_input) < 0)
        return 2;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? 0 : 3;
}
