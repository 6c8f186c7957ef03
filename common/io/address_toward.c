#include "common/io/address_toward.h"

#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_ANY "9"

bool address_toward(const char *host, char own[ADDRESS_BYTES_MAX])
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct sockaddr_storage near = {0};
    socklen_t byte_count = sizeof near;
    struct addrinfo *far = NULL;
    bool is_found;
    int fd;

    if (getaddrinfo(host, PORT_ANY, &hints, &far) != 0)
        return false;
    fd = socket(far->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    is_found = fd >= 0 && connect(fd, far->ai_addr, far->ai_addrlen) == 0 &&
               getsockname(fd, (struct sockaddr *)&near, &byte_count) == 0 &&
               getnameinfo((const struct sockaddr *)&near, byte_count, own, ADDRESS_BYTES_MAX, NULL,
                           0, NI_NUMERICHOST) == 0;
    if (fd >= 0)
        (void)close(fd);
    freeaddrinfo(far);
    return is_found;
}
