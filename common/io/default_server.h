/* The server's address if none is given. rendezvous, launcherd and ddpctl all use this.
 *
 *   root      /run/ddp/rendezvous.sock
 *   a user    $XDG_RUNTIME_DIR/ddp/rendezvous.sock if that variable names a folder,
 *             else rendezvous.sock in the state directory (service_state_dir)
 *
 * A user's client looks for the user's own server first, then for root's. In the state directory the server
 * leaves a link to its socket, for clients that have no XDG_RUNTIME_DIR (cron) or another one. */
#ifndef COMMON_IO_DEFAULT_SERVER_H
#define COMMON_IO_DEFAULT_SERVER_H

#include <limits.h>
#include <stdbool.h>

#include "common/status.h"

/* The path for a server's socket; its folder is created. Root's folder is open to all users, a
 * user's is not. STATUS_IO. */
enum status default_server_make(char path[PATH_MAX], struct err *err);
/* Makes that link to `path`, unless it is there, or a server's socket is in its place. */
void default_server_link(const char *path);
/* Removes the link at `path`, if one is there: a socket is to be made in its place. */
void default_server_unlink(const char *path);
/* The addresses of all places as a list (server_list.h), for a node: while it runs, its server may be started
 * anew at another one. */
void default_server_list(char list[PATH_MAX]);
/* "unix:PATH" of a server: the first that answers, otherwise the first whose socket exists,
 * otherwise where it would be. `of_system`: considers root's server after the user's own. Root's
 * takes clients of every user, but no nodes. */
void default_server_find(bool of_system, char address[PATH_MAX]);

#endif
