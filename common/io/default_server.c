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

static bool is_link_to(const char *link, const char *path, bool *is_link)
{
    char now[PATH_MAX];
    const ssize_t bytes = readlink(link, now, sizeof now - 1);

    *is_link = bytes >= 0;
    if (bytes < 0)
        return false;
    now[bytes] = '\0';
    return strcmp(now, path) == 0;
}

void default_server_link(const char *path)
{
    char dir[PATH_MAX], link[PATH_MAX], made[PATH_MAX], address[PATH_MAX];
    struct stat info;
    bool is_link;

    if (geteuid() == 0)
        return;
    service_state_dir("", dir);
    if (snprintf(link, sizeof link, "%s" SOCKET_NAME, dir) >= (int)sizeof link - 16 ||
        strcmp(link, path) == 0 || is_link_to(link, path, &is_link) || !make_dir(dir, true, 0700))
        return;
    (void)snprintf(address, sizeof address, ADDRESS_UNIX_PREFIX "%.*s", PATH_MAX - 32, link);
    if (lstat(link, &info) == 0 && (is_link ? false : !S_ISSOCK(info.st_mode) || answers(address)))
        return;
    (void)snprintf(made, sizeof made, "%.*s.new", PATH_MAX - 16, link);
    (void)unlink(made);
    if (symlink(path, made) == 0 && rename(made, link) != 0)
        (void)unlink(made);
}

void default_server_unlink(const char *path)
{
    struct stat info;

    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && info.st_uid == geteuid())
        (void)unlink(path);
}

void default_server_list(char list[PATH_MAX])
{
    struct places places;
    size_t used = 0;

    find_places(&places, false);
    list[0] = '\0';
    for (uint32_t i = 0; i < places.count; i++) {
        char address[PATH_MAX];

        make_address(&places, i, address);
        if (used + strlen(address) + 2 < PATH_MAX)
            used += (size_t)snprintf(list + used, PATH_MAX - used, "%s%s", used > 0 ? "," : "",
                                     address);
    }
    if (used == 0)
        (void)snprintf(list, PATH_MAX, ADDRESS_UNIX_PREFIX OF_SYSTEM SOCKET_NAME);
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
