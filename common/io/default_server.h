/* Where the server is when nobody says so: one answer for rendezvous, launcherd and ddpctl.
 *
 *   root      /run/ddp/rendezvous.sock
 *   a user    $XDG_RUNTIME_DIR/ddp/rendezvous.sock, where there is such a folder,
 *             else rendezvous.sock in the state directory (service_state_dir)
 *
 * A user's client looks for the user's own server first, then for root's. */
#ifndef COMMON_IO_DEFAULT_SERVER_H
#define COMMON_IO_DEFAULT_SERVER_H

#include <limits.h>
#include <stdbool.h>

#include "common/status.h"

/* The path of the socket that a server makes; the folder of it is made. Root's folder is open to
 * all users, a user's is not. STATUS_IO. */
enum status default_server_make(char path[PATH_MAX], struct err *err);
/* "unix:PATH" of a server: the first that answers, else the first whose socket is there, else where
 * it will be. `of_system`: after the user's own also root's, which takes clients of every user, but
 * no nodes. */
void default_server_find(bool of_system, char address[PATH_MAX]);

#endif
