/* Connects to lower ranks and accepts higher ones at the same time, in one poll loop. */
#include "worker/comm/mesh.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/mono.h"
#include "worker/comm/sock.h"

struct mesh {
    struct comm_greeter *greeter;
    const struct comm_hello *hello;
    const struct comm_place *roster;
    uint64_t deadline_us;
    int *fds;             /* [world], the result */
    int *reaching;        /* [rank]: connections being made */
    struct pollfd *polls; /* [2 + COMM_GUESTS_MAX + rank] */
    uint32_t missing;     /* connections still to come */
};

static enum status cannot_reach(uint32_t rank, const struct comm_place *place, int reason,
                                struct err *err)
{
    return err_set(err, STATUS_PEER_LOST, reason, "rank %u cannot be reached at %s port %u: %s",
                   rank, place->host, place->port, strerror(reason));
}

static enum status reach_all(struct mesh *mesh, struct err *err)
{
    for (uint32_t i = 0; i < mesh->hello->rank; i++) {
        mesh->reaching[i] = comm_connect_begin(&mesh->roster[i]);
        if (mesh->reaching[i] < 0)
            return cannot_reach(i, &mesh->roster[i], errno, err);
    }
    return STATUS_OK;
}

/* connect(2) to a lower rank has finished: sends our hello, or fails. */
static enum status on_reached(struct mesh *mesh, uint32_t rank, struct err *err)
{
    uint8_t bytes[COMM_HELLO_BYTES];
    int reason = comm_connect_result(mesh->reaching[rank]);

    if (reason != 0)
        return cannot_reach(rank, &mesh->roster[rank], reason, err);
    comm_sock_tune(mesh->reaching[rank]);
    comm_hello_encode(mesh->hello, bytes);
    if (comm_send_all(mesh->reaching[rank], bytes, sizeof bytes, mesh->deadline_us) != STATUS_OK)
        return cannot_reach(rank, &mesh->roster[rank], ECONNRESET, err);
    mesh->fds[rank] = mesh->reaching[rank];
    mesh->reaching[rank] = -1;
    mesh->missing--;
    return STATUS_OK;
}

/* Accepts higher ranks. */
static void welcome(struct mesh *mesh)
{
    struct comm_hello hello;
    int fd;

    while ((fd = comm_greeter_next(mesh->greeter, &hello)) >= 0) {
        if (hello.kind != COMM_HELLO_MESH || hello.rank <= mesh->hello->rank ||
            mesh->fds[hello.rank] >= 0) {
            comm_greeter_refuse(mesh->greeter, fd, &hello, COMM_WHY_TAKEN);
            continue;
        }
        assert(mesh->missing > 0);
        mesh->fds[hello.rank] = fd;
        mesh->missing--;
    }
}

static enum status too_late(const struct mesh *mesh, struct err *err)
{
    uint32_t rank = 0;

    while (rank == mesh->hello->rank || mesh->fds[rank] >= 0)
        rank++;
    assert(rank < mesh->hello->identity.world); /* one is missing */
    return err_set(err, STATUS_TIMEOUT, 0,
                   "no connection with rank %u (at %s port %u) in time: is a firewall between?",
                   rank, mesh->roster[rank].host, mesh->roster[rank].port);
}

/* One round of the poll loop. */
static enum status turn(struct mesh *mesh, int stop_fd, struct err *err)
{
    int wait_ms = comm_left_ms(mesh->deadline_us);
    enum status status = STATUS_OK;
    uint32_t count = 0;

    mesh->polls[count++] = (struct pollfd){.fd = stop_fd, .events = POLLIN};
    for (uint32_t i = 0; i < mesh->hello->rank; i++) /* -1 is skipped by poll */
        mesh->polls[count++] = (struct pollfd){.fd = mesh->reaching[i], .events = POLLOUT};
    count += comm_greeter_poll(mesh->greeter, mesh->polls + count);
    if (poll(mesh->polls, count, wait_ms > 1000 ? 1000 : wait_ms) < 0)
        return errno == EINTR ? STATUS_OK : err_set(err, STATUS_SYSTEM, errno, "poll");
    if (mesh->polls[0].revents != 0)
        return STATUS_CLOSED;
    for (uint32_t i = 0; i < mesh->hello->rank && status == STATUS_OK; i++)
        if (mesh->reaching[i] >= 0 && mesh->polls[1 + i].revents != 0)
            status = on_reached(mesh, i, err);
    if (status != STATUS_OK)
        return status;
    welcome(mesh);
    if (mesh->missing > 0 && mono_us() >= mesh->deadline_us)
        return too_late(mesh, err);
    return STATUS_OK;
}

enum status comm_mesh_build(struct comm_greeter *greeter, const struct comm_hello *hello,
                            const struct comm_place *roster, int stop_fd, int *fds,
                            uint64_t timeout_us, struct err *err)
{
    struct mesh mesh = {.greeter = greeter,
                        .hello = hello,
                        .roster = roster,
                        .fds = fds,
                        .deadline_us = mono_us() + timeout_us,
                        .missing = hello->identity.world - 1};
    enum status status;

    assert(hello->kind == COMM_HELLO_MESH && hello->rank < hello->identity.world);
    mesh.reaching = malloc(((size_t)hello->rank + 1) * sizeof *mesh.reaching);
    mesh.polls = calloc(2 + COMM_GUESTS_MAX + (size_t)hello->rank, sizeof *mesh.polls);
    if (mesh.reaching == NULL || mesh.polls == NULL) {
        free(mesh.reaching);
        free(mesh.polls);
        return err_set(err, STATUS_MEMORY, 0, "no memory for %u connections", mesh.missing);
    }
    for (uint32_t i = 0; i < hello->rank; i++)
        mesh.reaching[i] = -1;
    status = reach_all(&mesh, err);
    while (status == STATUS_OK && mesh.missing > 0)
        status = turn(&mesh, stop_fd, err);
    for (uint32_t i = 0; i < hello->rank; i++)
        comm_sock_close(&mesh.reaching[i]);
    free(mesh.reaching);
    free(mesh.polls);
    return status;
}
