#include "launcherd/c10d/store_main.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "common/io/conn.h"
#include "common/io/stop_signal.h"
#include "common/log.h"
#include "launcherd/c10d/c10d_server.h"
#include "launcherd/c10d/c10d_status.h"

#define CLIENTS_MAX 65536u
#define OTHER_FDS 64u /* descriptors that do not belong to clients */
#define READERS_MAX 16u
#define READERS_BACKLOG 16

struct store {
    uv_loop_t loop;
    uv_signal_t end;
    uv_pipe_t status;
    struct c10d_server *server;
    struct msg_pair_list nodes;
    uint32_t readers;
};

/* A connection that gets the status. */
struct reader {
    uv_pipe_t pipe;
    uv_write_t write;
    struct store *store;
    char *text; /* owned */
};

static void on_reader_closed(uv_handle_t *handle)
{
    struct reader *reader = handle->data;

    reader->store->readers--;
    free(reader->text);
    free(reader);
}

static void on_told(uv_write_t *write, int code)
{
    struct reader *reader = write->data;

    (void)code;
    if (!uv_is_closing((uv_handle_t *)&reader->pipe))
        uv_close((uv_handle_t *)&reader->pipe, on_reader_closed);
}

static int tell(struct reader *reader)
{
    struct store *store = reader->store;
    uv_buf_t buf;

    if (uv_accept((uv_stream_t *)&store->status, (uv_stream_t *)&reader->pipe) < 0 ||
        store->readers > READERS_MAX || store->server == NULL)
        return -1;
    reader->text = c10d_status(store->server, &store->nodes, clock_boot_us());
    if (reader->text == NULL)
        return -1;
    buf = uv_buf_init(reader->text, (unsigned)strlen(reader->text));
    reader->write.data = reader;
    return uv_write(&reader->write, (uv_stream_t *)&reader->pipe, &buf, 1, on_told);
}

static void on_reader(uv_stream_t *status, int code)
{
    struct store *store = status->data;
    struct reader *reader = code < 0 ? NULL : calloc(1, sizeof *reader);

    if (reader == NULL)
        return;
    reader->store = store;
    (void)uv_pipe_init(&store->loop, &reader->pipe, 0);
    reader->pipe.data = reader;
    store->readers++;
    if (tell(reader) < 0)
        uv_close((uv_handle_t *)&reader->pipe, on_reader_closed);
}

static void on_end(uv_signal_t *handle, int number)
{
    struct store *store = handle->data;

    (void)number;
    if (store->server == NULL)
        return;
    c10d_server_close(&store->server, NULL, NULL);
    uv_close((uv_handle_t *)&store->status, NULL);
    uv_close((uv_handle_t *)&store->end, NULL);
}

/* As many clients as files can be open. */
static uint32_t clients_max(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= CLIENTS_MAX + OTHER_FDS)
        return CLIENTS_MAX;
    return files.rlim_cur > 2 * OTHER_FDS ? (uint32_t)files.rlim_cur - OTHER_FDS : OTHER_FDS;
}

static enum status open_server(struct store *store, uint64_t memory_bytes, struct err *err)
{
    const char **peers = calloc(store->nodes.count, sizeof *peers);
    struct c10d_server_options options = {
        .fd = STORE_LISTEN_FD,
        .peers = peers,
        .peer_count = store->nodes.count,
        .limits = {.clients_max = clients_max(),
                   .bytes_max = memory_bytes,
                   .message_bytes_max = memory_bytes / 4},
        .unread_bytes_max = memory_bytes / 4,
    };

    if (peers == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the names of the nodes");
    for (uint32_t i = 0; i < store->nodes.count; i++)
        peers[i] = store->nodes.items[i].value;
    store->server = c10d_server_new(&store->loop, &options, err);
    free(peers);
    return store->server != NULL ? STATUS_OK : err->status;
}

static enum status open_handles(struct store *store, struct err *err)
{
    int code = uv_signal_init(&store->loop, &store->end);

    assert(code == 0); /* fails only without memory, at the start of a process */
    code = uv_pipe_init(&store->loop, &store->status, 0);
    assert(code == 0);
    store->end.data = store->status.data = store;
    code = uv_signal_start(&store->end, on_end, stop_signal());
    if (code == 0)
        code = uv_pipe_open(&store->status, STORE_STATUS_FD);
    if (code == 0)
        code = uv_listen((uv_stream_t *)&store->status, READERS_BACKLOG, on_reader);
    return code == 0 ? STATUS_OK
                     : err_set(err, STATUS_SYSTEM, code, "the status socket of the store: %s",
                               uv_strerror(code));
}

static enum status read_nodes(struct store *store, int count, char *const *arguments,
                              struct err *err)
{
    struct msg_pair *items = calloc((size_t)count / 2 + 1, sizeof *items);

    if (items == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for the names of the nodes");
    store->nodes.items = items;
    for (int i = 0; i + 1 < count; i += 2)
        items[store->nodes.count++] =
            (struct msg_pair){.name = arguments[i], .value = arguments[i + 1]};
    return store->nodes.count > 0 ? STATUS_OK
                                  : err_set(err, STATUS_BAD_INPUT, 0, "no node may connect");
}

int store_main(int count, char *const *arguments)
{
    static struct store store;
    struct err err = {.text = ""};
    uint64_t memory_bytes = count > 0 ? strtoull(arguments[0], NULL, 10) : 0;
    int rc;

    log_open("store", LOG_WARNING, false);
    log_never_wait();
    stop_signal_shield();
    (void)signal(SIGHUP, SIG_IGN); /* like the shim: closing a terminal does not end the job */
    (void)fcntl(STORE_LISTEN_FD, F_SETFD, FD_CLOEXEC);
    (void)fcntl(STORE_STATUS_FD, F_SETFD, FD_CLOEXEC);
    enum status status = read_nodes(&store, count - 1, arguments + 1, &err);
    rc = uv_loop_init(&store.loop);
    if (status == STATUS_OK && rc < 0)
        status = err_set(&err, STATUS_SYSTEM, rc, "no event loop: %s", uv_strerror(rc));
    if (status == STATUS_OK)
        status = open_server(&store, memory_bytes, &err);
    if (status == STATUS_OK)
        status = open_handles(&store, &err);
    if (status != STATUS_OK) {
        log_line(LOG_ERROR, LOG_ABOUT_NONE, "%s", err.text);
        return EXIT_FAILURE;
    }
    (void)uv_run(&store.loop, UV_RUN_DEFAULT);
    free((void *)(uintptr_t)store.nodes.items);
    return uv_loop_close(&store.loop) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
