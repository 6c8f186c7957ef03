/* Tests real connections between two nodes. One node listens on a few ports that the kernel chooses, as a job's
 * libraries do, and echoes. The other connects from its job's address and sends a few bytes, and then more than fits
 * into many packets: if the small echo comes and the large one does not, an MTU is wrong. The listener ends when
 * every named node has connected to every port. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/mono.h"
#include "launcherd/doctor/doctor_parts.h"

#define PORTS 3u
#define GUESTS_MAX 192u
#define LISTEN_MS 20000u
#define CONNECT_MS 5000u /* for one connection and its echoes: time for SYNs at 0, 1 and 3 s */
#define SMALL_BYTES 16u
#define LARGE_BYTES 65536u
#define TRIES_MAX (NODE_PEERS_ASKED_MAX * PORTS)

static int complain(const char *text)
{
    (void)printf("%s\n", text);
    return 1;
}

/* Whether we are root of a user namespace without other users, so in fact one ordinary user
 * (user_namespaces(7)). */
static bool is_only_user(void)
{
    const char *map = doctor_read_line("/proc/self/uid_map");
    unsigned long inside, outside, count;
    char *at;

    if (map == NULL)
        return false;
    inside = strtoul(map, &at, 10);
    outside = strtoul(at, &at, 10);
    count = strtoul(at, NULL, 10);
    return inside == 0 && outside != 0 && count == 1;
}

/* Gives up all rights, so that these connections cannot reach any file or process. */
static bool become_nobody(void)
{
    static const struct account nobody = {.uid = 65534, .gid = 65534};

    return geteuid() != 0 || account_become(&nobody) || is_only_user();
}

/* The numeric address as a socket address with that port. False: it is none. */
static bool make_address(const char *text, uint16_t port, struct sockaddr_storage *address,
                         socklen_t *bytes)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char digits[8];

    (void)snprintf(digits, sizeof digits, "%u", port);
    if (getaddrinfo(text, digits, &hints, &found) != 0)
        return false;
    memcpy(address, found->ai_addr, found->ai_addrlen);
    *bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

/* Time left until `end_us`, for poll. */
static int left_ms(uint64_t end_us)
{
    const uint64_t now_us = mono_us();

    return now_us < end_us ? (int)((end_us - now_us) / 1000) + 1 : 0;
}

/* -- listen -- */

/* A connection, with the bytes that it sent and that are not echoed yet. */
struct guest {
    int fd;
    size_t held;
    char bytes[16384];
};

struct house {
    int doors[PORTS];
    uint32_t guest_count, gone_count;
    struct guest *guests; /* [GUESTS_MAX] */
};

static bool open_door(const char *own_address, int *fd, uint16_t *port)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    char digits[8];

    if (!make_address(own_address, 0, &address, &bytes))
        return false;
    *fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&address, bytes) != 0 || listen(*fd, 64) != 0 ||
        getsockname(*fd, (struct sockaddr *)&address, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, bytes, NULL, 0, digits, sizeof digits,
                    NI_NUMERICSERV) != 0)
        return false;
    *port = (uint16_t)strtoul(digits, NULL, 10);
    return true;
}

/* Only nodes that the question names may connect. */
static bool is_invited(const struct doctor *doctor, const struct sockaddr_storage *from,
                       socklen_t from_bytes)
{
    char text[NI_MAXHOST];

    if (getnameinfo((const struct sockaddr *)from, from_bytes, text, sizeof text, NULL, 0,
                    NI_NUMERICHOST) != 0)
        return false;
    for (uint32_t i = 0; i < doctor->ask->peers.count; i++)
        if (strcmp(doctor->ask->peers.items[i].value, text) == 0)
            return true;
    return false;
}

static void let_in(const struct doctor *doctor, struct house *house, int door)
{
    struct sockaddr_storage from;
    socklen_t from_bytes = sizeof from;
    int fd = accept4(door, (struct sockaddr *)&from, &from_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0)
        return;
    if (house->guest_count == GUESTS_MAX || !is_invited(doctor, &from, from_bytes)) {
        (void)close(fd);
        return;
    }
    house->guests[house->guest_count].fd = fd;
    house->guests[house->guest_count++].held = 0;
}

/* Reads and echoes what it can. False: the connection has closed. */
static bool echo(struct guest *guest)
{
    size_t room = sizeof guest->bytes - guest->held;
    ssize_t got = room > 0 ? recv(guest->fd, guest->bytes + guest->held, room, 0) : -1;
    ssize_t sent;

    if (got == 0 || (got < 0 && room > 0 && errno != EAGAIN && errno != EINTR))
        return false;
    if (got > 0)
        guest->held += (size_t)got;
    if (guest->held == 0)
        return true;
    sent = send(guest->fd, guest->bytes, guest->held, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR;
    guest->held -= (size_t)sent;
    memmove(guest->bytes, guest->bytes + sent, guest->held);
    return true;
}

static void serve_once(const struct doctor *doctor, struct house *house, int wait_ms)
{
    static struct pollfd polls[PORTS + GUESTS_MAX];
    const uint32_t guests = house->guest_count;

    for (uint32_t i = 0; i < PORTS; i++)
        polls[i] = (struct pollfd){.fd = house->doors[i], .events = POLLIN};
    for (uint32_t i = 0; i < guests; i++)
        polls[PORTS + i] = (struct pollfd){
            .fd = house->guests[i].fd,
            .events = (short)((house->guests[i].held < sizeof house->guests[i].bytes ? POLLIN : 0) |
                              (house->guests[i].held > 0 ? POLLOUT : 0))};
    if (poll(polls, PORTS + guests, wait_ms) <= 0)
        return;
    for (uint32_t i = guests; i-- > 0;) {
        if (polls[PORTS + i].revents == 0 || echo(&house->guests[i]))
            continue;
        (void)close(house->guests[i].fd);
        house->gone_count++;
        house->guests[i] = house->guests[--house->guest_count];
    }
    for (uint32_t i = 0; i < PORTS; i++)
        if ((polls[i].revents & POLLIN) != 0)
            let_in(doctor, house, house->doors[i]);
}

int doctor_listen(const struct doctor *doctor)
{
    const uint64_t end_us = mono_us() + LISTEN_MS * 1000ull;
    static struct guest guests[GUESTS_MAX];
    struct house house = {.guests = guests};
    uint16_t ports[PORTS];

    if (!become_nobody())
        return complain("cannot become nobody to try connections");
    for (uint32_t i = 0; i < PORTS; i++)
        if (!open_door(doctor->address, &house.doors[i], &ports[i])) {
            (void)printf("cannot listen on %s: %s\n", doctor->address, strerror(errno));
            return 1;
        }
    (void)printf("{\"ports\":[%u,%u,%u]}\n", ports[0], ports[1], ports[2]);
    (void)fclose(stdout); /* the answer is complete */
    while (mono_us() < end_us && house.gone_count < doctor->ask->peers.count * PORTS)
        serve_once(doctor, &house, left_ms(end_us));
    return 0;
}

/* -- connect -- */

/* One connection: it sends a small part, waits for its echo, then sends a large one. */
struct
try {
    const char *peer;
    uint16_t port;
    int fd; /* -1: over */
    bool is_connected;
    uint64_t begin_us, connected_us;
    size_t sent, received;
    const char *result;
    int code;
};

static void end_try(struct try *try, const char *result, int code)
{
    if (try->fd >= 0)
        (void)close(try->fd);
    try->fd = -1;
    try->result = result;
    try->code = code;
}

static const char *result_of(int code)
{
    if (code == ECONNREFUSED)
        return "refused";
    if (code == EHOSTUNREACH || code == ENETUNREACH || code == ENETDOWN || code == EACCES ||
        code == EPERM)
        return "no-route";
    return code == ETIMEDOUT ? "timeout" : "broken";
}

static void begin_try(struct try *try, const char *own, const char *address)
{
    struct sockaddr_storage from, to;
    socklen_t from_bytes, to_bytes;

    try->begin_us = mono_us();
    if (!make_address(own, 0, &from, &from_bytes) ||
        !make_address(address, try->port, &to, &to_bytes)) {
        end_try(try, "no-route", EINVAL);
        return;
    }
    try->fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (try->fd < 0 || bind(try->fd, (struct sockaddr *)&from, from_bytes) != 0 ||
        (connect(try->fd, (struct sockaddr *)&to, to_bytes) != 0 && errno != EINPROGRESS))
        end_try(try, result_of(errno), errno);
}

/* Sends what may be sent now. The large part follows only after the echo of the small one. */
static bool send_more(struct try *try)
{
    static const char zeros[LARGE_BYTES];
    size_t goal = try->received < SMALL_BYTES ? SMALL_BYTES : SMALL_BYTES + LARGE_BYTES;
    ssize_t sent;

    if (try->sent >= goal)
        return true;
    sent = send(try->fd, zeros, goal - try->sent, MSG_NOSIGNAL);
    if (sent > 0)
        try->sent += (size_t)sent;
    return sent >= 0 || errno == EAGAIN || errno == EINTR;
}

static void go_on(struct try *try)
{
    char bytes[16384];
    socklen_t code_bytes = sizeof try->code;
    int code = 0;
    ssize_t got;

    if (!try->is_connected) {
        if (getsockopt(try->fd, SOL_SOCKET, SO_ERROR, &code, &code_bytes) != 0 || code != 0) {
            end_try(try, result_of(code), code);
            return;
        }
        try->is_connected = true;
        try->connected_us = mono_us();
    }
    got = recv(try->fd, bytes, sizeof bytes, 0);
    if (got > 0)
        try->received += (size_t)got;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) || !send_more(try))
        end_try(try, "broken", got == 0 ? ECONNRESET : errno);
    else if (try->received >= SMALL_BYTES + LARGE_BYTES)
        end_try(try, "ok", 0);
}

static void run_tries(struct try *tries, uint32_t count, uint64_t end_us)
{
    static struct pollfd polls[TRIES_MAX];
    bool is_waiting = true;

    while (is_waiting && mono_us() < end_us) {
        is_waiting = false;
        for (uint32_t i = 0; i < count; i++) {
            const struct try *try = &tries[i];
            bool has_more =
                !try->is_connected ||
                try->sent < SMALL_BYTES + (try->received < SMALL_BYTES ? 0 : (size_t)LARGE_BYTES);

            polls[i] = (struct pollfd){.fd = try->fd,
                                       .events = (short)(POLLIN | (has_more ? POLLOUT : 0))};
            is_waiting = is_waiting || try->fd >= 0;
        }
        if (!is_waiting || poll(polls, count, left_ms(end_us)) <= 0)
            continue;
        for (uint32_t i = 0; i < count; i++)
            if (tries[i].fd >= 0 && polls[i].revents != 0)
                go_on(&tries[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        if (tries[i].fd >= 0)
            end_try(&tries[i],
                    !tries[i].is_connected            ? "timeout"
                    : tries[i].received < SMALL_BYTES ? "silent"
                                                      : "large",
                    ETIMEDOUT);
}

static const char *address_of(const struct doctor *doctor, const char *peer)
{
    for (uint32_t i = 0; i < doctor->ask->peers.count; i++)
        if (strcmp(doctor->ask->peers.items[i].name, peer) == 0)
            return doctor->ask->peers.items[i].value;
    return "";
}

/* Adds the peer's ports, "7001,7002,7003". */
static uint32_t add_tries(const struct doctor *doctor, struct try *tries, uint32_t count,
                          const struct msg_pair *ports)
{
    const char *at = ports->value;

    if (address_of(doctor, ports->name)[0] == '\0')
        return count; /* the question does not name this node */

    for (uint32_t i = 0; i < PORTS && count < TRIES_MAX; i++) {
        char *end;
        unsigned long port = strtoul(at, &end, 10);

        if (end == at || port == 0 || port > 65535)
            break;
        tries[count++] = (struct try){.peer = ports->name, .port = (uint16_t)port, .fd = -1};
        at = *end == ',' ? end + 1 : end;
    }
    return count;
}

int doctor_connect(const struct doctor *doctor)
{
    static struct try tries[TRIES_MAX];
    uint32_t count = 0;

    if (!become_nobody())
        return complain("cannot become nobody to try connections");
    for (uint32_t i = 0; i < doctor->ask->args.count; i++)
        count = add_tries(doctor, tries, count, &doctor->ask->args.items[i]);
    for (uint32_t i = 0; i < count; i++)
        begin_try(&tries[i], doctor->address, address_of(doctor, tries[i].peer));
    run_tries(tries, count, mono_us() + CONNECT_MS * 1000ull);
    (void)printf("{\"tries\":[");
    for (uint32_t i = 0; i < count; i++) /* node names need no escaping */
        (void)printf(
            "%s{\"peer\":\"%s\",\"port\":%u,\"result\":\"%s\",\"error\":\"%s\",\"us\":%llu}",
            i > 0 ? "," : "", tries[i].peer, tries[i].port, tries[i].result,
            tries[i].code != 0 ? strerror(tries[i].code) : "",
            (unsigned long long)(tries[i].is_connected ? tries[i].connected_us - tries[i].begin_us
                                                       : 0));
    (void)printf("]}\n");
    return 0;
}
