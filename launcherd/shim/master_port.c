#include "launcherd/shim/master_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static socklen_t make_address(const char *text, struct sockaddr_storage *storage)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    memset(storage, 0, sizeof *storage);
    if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1) {
        memcpy(storage, &in6, sizeof in6);
        return sizeof in6;
    }
    if (inet_pton(AF_INET, text, &in.sin_addr) != 1)
        in.sin_addr.s_addr = htonl(INADDR_ANY); /* a host name: bind to every local address */
    memcpy(storage, &in, sizeof in);
    return sizeof in;
}

int master_port_bind(const char *address, uint32_t *port)
{
    struct sockaddr_storage storage;
    socklen_t bytes = make_address(address, &storage);
    int yes = 1;
    int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, (struct sockaddr *)&storage, bytes) == 0 &&
        getsockname(fd, (struct sockaddr *)&storage, &bytes) == 0) {
        /* sin_port and sin6_port have the same offset: RFC 3493, section 3.3 */
        *port = ntohs(((const struct sockaddr_in *)(const void *)&storage)->sin_port);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}
