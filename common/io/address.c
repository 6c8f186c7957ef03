#include "common/io/address.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/io/bound_socket.h"
#include "common/io/folder_lock.h"
#include "common/io/own_path.h"

#define CONNECT_TIMEOUT_MS 2000
#define BACKLOG 128
#define LOCK_TURNS 100 /* a second */
#define LOCK_PAUSE_NS 10000000
#define PATH_BYTES_MAX 4096

bool address_is_unix(const char *address)
{
    return strncmp(address, ADDRESS_UNIX_PREFIX, sizeof ADDRESS_UNIX_PREFIX - 1) == 0;
}

const char *address_path(const char *address)
{
    return address + sizeof ADDRESS_UNIX_PREFIX - 1;
}

static bool parse_port(const char *text, in_port_t *port)
{
    uint32_t value = 0;

    if (text[0] == '\0' || strlen(text) > 5)
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (uint32_t)(*text - '0');
    }
    if (value > UINT16_MAX)
        return false;
    *port = htons((uint16_t)value);
    return true;
}

bool address_split_tcp(const char *address, char *host, size_t host_bytes, in_port_t *port)
{
    const char *colon = strrchr(address, ':'), *first = address;
    size_t count;

    if (colon == NULL || !parse_port(colon + 1, port))
        return false;
    count = (size_t)(colon - address);
    if (count >= 2 && first[0] == '[' && first[count - 1] == ']') {
        first++;
        count -= 2;
    } else if (memchr(first, ':', count) != NULL) {
        return false; /* IPv6 addresses need brackets */
    }
    if (count == 0 || count >= host_bytes)
        return false;
    memcpy(host, first, count);
    host[count] = '\0';
    return true;
}

static bool is_loopback(const struct sockaddr_storage *resolved)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)resolved;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)resolved;

    if (resolved->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        return v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET;
    if (resolved->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
    return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static bool resolve(const char *host, in_port_t port, struct sockaddr_storage *resolved,
                    socklen_t *byte_count)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)resolved;
    struct sockaddr_in *v4 = (struct sockaddr_in *)resolved;

    *resolved = (struct sockaddr_storage){0};
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = port;
        *byte_count = sizeof *v4;
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = port;
        *byte_count = sizeof *v6;
        return true;
    }
    return false;
}

enum status address_parse_tcp(const char *address, const char *verb,
                              struct sockaddr_storage *resolved, socklen_t *byte_count,
                              struct err *err)
{
    char host[INET6_ADDRSTRLEN];
    in_port_t port;

    if (!address_split_tcp(address, host, sizeof host, &port) ||
        !resolve(host, port, resolved, byte_count))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "\"%.80s\" is no address: expected unix:PATH, or HOST:PORT with a numeric "
                       "HOST or localhost",
                       address);
    if (!is_loopback(resolved))
        return err_set(err, STATUS_REFUSED, 0,
                       "refusing to %s %s: without keys only loopback is allowed (keys and TLS are "
                       "not available in this version); use 127.0.0.1, or a unix socket",
                       verb, address);
    return STATUS_OK;
}

bool address_is_loopback(const char *address)
{
    struct sockaddr_storage resolved;
    socklen_t byte_count = 0;
    char host[INET6_ADDRSTRLEN];
    in_port_t port;

    return address_split_tcp(address, host, sizeof host, &port) &&
           resolve(host, port, &resolved, &byte_count) && is_loopback(&resolved);
}

void address_format_tcp(const struct sockaddr_storage *resolved, char *text, size_t text_bytes)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)resolved;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)resolved;
    char host[INET6_ADDRSTRLEN] = "?";

    if (resolved->ss_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        (void)snprintf(text, text_bytes, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        (void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        (void)snprintf(text, text_bytes, "%s:%u", host, ntohs(v4->sin_port));
    }
}

/* The directory of `path`, opened with `flags`. */
static enum status open_parent(const char *path, int flags, int *fd, struct err *err)
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_BYTES_MAX] = ".";

    if (strlen(path) >= sizeof parent)
        return err_set(err, STATUS_TOO_BIG, 0, "socket path of %zu bytes, at most %zu are allowed",
                       strlen(path), sizeof parent - 1);
    if (slash != NULL) {
        size_t count = slash == path ? 1 : (size_t)(slash - path);

        memcpy(parent, path, count);
        parent[count] = '\0';
    }
    *fd = open(parent, flags | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                       "unix:%.150s: its directory: %s", path, strerror(errno));
    return STATUS_OK;
}

/* A path over 107 bytes does not fit in a socket address. It is then reached through its directory,
 * opened as `*parent`, which the caller closes; -1 where that was not needed. */
static enum status unix_address(const char *path, struct sockaddr_un *address, int *parent,
                                struct err *err)
{
    const char *slash = strrchr(path, '/');
    enum status status;
    int count;

    *parent = -1;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (path[0] == '\0')
        return err_set(err, STATUS_BAD_INPUT, 0, "unix: needs a path, as unix:/run/ddp.sock");
    if (strlen(path) < sizeof address->sun_path) {
        memcpy(address->sun_path, path, strlen(path) + 1);
        return STATUS_OK;
    }
    status = open_parent(path, O_PATH, parent, err);
    if (status != STATUS_OK)
        return status;
    count = snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s", *parent,
                     slash != NULL ? slash + 1 : path);
    if (count < (int)sizeof address->sun_path)
        return STATUS_OK;
    (void)close(*parent);
    *parent = -1;
    return err_set(err, STATUS_TOO_BIG, 0, "unix:%.120s: the name after its last / is too long",
                   path);
}

static enum status refuse_connect(const char *address, int code, struct err *err)
{
    if (code == ENOENT)
        return err_set(err, STATUS_NOT_FOUND, code, "nobody listens on %.150s: %s", address,
                       strerror(code));
    if (code == ECONNREFUSED)
        return err_set(err, STATUS_REFUSED, code, "nobody listens on %.150s: %s", address,
                       strerror(code));
    if (code == EAGAIN)
        return err_set(err, STATUS_BUSY, code,
                       "%.150s does not answer: its queue of connections is full", address);
    return err_set(err, STATUS_IO, code, "connect to %.150s: %s", address, strerror(code));
}

/* errno of the connect; 0: it is connected */
static int connect_unix(int fd, const struct sockaddr_un *address)
{
    return connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
}

static enum status open_socket(int family, int *fd, struct err *err)
{
    *fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0)
        return err_set(err, STATUS_SYSTEM, errno, "socket: %s", strerror(errno));
    return STATUS_OK;
}

/* Leaves no number behind that a caller could close a second time. */
static void close_socket(int *fd)
{
    (void)close(*fd);
    *fd = -1;
}

static enum status connect_to_path(const char *address, int *fd, struct err *err)
{
    struct sockaddr_un resolved;
    enum status status;
    int parent = -1, code;

    status = unix_address(address_path(address), &resolved, &parent, err);
    if (status != STATUS_OK)
        return status;
    status = open_socket(AF_UNIX, fd, err);
    if (status == STATUS_OK) {
        code = connect_unix(*fd, &resolved);
        if (code != 0) {
            close_socket(fd);
            status = refuse_connect(address, code, err);
        }
    }
    if (parent >= 0)
        (void)close(parent);
    return status;
}

/* waits for a connect that is in progress: its errno, or 0 when it is connected */
static int await_connect(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int code = 0, count;
    socklen_t code_bytes = sizeof code;

    do
        count = poll(&poll_fd, 1, CONNECT_TIMEOUT_MS);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return errno;
    if (count == 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &code_bytes) < 0 ? errno : code;
}

static enum status connect_to_tcp(const char *address, int *fd, struct err *err)
{
    struct sockaddr_storage resolved = {0};
    socklen_t byte_count = 0;
    enum status status;
    int code = 0;

    status = address_parse_tcp(address, "connect to", &resolved, &byte_count, err);
    if (status == STATUS_OK)
        status = open_socket(resolved.ss_family, fd, err);
    if (status != STATUS_OK)
        return status;
    if (connect(*fd, (const struct sockaddr *)&resolved, byte_count) < 0)
        code = errno == EINPROGRESS ? await_connect(*fd) : errno;
    if (code == 0)
        return STATUS_OK;
    close_socket(fd);
    if (code == ETIMEDOUT)
        return err_set(err, STATUS_TIMEOUT, code, "%.150s does not answer", address);
    return refuse_connect(address, code, err);
}

enum status address_connect(const char *address, int *fd, struct err *err)
{
    return address_is_unix(address) ? connect_to_path(address, fd, err)
                                    : connect_to_tcp(address, fd, err);
}

/* A path to listen on, and its directory. */
struct place {
    const char *path, *name;
    int parent_fd;
    struct sockaddr_un resolved;
};

/* Removes the file if it is a socket of ours that nobody listens on. */
static enum status remove_stale(const struct place *place, struct err *err)
{
    const char *path = place->path;
    enum status status;
    struct stat info;
    int fd = -1, code;

    if (fstatat(place->parent_fd, place->name, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT
                   ? STATUS_OK
                   : err_set(err, STATUS_IO, errno, "unix:%.150s: %s", path, strerror(errno));
    if (!S_ISSOCK(info.st_mode))
        return err_set(err, STATUS_CONFLICT, 0, "unix:%.150s exists and is not a socket", path);
    status = open_socket(AF_UNIX, &fd, err);
    if (status != STATUS_OK)
        return status;
    code = connect_unix(fd, &place->resolved);
    (void)close(fd);
    if (code == 0 || code == EAGAIN) /* EAGAIN: its queue of connections is full */
        return err_set(err, STATUS_BUSY, 0, "another process listens on unix:%.150s", path);
    if (code == ENOENT)
        return STATUS_OK;
    if (code != ECONNREFUSED)
        return err_set(err, STATUS_IO, code, "unix:%.150s: %s", path, strerror(code));
    if (info.st_uid != geteuid())
        return err_set(err, STATUS_CONFLICT, 0,
                       "unix:%.120s is a socket of user %u, on which nobody listens: remove it, or "
                       "name another path",
                       path, (unsigned)info.st_uid);
    if (bound_socket_is(place->resolved.sun_path))
        return err_set(err, STATUS_BUSY, 0,
                       "another process has bound unix:%.150s, and does not listen yet", path);
    if (unlinkat(place->parent_fd, place->name, 0) < 0 && errno != ENOENT)
        return err_set(err, STATUS_IO, errno, "remove the stale socket %.150s: %s", path,
                       strerror(errno));
    return STATUS_OK;
}

/* Gives the socket that we have just made its permissions, and no other file that may have its name
 * meanwhile. */
static bool set_rights(const struct place *place, mode_t rights, struct stat *made)
{
    int fd = openat(place->parent_fd, place->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    char path[64];
    bool is_set = false;

    if (fd < 0)
        return false;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    errno = EEXIST; /* if it is another file */
    is_set = fstat(fd, made) == 0 && S_ISSOCK(made->st_mode) && made->st_uid == geteuid() &&
             chmod(path, rights) == 0;
    (void)close(fd);
    return is_set;
}

/* The file never has more permissions than `mode`. Linux creates it with the permissions of the
 * socket's inode less the umask (unix_bind); chmod then restores those that the umask removed. */
static enum status bind_path(int fd, const struct place *place, int mode, struct stat *made,
                             struct err *err)
{
    const struct sockaddr *address = (const struct sockaddr *)&place->resolved;
    mode_t rights = mode != 0 ? (mode_t)mode : 0600;
    enum status status;

    if (fchmod(fd, rights) < 0 || bind(fd, address, sizeof place->resolved) < 0)
        return err_set(err, errno == EADDRINUSE ? STATUS_BUSY : STATUS_IO, errno,
                       "listen on unix:%.150s: %s", place->path, strerror(errno));
    if (set_rights(place, rights, made) && listen(fd, BACKLOG) == 0)
        return STATUS_OK;
    status =
        err_set(err, STATUS_IO, errno, "listen on unix:%.150s: %s", place->path, strerror(errno));
    address_remove_socket(place->path, made);
    return status;
}

/* Holds a lock on the directory, so that of two processes that start at the same time neither
 * removes the fresh socket of the other. */
static enum status listen_locked(const struct place *place, int mode, int *fd, struct stat *made,
                                 struct err *err)
{
    enum status status = remove_stale(place, err);

    if (status == STATUS_OK)
        status = open_socket(AF_UNIX, fd, err);
    if (status != STATUS_OK)
        return status;
    status = bind_path(*fd, place, mode, made, err);
    if (status != STATUS_OK)
        close_socket(fd);
    return status;
}

/* Whoever starts holds the lock for a moment only. A directory that is locked for longer is somebody's state directory
 * (folder_lock.h), or an outsider's game: there we go on without it. */
static void lock_parent(int fd)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};

    if (folder_lock_is_ours(fd))
        return;
    for (int turn = 0; turn < LOCK_TURNS && flock(fd, LOCK_EX | LOCK_NB) < 0; turn++)
        (void)nanosleep(&pause, NULL);
}

/* Opens and locks the directory of `path`. A link of another user on the way to it is not followed. */
static enum status hold_parent(const char *path, int *fd, struct err *err)
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_BYTES_MAX] = ".";
    struct err why;
    int way_fd;
    enum status status;

    *fd = -1;
    if (slash != NULL)
        (void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - path) + 1, path);
    status = own_folder_open(parent, 0, &way_fd, &why);
    if (status != STATUS_OK)
        return err_set(err, status, why.code, "unix:%.90s: its directory: %.150s", path, why.text);
    *fd = openat(way_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        status =
            err_set(err, STATUS_IO, errno, "unix:%.150s: its directory: %s", path, strerror(errno));
    (void)close(way_fd);
    if (*fd >= 0)
        lock_parent(*fd);
    return status;
}

static enum status listen_on_path(const char *path, int mode, int *fd, struct stat *made,
                                  struct err *err)
{
    const char *slash = strrchr(path, '/');
    struct place place = {.path = path, .name = slash != NULL ? slash + 1 : path, .parent_fd = -1};
    enum status status;
    int parent = -1;

    status = unix_address(path, &place.resolved, &parent, err);
    if (status != STATUS_OK)
        return status;
    status = hold_parent(path, &place.parent_fd, err);
    if (status == STATUS_OK) {
        status = listen_locked(&place, mode, fd, made, err);
        (void)close(place.parent_fd); /* also releases the lock */
    }
    if (parent >= 0)
        (void)close(parent);
    return status;
}

void address_remove_socket(const char *path, const struct stat *made)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    struct stat info;
    struct err none;
    int fd;

    if (open_parent(path, O_PATH, &fd, &none) != STATUS_OK)
        return;
    if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode) &&
        info.st_dev == made->st_dev && info.st_ino == made->st_ino)
        (void)unlinkat(fd, name, 0);
    (void)close(fd);
}

bool address_is_local(const struct sockaddr_storage *resolved)
{
    return (resolved->ss_family == AF_INET || resolved->ss_family == AF_INET6) &&
           is_loopback(resolved);
}

/* Resolves a name of this machine. Distributions give the host name a loopback address (Debian:
 * 127.0.1.1 in /etc/hosts), which other machines cannot reach. So other addresses are preferred,
 * and a name that has only a loopback address is refused. Blocks for as long as the resolver
 * takes. */
static enum status resolve_own_name(const char *address, const char *host, in_port_t port,
                                    struct sockaddr_storage *resolved, socklen_t *byte_count,
                                    struct err *err)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(host, NULL, &hints, &found);

    if (code != 0)
        return err_set(err, STATUS_NOT_FOUND, code,
                       "listen on %.80s: the name \"%.80s\" has no address: %s", address, host,
                       gai_strerror(code));
    *byte_count = 0;
    for (const struct addrinfo *one = found; one != NULL && *byte_count == 0; one = one->ai_next) {
        *resolved = (struct sockaddr_storage){0};
        memcpy(resolved, one->ai_addr, one->ai_addrlen);
        if (!is_loopback(resolved))
            *byte_count = one->ai_addrlen;
    }
    freeaddrinfo(found);
    if (*byte_count == 0)
        return err_set(err, STATUS_NOT_FOUND, 0,
                       "listen on %.80s: \"%.80s\" has only a loopback address here, where no "
                       "other machine reaches it; use 0.0.0.0:%u, or an address of this machine",
                       address, host, ntohs(port));
    if (resolved->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)resolved)->sin6_port = port;
    else
        ((struct sockaddr_in *)resolved)->sin_port = port;
    return STATUS_OK;
}

static enum status resolve_to_listen(const char *address, struct sockaddr_storage *resolved,
                                     socklen_t *byte_count, struct err *err)
{
    char host[256];
    in_port_t port;

    if (!address_split_tcp(address, host, sizeof host, &port))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "\"%.80s\" is no address to listen on: expected unix:PATH or HOST:PORT (an "
                       "IPv6 address in brackets)",
                       address);
    if (resolve(host, port, resolved, byte_count))
        return STATUS_OK;
    return resolve_own_name(address, host, port, resolved, byte_count, err);
}

static enum status bind_tcp(const char *address, int *fd, struct err *err)
{
    struct sockaddr_storage resolved = {0};
    socklen_t byte_count = 0;
    enum status status;
    int on = 1, off = 0;

    status = resolve_to_listen(address, &resolved, &byte_count, err);
    if (status == STATUS_OK)
        status = open_socket(resolved.ss_family, fd, err);
    if (status != STATUS_OK)
        return status;
    (void)setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (resolved.ss_family == AF_INET6) /* whatever net.ipv6.bindv6only says */
        (void)setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(*fd, (const struct sockaddr *)&resolved, byte_count) == 0)
        return STATUS_OK;
    status = err_set(err, errno == EADDRINUSE ? STATUS_BUSY : STATUS_IO, errno,
                     "listen on %.150s: %s", address, strerror(errno));
    close_socket(fd);
    return status;
}

enum status address_listen(const char *address, int mode, int *fd, struct stat *made,
                           struct err *err)
{
    return address_is_unix(address) ? listen_on_path(address_path(address), mode, fd, made, err)
                                    : bind_tcp(address, fd, err);
}
