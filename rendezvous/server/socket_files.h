/* The server's unix socket may be removed while it runs: a logout takes the runtime folder with all that is in it.
 * What a thread does about it. */
#ifndef RENDEZVOUS_SERVER_SOCKET_FILES_H
#define RENDEZVOUS_SERVER_SOCKET_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "common/io/file_work.h"

struct server;

struct socket_look {
    struct file_work work;
    struct server *server; /* only for `done` */
    bool is_default;       /* the path was not given: another place will do */
    int mode;
    struct stat made;    /* the socket as it was made; then as it was made anew */
    char path[PATH_MAX]; /* likewise */
    bool is_gone;        /* then: */
    int fd;              /* listens at `path`, or -1: `err` says why */
    struct err err;
};

/* Looks whether the socket is still there, and makes it anew if not. */
void socket_files_look(struct file_work *work);
void socket_files_drop(struct file_work *work);

#endif
