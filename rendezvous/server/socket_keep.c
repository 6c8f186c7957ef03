/* Looks from time to time whether the unix socket can still be found, and listens anew if not. Connections that
 * are there go on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/address.h"
#include "common/log.h"
#include "rendezvous/server/internal.h"
#include "rendezvous/server/socket_files.h"

#define LOOK_MS 2000u

/* A socket that was made anew. */
struct socket_again {
    struct listener listener;
    struct socket_again *next;
};

static void look_later(struct server *server);

/* False: look->err says why. */
static bool listen_anew(struct server *server, struct socket_look *look)
{
    struct socket_again *again = calloc(1, sizeof *again);
    char address[PATH_MAX + 16];
    const int fd = look->fd;

    (void)snprintf(address, sizeof address, ADDRESS_UNIX_PREFIX "%s", look->path);
    if (again == NULL)
        return false;
    again->next = server->sockets_made;
    server->sockets_made = again; /* its handle may still close when it could not be used */
    again->listener.owner = &server->endpoints[0];
    again->listener.on_connection = listen_on_connection;
    look->fd = -1;
    if (listener_adopt(&again->listener, server->loop, address, fd, &look->err) != STATUS_OK)
        return false;
    (void)snprintf(again->listener.unlink_path, sizeof again->listener.unlink_path, "%s",
                   look->path);
    again->listener.unlink_made = look->made;
    if (server->socket_again != NULL)
        listener_close(&server->socket_again->listener);
    server->socket_again = again;
    return listener_start(&again->listener, &look->err) == STATUS_OK;
}

static void on_looked(struct file_work *work, const char *late)
{
    struct socket_look *look = (struct socket_look *)work;
    struct server *server = look->server;

    if (server->is_stopping)
        return;
    if (late == NULL && look->is_gone && look->fd >= 0 && listen_anew(server, look)) {
        log_line(LOG_WARNING, LOG_ABOUT_NONE, "the socket %s was removed, and is made anew: %s",
                 server->socket_path, look->path);
        (void)snprintf(server->socket_path, sizeof server->socket_path, "%s", look->path);
        server->socket_made = look->made;
        server->socket_is_missed = false;
    } else if (late == NULL && look->is_gone && !server->socket_is_missed) {
        log_line(
            LOG_ERROR, LOG_ABOUT_NONE,
            "the socket %s was removed, and cannot be made anew (%s): nobody can connect to it. "
            "It is tried again",
            server->socket_path, look->err.text);
        server->socket_is_missed = true;
    }
    look_later(server);
}

static struct socket_look *look_new(struct server *server)
{
    struct socket_look *look = calloc(1, sizeof *look);

    if (look == NULL)
        return NULL;
    *look = (struct socket_look){.work = {.lane = FILE_LANE_CONNECT,
                                          .limit_ms = FILE_WORK_LATE_MS,
                                          .run = socket_files_look,
                                          .done = on_looked,
                                          .drop = socket_files_drop},
                                 .server = server,
                                 .is_default = server->socket_is_default,
                                 .mode = server->socket_mode,
                                 .made = server->socket_made,
                                 .fd = -1};
    (void)snprintf(look->path, sizeof look->path, "%s", server->socket_path);
    return look;
}

static void on_timer(uv_timer_t *timer)
{
    struct server *server = timer->data;
    struct socket_look *look = look_new(server);

    if (look == NULL || !file_work_start(server->files, &look->work))
        look_later(server);
}

static void look_later(struct server *server)
{
    (void)uv_timer_start(&server->socket_timer, on_timer, LOOK_MS, 0);
    uv_unref((uv_handle_t *)&server->socket_timer);
}

void socket_keep_begin(struct server *server, const struct server_options *options)
{
    const struct listener *listener = &server->endpoints[0].listener;
    struct socket_look *look;

    (void)uv_timer_init(server->loop, &server->socket_timer);
    server->socket_timer.data = server;
    server->keeps_socket = true;
    if (listener->unlink_path[0] == '\0' || server->files == NULL)
        return; /* whoever made it looks after it */
    server->socket_is_default = options->socket_is_default;
    server->socket_mode = options->is_for_all ? 0666 : 0600;
    server->socket_made = listener->unlink_made;
    (void)snprintf(server->socket_path, sizeof server->socket_path, "%s", listener->unlink_path);
    look = look_new(server);
    if (look != NULL)
        file_work_wait(server->files, &look->work);
}

void socket_keep_accept(struct server *server)
{
    if (server->socket_again != NULL)
        listen_on_connection(&server->socket_again->listener);
}

void socket_keep_stop(struct server *server)
{
    if (!server->keeps_socket)
        return;
    uv_close((uv_handle_t *)&server->socket_timer, NULL);
    if (server->socket_again != NULL)
        listener_close(&server->socket_again->listener);
}

void socket_keep_free(struct server *server)
{
    while (server->sockets_made != NULL) {
        struct socket_again *again = server->sockets_made;

        server->sockets_made = again->next;
        free(again);
    }
}
