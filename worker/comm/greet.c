/* Accepts connections and reads their hellos. See greet.h. */
#include "worker/comm/greet.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "common/log.h"
#include "worker/comm/sock.h"

#define LOGGED_MAX 8 /* refusals that are logged */

enum status comm_greeter_open(struct comm_greeter *greeter, const char *address, uint32_t rank,
                              const struct comm_identity *identity, struct err *err)
{
    memset(greeter, 0, sizeof *greeter);
    greeter->fd = -1;
    greeter->rank = rank;
    greeter->identity = *identity;
    for (uint32_t i = 0; i < COMM_GUESTS_MAX; i++)
        greeter->guests[i].fd = -1;
    return comm_listen(address, &greeter->fd, &greeter->place, err);
}

void comm_greeter_close(struct comm_greeter *greeter)
{
    comm_sock_close(&greeter->fd);
    for (uint32_t i = 0; i < COMM_GUESTS_MAX; i++)
        comm_sock_close(&greeter->guests[i].fd);
}

uint32_t comm_greeter_poll(const struct comm_greeter *greeter, struct pollfd *fds)
{
    uint32_t count = 0;

    fds[count++] = (struct pollfd){.fd = greeter->fd, .events = POLLIN};
    for (uint32_t i = 0; i < COMM_GUESTS_MAX; i++)
        if (greeter->guests[i].fd >= 0)
            fds[count++] = (struct pollfd){.fd = greeter->guests[i].fd, .events = POLLIN};
    return count;
}

static void name_caller(int fd, char name[INET6_ADDRSTRLEN])
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof address;
    const void *host = &((struct sockaddr_in *)&address)->sin_addr;

    (void)getpeername(fd, (struct sockaddr *)&address, &length);
    if (address.ss_family == AF_INET6)
        host = &((struct sockaddr_in6 *)&address)->sin6_addr;
    if (inet_ntop(address.ss_family, host, name, INET6_ADDRSTRLEN) == NULL)
        memcpy(name, "?", 2);
}

static void refuse_guest(struct comm_greeter *greeter, int *fd, const char *why)
{
    struct log_about about = {.job_id = greeter->identity.job_id,
                              .generation = greeter->identity.generation,
                              .rank = (int32_t)greeter->rank};
    char name[INET6_ADDRSTRLEN];

    greeter->refused++;
    name_caller(*fd, name);
    if (greeter->refused <= LOGGED_MAX)
        log_line(LOG_WARNING, about, "connection from %s to port %u refused: %s%s", name,
                 greeter->place.port, why,
                 greeter->refused == LOGGED_MAX ? "; further ones are not logged" : "");
    comm_sock_close(fd);
}

/* An unused place, or the one whose connection has waited longest, which is refused. */
static struct comm_guest *place_for_guest(struct comm_greeter *greeter)
{
    struct comm_guest *oldest = &greeter->guests[0];

    for (uint32_t i = 0; i < COMM_GUESTS_MAX; i++) {
        struct comm_guest *guest = &greeter->guests[i];

        if (guest->fd < 0)
            return guest;
        if (guest->deadline_us < oldest->deadline_us)
            oldest = guest;
    }
    refuse_guest(greeter, &oldest->fd, "silent while others wait");
    return oldest;
}

static void accept_all(struct comm_greeter *greeter)
{
    /* Bounded, so that a flood of connections cannot keep us from reading. */
    for (uint32_t i = 0; i < COMM_GUESTS_MAX / 2; i++) {
        int fd = accept4(greeter->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct comm_guest *guest;

        if (fd < 0)
            return;
        comm_sock_tune(fd);
        guest = place_for_guest(greeter);
        guest->fd = fd;
        guest->byte_count = 0;
        guest->deadline_us = mono_us() + COMM_HELLO_WAIT_US;
    }
}

/* Reads more of a hello; true once it is complete. Drops a connection that is closed or late. */
static bool read_guest(struct comm_greeter *greeter, struct comm_guest *guest, uint64_t now_us)
{
    assert(guest->fd >= 0 && guest->byte_count <= COMM_HELLO_BYTES);
    while (guest->byte_count < COMM_HELLO_BYTES) {
        ssize_t n = recv(guest->fd, guest->bytes + guest->byte_count,
                         COMM_HELLO_BYTES - guest->byte_count, 0);

        if (n > 0) {
            guest->byte_count += (uint32_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0 || errno != EAGAIN)
            refuse_guest(greeter, &guest->fd, "closed before its hello");
        else if (now_us > guest->deadline_us)
            refuse_guest(greeter, &guest->fd, "no hello in time");
        return false;
    }
    return true;
}

void comm_greeter_refuse(struct comm_greeter *greeter, int fd, const struct comm_hello *hello,
                         enum comm_why why)
{
    struct comm_note note = {.type = COMM_NOTE_REFUSED, .why = why, .rank = hello->rank};
    uint8_t bytes[COMM_NOTE_BYTES];

    comm_note_encode(&note, bytes);
    (void)comm_send_all(fd, bytes, sizeof bytes, 0); /* fits the empty send buffer */
    refuse_guest(greeter, &fd,
                 why == COMM_WHY_STRANGER ? "wrong secret, job, generation or world"
                                          : "its rank is here already, or comes too early");
}

int comm_greeter_next(struct comm_greeter *greeter, struct comm_hello *hello)
{
    uint64_t now_us = mono_us();

    accept_all(greeter);
    for (uint32_t i = 0; i < COMM_GUESTS_MAX; i++) {
        struct comm_guest *guest = &greeter->guests[i];
        int fd = guest->fd;

        if (fd < 0 || !read_guest(greeter, guest, now_us))
            continue;
        if (!comm_hello_decode(guest->bytes, hello)) {
            refuse_guest(greeter, &guest->fd, "not a hello");
            continue;
        }
        guest->fd = -1;
        if (comm_identity_equal(&hello->identity, &greeter->identity))
            return fd;
        comm_greeter_refuse(greeter, fd, hello, COMM_WHY_STRANGER);
    }
    return -1;
}
