/* tls-peer: a client of the server over the network, for tests in other languages (Python's ssl has
 * no pre-shared keys before 3.13).
 *
 *   tls-peer [--raw] HOST:PORT [--key-file FILE]
 *
 * FILE has the key, ddp://HOST:PORT/NAME#SECRET; its server is not used. Without a key the
 * connection is plain TCP. Messages from stdin go to the server, the server's to stdout:
 *
 *   by lines   a line of stdin is the JSON of one message, or "=HEX": bytes sent as they are. A line
 *              of stdout is the JSON of one message; before the first there is
 *              {"event":"ready"}, at the end {"event":"closed","status":"REFUSED","text":"..."}.
 *   --raw      bytes both ways, frames and all: a tunnel. The end is on stderr.
 *
 * At the end of stdin our side ends (close_notify with TLS), and the server's answers are still read. The exit code is
 * 0; 1 if the connection never became ready; 2 for a bad command line. tls-peer does not
 * decode messages, so it can also send messages that no program of ours would send. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "common/buf.h"
#include "common/frame.h"
#include "common/io/dial.h"
#include "common/io/tls.h"
#include "common/key.h"
#include "common/limits.h"

struct peer {
    int fd;
    bool is_raw, is_ready, stdin_ended, has_shut;
    struct tls_context *context;
    struct tls *tls;        /* NULL: plain */
    struct buf lines;       /* from stdin: an incomplete line */
    struct buf unsent;      /* waits for the end of the handshake */
    struct buf wire;        /* waits for the socket */
    struct buf plain;       /* from the server: an incomplete frame */
    enum status end_status; /* OK: not at the end yet */
    char end_text[256];
};

static void end(struct peer *peer, enum status status, const char *text)
{
    if (peer->end_status != STATUS_OK)
        return;
    peer->end_status = status;
    (void)snprintf(peer->end_text, sizeof peer->end_text, "%s", text);
}

/* Prints a text as a string within a line of JSON. */
static void print_text(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            (void)putchar('\\');
        (void)putchar(*text);
    }
}

static void write_all(int fd, const char *bytes, size_t byte_count)
{
    while (byte_count > 0) {
        ssize_t n = write(fd, bytes, byte_count);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) { /* stdout is a socket that does not block */
            struct pollfd ready = {.fd = fd, .events = POLLOUT};

            (void)poll(&ready, 1, -1);
            continue;
        }
        if (n < 0)
            exit(1); /* nobody reads our stdout any more */
        bytes += n;
        byte_count -= (size_t)n;
    }
}

static void say(struct peer *peer, const char *bytes, size_t byte_count)
{
    struct err err = {.text = ""};

    if (byte_count == 0)
        return;
    if (peer->tls == NULL)
        buf_add(&peer->wire, bytes, byte_count);
    else if (!tls_is_ready(peer->tls))
        buf_add(&peer->unsent, bytes, byte_count);
    else if (tls_send(peer->tls, bytes, byte_count, &peer->wire, &err) != STATUS_OK)
        end(peer, err.status, err.text);
}

static void say_line(struct peer *peer, const char *line, size_t byte_count)
{
    const uint8_t head[4] = {(uint8_t)(byte_count >> 24), (uint8_t)(byte_count >> 16),
                             (uint8_t)(byte_count >> 8), (uint8_t)byte_count};

    if (byte_count > 0 && line[0] == '=') {
        for (size_t i = 1; i + 1 < byte_count; i += 2) {
            const char digits[3] = {line[i], line[i + 1], '\0'};
            char byte = (char)strtoul(digits, NULL, 16);

            say(peer, &byte, 1);
        }
    } else if (byte_count > 0) {
        say(peer, (const char *)head, sizeof head);
        say(peer, line, byte_count);
    }
}

static void on_stdin(struct peer *peer)
{
    char bytes[65536];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    const char *newline;

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        peer->stdin_ended = true;
        return;
    }
    if (peer->is_raw) {
        say(peer, bytes, (size_t)n);
        return;
    }
    buf_add(&peer->lines, bytes, (size_t)n);
    while (peer->lines.byte_count > 0 &&
           (newline = memchr(peer->lines.bytes, '\n', peer->lines.byte_count)) != NULL) {
        size_t length = (size_t)(newline - peer->lines.bytes);

        say_line(peer, peer->lines.bytes, length);
        buf_drop(&peer->lines, length + 1);
    }
}

static void become_ready(struct peer *peer)
{
    struct buf unsent = peer->unsent;

    peer->is_ready = true;
    peer->unsent = (struct buf){0};
    if (!peer->is_raw) {
        (void)puts("{\"event\":\"ready\"}");
        (void)fflush(stdout);
    }
    say(peer, unsent.bytes, unsent.byte_count);
    buf_free(&unsent);
}

static void hear(struct peer *peer)
{
    size_t taken = 0, payload_bytes;
    const char *payload;

    if (peer->is_raw) {
        write_all(STDOUT_FILENO, peer->plain.bytes, peer->plain.byte_count);
        buf_drop(&peer->plain, peer->plain.byte_count);
        return;
    }
    while (peer->plain.byte_count > taken &&
           frame_next(peer->plain.bytes + taken, peer->plain.byte_count - taken,
                      FRAME_LARGE_BYTES_MAX, &payload, &payload_bytes, NULL) == STATUS_OK) {
        write_all(STDOUT_FILENO, payload, payload_bytes);
        write_all(STDOUT_FILENO, "\n", 1);
        taken += FRAME_HEAD_BYTES + payload_bytes;
    }
    if (taken > 0)
        buf_drop(&peer->plain, taken);
}

static void on_socket(struct peer *peer)
{
    struct err err = {.text = ""};
    char bytes[65536];
    ssize_t n = recv(peer->fd, bytes, sizeof bytes, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        end(peer, STATUS_CLOSED, n < 0 ? strerror(errno) : "the peer closed the connection");
        return;
    }
    if (peer->tls == NULL)
        buf_add(&peer->plain, bytes, (size_t)n);
    else if (tls_receive(peer->tls, bytes, (size_t)n, &peer->plain, &peer->wire, &err) != STATUS_OK)
        end(peer, err.status, err.text);
    if (peer->tls != NULL && tls_is_ready(peer->tls) && !peer->is_ready)
        become_ready(peer);
    if (peer->plain.byte_count > 0)
        hear(peer);
    if (peer->tls != NULL && tls_is_closed(peer->tls))
        end(peer, STATUS_CLOSED, "the peer closed the connection");
}

static void write_wire(struct peer *peer)
{
    ssize_t n = send(peer->fd, peer->wire.bytes, peer->wire.byte_count, MSG_NOSIGNAL);

    if (n > 0)
        buf_drop(&peer->wire, (size_t)n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        buf_drop(&peer->wire, peer->wire.byte_count); /* the server's earlier data is still read */
}

/* All data from stdin is written, so our side ends. */
static void finish_saying(struct peer *peer)
{
    if (!peer->has_shut && peer->tls != NULL && peer->is_ready)
        tls_end(peer->tls, &peer->wire);
    peer->has_shut = true;
    if (peer->wire.byte_count == 0)
        (void)shutdown(peer->fd, SHUT_WR);
}

static void relay(struct peer *peer)
{
    while (peer->end_status == STATUS_OK || peer->wire.byte_count > 0) {
        struct pollfd fds[2] = {{.fd = peer->fd, .events = POLLIN},
                                {.fd = peer->stdin_ended ? -1 : STDIN_FILENO, .events = POLLIN}};

        if (peer->wire.byte_count > 0)
            fds[0].events |= POLLOUT;
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return;
        if ((fds[0].revents & POLLOUT) != 0 || peer->end_status != STATUS_OK)
            write_wire(peer);
        if (peer->end_status != STATUS_OK)
            return; /* TLS tried to send an alert */
        if ((fds[0].revents & ~POLLOUT) != 0)
            on_socket(peer);
        if (fds[1].revents != 0)
            on_stdin(peer);
        if (peer->stdin_ended && (peer->is_ready || peer->tls == NULL) &&
            (!peer->has_shut || peer->wire.byte_count == 0))
            finish_saying(peer);
    }
}

static void on_dialled(struct dial *dial, enum status status, int fd, const char *text)
{
    struct peer *peer = dial->owner;

    peer->fd = fd;
    if (status != STATUS_OK)
        end(peer, status, text);
}

static void connect_to(struct peer *peer, const char *address)
{
    struct dial dial = {.owner = peer};
    struct err err = {.text = ""};
    uv_loop_t loop;

    (void)uv_loop_init(&loop);
    if (dial_start(&dial, &loop, address, on_dialled, &err) != STATUS_OK)
        end(peer, err.status, err.text);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
}

/* Also begins the handshake. */
static void secure(struct peer *peer, const char *path)
{
    char text[KEY_URL_BYTES_MAX + 2] = "";
    struct err err = {.text = ""};
    FILE *file = fopen(path, "r");
    enum status status;
    struct key key;

    if (file == NULL || fgets(text, sizeof text, file) == NULL) {
        (void)fprintf(stderr, "tls-peer: cannot read %s: %s\n", path, strerror(errno));
        exit(2);
    }
    (void)fclose(file);
    status = key_parse(text, &key, &err);
    if (status == STATUS_OK)
        status = tls_client_new(&peer->context, &key, &err);
    if (status == STATUS_OK)
        status = tls_new(&peer->tls, peer->context, &err);
    if (status == STATUS_OK)
        status = tls_start(peer->tls, &peer->wire, &err);
    if (status != STATUS_OK) {
        (void)fprintf(stderr, "tls-peer: %s\n", err.text);
        exit(2);
    }
}

static void report_end(const struct peer *peer)
{
    if (peer->is_raw) {
        (void)fprintf(stderr, "tls-peer: %s: %s\n", status_name(peer->end_status), peer->end_text);
        return;
    }
    (void)printf("{\"event\":\"closed\",\"status\":\"%s\",\"text\":\"",
                 status_name(peer->end_status));
    print_text(peer->end_text);
    (void)puts("\"}");
}

int main(int argc, char **argv)
{
    struct peer peer = {.fd = -1};
    const char *address = NULL, *key_file = NULL;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--raw") == 0)
            peer.is_raw = true;
        else if (strcmp(argv[i], "--key-file") == 0 && i + 1 < argc)
            key_file = argv[++i];
        else
            address = argv[i];
    }
    if (address == NULL) {
        (void)fputs("usage: tls-peer [--raw] HOST:PORT [--key-file FILE]\n", stderr);
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    if (key_file != NULL)
        secure(&peer, key_file);
    connect_to(&peer, address);
    if (peer.end_status == STATUS_OK) {
        if (peer.tls == NULL)
            become_ready(&peer);
        relay(&peer);
        (void)close(peer.fd);
    }
    report_end(&peer);
    tls_free(&peer.tls);
    tls_context_free(&peer.context);
    buf_free(&peer.lines);
    buf_free(&peer.unsent);
    buf_free(&peer.wire);
    buf_free(&peer.plain);
    return peer.is_ready ? 0 : 1;
}
