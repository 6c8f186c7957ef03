/* ddpctl http: pages and metrics for browsers and Prometheus (http_server.h), until a signal ends it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/notify.h"
#include "common/io/service.h"
#include "ddpctl/http_server.h"
#include "ddpctl/verbs.h"

#define LISTEN_DEFAULT "127.0.0.1:7480"
#define FILE_BYTES_MAX 65536u
#define BACKLOG 128

struct http_run {
    struct ctl *ctl;
    uv_loop_t loop;
    struct http_server http;
    struct service_signals signals;
    char token[HTTP_TOKEN_MAX];
    char machine[256];     /* the name of this machine */
    char *cert, *cert_key; /* owned; NULL: none */
    int fd;
    bool is_local;
    int exit_code;
};

/* NULL: `err` says why. A secret must be readable only by its owner. */
static char *read_file(const char *path, bool is_secret, struct err *err)
{
    char *text = calloc(1, FILE_BYTES_MAX);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat stat;
    size_t length = 0;
    ssize_t got = 0;

    if (text == NULL || fd < 0 || fstat(fd, &stat) != 0) {
        (void)err_set(err, STATUS_IO, errno, "cannot read %.200s: %s", path, strerror(errno));
    } else if (!S_ISREG(stat.st_mode)) {
        (void)err_set(err, STATUS_BAD_INPUT, 0, "%.200s is no ordinary file", path);
    } else if (is_secret && (stat.st_mode & 077) != 0) {
        (void)err_set(err, STATUS_REFUSED, 0,
                      "others may read %.150s: chmod 600 it, and take a new key if they did", path);
    } else {
        while (length < FILE_BYTES_MAX - 1 &&
               (got = read(fd, text + length, FILE_BYTES_MAX - 1 - length)) > 0)
            length += (size_t)got;
        if (got < 0)
            (void)err_set(err, STATUS_IO, errno, "cannot read %.200s: %s", path, strerror(errno));
        else if (length == FILE_BYTES_MAX - 1)
            (void)err_set(err, STATUS_TOO_BIG, 0, "%.200s is too large", path);
    }
    if (fd >= 0)
        (void)close(fd);
    if (err->status == STATUS_OK)
        return text;
    free(text);
    return NULL;
}

static enum status read_key(struct http_run *run, struct err *err)
{
    const char *path = run->ctl->options.key_file;
    struct err why = {0};
    char *text;
    enum status status;

    if (path == NULL)
        return STATUS_OK;
    text = read_file(path, true, err);
    if (text == NULL)
        return err->status;
    status = http_token_parse(text, strlen(text), run->token, &why);
    explicit_bzero(text, strlen(text));
    free(text);
    if (status != STATUS_OK)
        return err_set(err, status, 0, "%.150s: %.80s", path, why.text);
    return STATUS_OK;
}

static enum status read_cert(struct http_run *run, struct err *err)
{
    const struct options *options = &run->ctl->options;

    if ((options->cert != NULL) != (options->cert_key != NULL))
        return err_set(err, STATUS_BAD_INPUT, 0, "--cert and --cert-key belong together");
    if (options->cert == NULL)
        return STATUS_OK;
    run->cert = read_file(options->cert, false, err);
    run->cert_key = run->cert != NULL ? read_file(options->cert_key, true, err) : NULL;
    return run->cert_key != NULL ? STATUS_OK : err->status;
}

/* An address that the network can reach serves pages only to clients with a key. */
static enum status bind_socket(struct http_run *run, struct err *err)
{
    const char *address =
        run->ctl->options.listen != NULL ? run->ctl->options.listen : LISTEN_DEFAULT;
    struct sockaddr_storage bound;
    socklen_t byte_count = sizeof bound;
    enum status status;

    if (address_is_unix(address))
        return err_set(err, STATUS_BAD_INPUT, 0, "--listen: HOST:PORT, no unix socket");
    if (!address_is_loopback(address) && run->token[0] == '\0')
        return err_set(err, STATUS_REFUSED, 0,
                       "--listen %.60s: others could reach it, so it needs --key-file", address);
    status = address_listen(address, 0600, &run->fd, NULL, err);
    if (status != STATUS_OK)
        return status;
    if (listen(run->fd, BACKLOG) != 0 ||
        getsockname(run->fd, (struct sockaddr *)&bound, &byte_count) != 0) {
        (void)close(run->fd);
        return err_set(err, STATUS_SYSTEM, errno, "cannot listen on %.60s: %s", address,
                       strerror(errno));
    }
    run->is_local = address_is_local(&bound);
    return STATUS_OK;
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct http_run *run = handle->data;

    (void)number;
    run->exit_code = CTL_OK;
    http_server_close(&run->http);
    service_signals_close(&run->signals);
}

static void on_failed(void *owner, const struct err *err)
{
    struct http_run *run = owner;

    run->exit_code = ctl_fail_server(run->ctl, err);
    service_signals_close(&run->signals);
}

/* Prints one line on stdout, as the daemons do, with the port that the system chose for port 0. */
static void say_ready(struct http_run *run)
{
    struct sockaddr_storage bound;
    socklen_t byte_count = sizeof bound;
    struct buf out = {0};
    char text[ADDRESS_BYTES_MAX] = "";

    if (getsockname(run->fd, (struct sockaddr *)&bound, &byte_count) == 0)
        address_format_tcp(&bound, text, sizeof text);
    if (run->ctl->screen.json)
        buf_printf(&out, "{\"schema\":\"ddp.v1\",\"type\":\"http\",\"url\":\"%s://%s/\"}\n",
                   run->cert != NULL ? "https" : "http", text);
    else
        buf_printf(&out, "ddpctl http: ready %s://%s/\n", run->cert != NULL ? "https" : "http",
                   text);
    (void)screen_out(&run->ctl->screen, &out);
    notify_ready();
    if (!run->is_local && run->cert == NULL)
        screen_message(
            &run->ctl->screen,
            "-- not encrypted: whoever listens on the network sees the key and the pages. "
            "Give --cert and --cert-key, or put a proxy with TLS in front --");
}

static enum status open_server(struct http_run *run, struct err *err)
{
    const struct option_texts *hosts = &run->ctl->options.hosts;
    struct http_server_options options = {.loop = &run->loop,
                                          .server = &run->ctl->server,
                                          .fd = run->fd,
                                          .is_local = run->is_local,
                                          .cert = run->cert,
                                          .key = run->cert_key,
                                          .owner = run,
                                          .on_failed = on_failed};

    if (hosts->count > HTTP_HOSTS_MAX - 1) {
        (void)close(run->fd);
        return err_set(err, STATUS_TOO_BIG, 0, "--host: at most %d names", HTTP_HOSTS_MAX - 1);
    }
    for (uint32_t i = 0; i < hosts->count; i++)
        options.rules.hosts[options.rules.host_count++] = hosts->items[i];
    if (!run->is_local && gethostname(run->machine, sizeof run->machine - 1) == 0)
        options.rules.hosts[options.rules.host_count++] = run->machine;
    options.rules.token = run->token[0] != '\0' ? run->token : NULL;
    return http_server_open(&run->http, &options, err);
}

static int serve(struct http_run *run)
{
    struct err err = {0};
    int rc = uv_loop_init(&run->loop);

    if (rc != 0)
        return ctl_fail(run->ctl, CTL_FAILED, "no event loop: out of files or memory", "");
    if (open_server(run, &err) != STATUS_OK) {
        run->exit_code = ctl_fail_err(run->ctl, CTL_FAILED, &err, "");
    } else if (service_signals_open(&run->signals, &run->loop, on_signal, run) != 0) {
        run->exit_code = ctl_fail(run->ctl, CTL_FAILED, "signals cannot be watched", "");
        http_server_close(&run->http);
    } else {
        say_ready(run);
    }
    (void)uv_run(&run->loop, UV_RUN_DEFAULT);
    http_server_free(&run->http);
    (void)uv_loop_close(&run->loop);
    return run->exit_code;
}

/* Whether starting it again cannot help. */
static bool is_usage(enum status status)
{
    return status == STATUS_BAD_INPUT || status == STATUS_REFUSED || status == STATUS_TOO_BIG;
}

int verb_http(struct ctl *ctl)
{
    struct http_run *run;
    struct err err = {0};
    enum status status;
    int rc = verb_too_many(ctl, 0);

    if (rc != CTL_OK)
        return rc;
    run = calloc(1, sizeof *run);
    if (run == NULL)
        return ctl_fail(ctl, CTL_FAILED, "out of memory", "");
    run->ctl = ctl;
    service_no_core(); /* a key is in its memory */
    status = read_key(run, &err);
    if (status == STATUS_OK)
        status = read_cert(run, &err);
    if (status == STATUS_OK)
        status = bind_socket(run, &err);
    rc = status == STATUS_OK
             ? serve(run)
             : ctl_fail_err(ctl, is_usage(status) ? CTL_USAGE : CTL_FAILED, &err,
                            status == STATUS_REFUSED
                                ? "make one: (umask 077; openssl rand -base64 33 > FILE)"
                                : "");
    explicit_bzero(run->token, sizeof run->token);
    if (run->cert_key != NULL)
        explicit_bzero(run->cert_key, strlen(run->cert_key));
    free(run->cert);
    free(run->cert_key);
    free(run);
    return rc;
}
