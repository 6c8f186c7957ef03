#include "rendezvous/server/socket_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/default_server.h"

static void make_anew(struct socket_look *look)
{
    char address[PATH_MAX + 16];

    if (look->is_default && default_server_make(look->path, &look->err) != STATUS_OK)
        return;
    if (look->is_default)
        default_server_unlink(look->path);
    (void)snprintf(address, sizeof address, ADDRESS_UNIX_PREFIX "%s", look->path);
    if (address_listen(address, look->mode, &look->fd, &look->made, &look->err) != STATUS_OK)
        look->fd = -1;
}

void socket_files_look(struct file_work *work)
{
    struct socket_look *look = (struct socket_look *)work;
    struct stat now;

    file_work_at(work, FILE_DISK_NONE, "lstat");
    look->is_gone = lstat(look->path, &now) != 0 || now.st_dev != look->made.st_dev ||
                    now.st_ino != look->made.st_ino;
    if (look->is_gone)
        make_anew(look);
    if (look->is_default && (!look->is_gone || look->fd >= 0))
        default_server_link(look->path);
}

void socket_files_drop(struct file_work *work)
{
    struct socket_look *look = (struct socket_look *)work;

    if (look->fd >= 0)
        (void)close(look->fd);
    free(look);
}
