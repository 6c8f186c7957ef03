#include "common/io/default_server.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/io/address.h"
#include "common/io/service.h"

#define PLACES_MAX 3u
#define SOCKET_NAME "/rendezvous.sock"
#define OF_SYSTEM "/run/ddp"

struct places {
    char dirs[PLACES_MAX][PATH_MAX];
    uint32_t count;
};

/* Adds a place, unless its path is too long for a socket address. */
static void add(struct places *places, const char *dir, const char *below)
{
    struct sockaddr_un limit;

    assert(places->count < PLACES_MAX);
    if (strlen(dir) + strlen(below) + strlen(SOCKET_NAME) < sizeof limit.sun_path)
        (void)snprintf(places->dirs[places->count++], PATH_MAX, "%s%s", dir, below);
}

static void find_places(struct places *places, bool of_system)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char state[PATH_MAX];

    places->count = 0;
    if (geteuid() != 0) {
        if (runtime != NULL && runtime[0] == '/' && access(runtime, W_OK) == 0)
            add(places, runtime, "/ddp");
        service_state_dir("", state);
        add(places, state, "");
    }
    if (geteuid() == 0 || of_system)
        add(places, OF_SYSTEM, "");
}

static bool make_dir(const char *dir, bool with_parents, mode_t mode)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s", dir);
    for (char *at = path + 1; with_parents && *at != '\0'; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        if (mkdir(path, mode) < 0 && errno != EEXIST)
            return false;
        *at = '/';
    }
    return (mkdir(path, mode) == 0 || errno == EEXIST) && access(path, W_OK) == 0;
}

enum status default_server_make(char path[PATH_MAX], struct err *err)
{
    struct places places;

    find_places(&places, false);
    for (uint32_t i = 0; i < places.count; i++) {
        bool is_last = i + 1 == places.count;

        if (make_dir(places.dirs[i], is_last, geteuid() == 0 ? 0755 : 0700)) {
            (void)snprintf(path, PATH_MAX, "%.*s%s", PATH_MAX - 32, places.dirs[i], SOCKET_NAME);
            return STATUS_OK;
        }
    }
    if (places.count == 0)
        return err_set(err, STATUS_IO, 0,
                       "the path of the state directory is too long for a socket: name a shorter "
                       "one with --socket");
    return err_set(err, STATUS_IO, errno, "cannot make the folder %.160s for the socket: %s",
                   places.dirs[places.count - 1], strerror(errno));
}

static void make_address(const struct places *places, uint32_t index, char address[PATH_MAX])
{
    (void)snprintf(address, PATH_MAX, ADDRESS_UNIX_PREFIX "%.*s%s", PATH_MAX - 32,
                   places->dirs[index], SOCKET_NAME);
}

/* Or its queue of connections is full: then a server listens there, too. */
static bool answers(const char *address)
{
    struct err err;
    int fd = -1;
    const enum status status = address_connect(address, &fd, &err);

    if (fd >= 0)
        (void)close(fd);
    return status == STATUS_OK || status == STATUS_BUSY;
}

void default_server_find(bool of_system, char address[PATH_MAX])
{
    struct places places;
    struct stat info;

    find_places(&places, of_system);
    for (uint32_t i = 0; i < places.count; i++) {
        make_address(&places, i, address);
        if (answers(address))
            return;
    }
    for (uint32_t i = 0; i < places.count; i++) {
        make_address(&places, i, address);
        if (stat(address_path(address), &info) == 0 && S_ISSOCK(info.st_mode))
            return;
    }
    if (places.count > 0)
        make_address(&places, 0, address);
    else
        (void)snprintf(address, PATH_MAX, ADDRESS_UNIX_PREFIX OF_SYSTEM SOCKET_NAME);
}
