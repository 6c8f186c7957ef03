#include "launcherd/node/key_mark.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/read_all.h"
#include "common/io/write_all.h"
#include "common/limits.h"
#include "launcherd/process/rundir.h"

#define NAME "key-of"

/* -1: it is not there, or is none of ours. */
static int open_mark(const char *state_dir)
{
    char path[PATH_MAX];
    struct err none;
    int fd;

    rundir_join(path, state_dir, NAME);
    return own_file_open(path, 0, O_RDONLY, 0, &fd, &none) == STATUS_OK ? fd : -1;
}

void key_mark_write(const char *state_dir, const char *node)
{
    char path[PATH_MAX], text[NODE_NAME_BYTES_MAX + 1];
    struct err none;
    int fd = open_mark(state_dir);

    rundir_join(path, state_dir, NAME);
    (void)snprintf(text, sizeof text, "%.*s\n", (int)NODE_NAME_BYTES_MAX - 1, node);
    if (fd < 0 &&
        own_file_open(path, 0, O_WRONLY | O_CREAT | O_EXCL, 0600, &fd, &none) == STATUS_OK)
        (void)write_all(fd, text, strlen(text));
    if (fd >= 0)
        (void)close(fd);
}

enum status key_mark_check(const char *state_dir, struct err *err)
{
    char node[NODE_NAME_BYTES_MAX] = "";
    const int fd = open_mark(state_dir);
    ssize_t got;

    if (fd < 0)
        return STATUS_OK;
    got = read_all(fd, node, sizeof node - 1);
    node[got > 0 ? got : 0] = '\0';
    node[strcspn(node, "\n")] = '\0';
    (void)close(fd);
    return err_set(err, STATUS_NOT_FOUND, 0,
                   "%.100s/key, the key of node %s, is gone: put it back, or give one with --join; "
                   "without a key say --server, or remove " NAME " there",
                   state_dir, node);
}
