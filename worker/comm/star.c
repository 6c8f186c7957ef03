/* Bring-up of the star. See star.h. */
#include "worker/comm/star.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/io/mono.h"
#include "worker/comm/sock.h"

/* Sends `note` to every rank that has connected. */
static void send_all_ranks(const int *links, uint32_t world, const struct comm_note *note)
{
    uint8_t bytes[COMM_NOTE_BYTES];

    comm_note_encode(note, bytes);
    for (uint32_t i = 1; i < world; i++)
        if (links[i] >= 0)
            (void)comm_send_all(links[i], bytes, sizeof bytes, 0);
}

/* The time-out is over: tells the ranks that are there, and names those that are not. */
static enum status give_up(const int *links, uint32_t world, uint64_t timeout_us, struct err *err)
{
    struct comm_note note = {.type = COMM_NOTE_ABSENT, .rank = COMM_RANK_NONE};
    char names[96] = "";
    size_t used = 0;

    for (uint32_t i = 1; i < world; i++) {
        if (links[i] >= 0)
            continue;
        if (note.rank == COMM_RANK_NONE)
            note.rank = i;
        note.seq++;
        if (used < sizeof names - 16)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%u",
                                     used == 0 ? "" : ", ", i);
        else if (names[used - 1] != '.')
            used += (size_t)snprintf(names + used, sizeof names - used, ", ...");
    }
    send_all_ranks(links, world, &note);
    return err_set(err, STATUS_TIMEOUT, 0,
                   "%u of %u ranks did not come within %.1f s: rank %s; look at their logs",
                   (unsigned)note.seq, world, (double)timeout_us / 1e6, names);
}

/* Whether the peer has closed the connection. It sends nothing before it has the roster. */
static bool has_gone(int fd)
{
    uint8_t byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static enum status lose(const int *links, uint32_t world, uint32_t rank, struct err *err)
{
    struct comm_note note = {.type = COMM_NOTE_LOST, .why = COMM_WHY_CLOSED, .rank = rank};

    send_all_ranks(links, world, &note);
    return err_set(err, STATUS_PEER_LOST, 0,
                   "rank %u was lost (connection closed) before all ranks had come", rank);
}

/* Accepts all ranks whose hello has arrived; returns how many. */
static uint32_t welcome(struct comm_greeter *greeter, int *links, struct comm_place *roster)
{
    struct comm_hello hello;
    uint32_t count = 0;
    int fd;

    while ((fd = comm_greeter_next(greeter, &hello)) >= 0) {
        if (hello.kind != COMM_HELLO_STAR || hello.rank == 0 || links[hello.rank] >= 0) {
            comm_greeter_refuse(greeter, fd, &hello, COMM_WHY_TAKEN);
            continue;
        }
        assert(hello.rank < greeter->identity.world); /* comm_hello_decode() checked it */
        links[hello.rank] = fd;
        roster[hello.rank] = hello.place;
        count++;
    }
    return count;
}

static enum status send_roster(const int *links, const struct comm_place *roster, uint32_t world,
                               uint64_t deadline_us, struct err *err)
{
    struct comm_note note = {.type = COMM_NOTE_ROSTER, .rank = world};
    size_t byte_count = COMM_NOTE_BYTES + (size_t)world * COMM_PLACE_BYTES;
    uint8_t *bytes = malloc(byte_count);
    enum status status = STATUS_OK;

    if (bytes == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory for a roster of %u ranks", world);
    comm_note_encode(&note, bytes);
    for (uint32_t i = 0; i < world; i++)
        comm_place_encode(&roster[i], bytes + COMM_NOTE_BYTES + (size_t)i * COMM_PLACE_BYTES);
    for (uint32_t i = 1; i < world && status == STATUS_OK; i++)
        if (comm_send_all(links[i], bytes, byte_count, deadline_us) != STATUS_OK)
            status = lose(links, world, i, err);
    free(bytes);
    return status;
}

enum status comm_star_gather(struct comm_greeter *greeter, int *links, struct comm_place *roster,
                             uint64_t timeout_us, struct err *err)
{
    uint32_t world = greeter->identity.world;
    uint64_t deadline_us = mono_us() + timeout_us;
    struct pollfd *fds = calloc(1 + COMM_GUESTS_MAX + (size_t)world, sizeof *fds);
    enum status status = STATUS_OK;
    uint32_t here = 1;

    if (fds == NULL)
        return err_set(err, STATUS_MEMORY, 0, "no memory to gather %u ranks", world);
    assert(greeter->rank == 0 && world >= 2);
    roster[0] = greeter->place;
    while (status == STATUS_OK && here < world) {
        uint32_t count = comm_greeter_poll(greeter, fds);
        int wait_ms = comm_left_ms(deadline_us);

        for (uint32_t i = 1; i < world; i++)
            if (links[i] >= 0)
                fds[count++] = (struct pollfd){.fd = links[i], .events = POLLIN};
        /* Wakes at least once a second, so that connections without a hello are dropped in time. */
        (void)poll(fds, count, wait_ms > 1000 ? 1000 : wait_ms);
        here += welcome(greeter, links, roster);
        for (uint32_t i = 1; i < world && status == STATUS_OK; i++)
            if (links[i] >= 0 && has_gone(links[i]))
                status = lose(links, world, i, err);
        if (status == STATUS_OK && here < world && mono_us() >= deadline_us)
            status = give_up(links, world, timeout_us, err);
    }
    if (status == STATUS_OK)
        status = send_roster(links, roster, world, deadline_us + COMM_STAR_GRACE_US, err);
    free(fds);
    return status;
}

/* The error for an answer of rank 0 that is not the roster. */
static enum status bad_answer(const struct comm_note *note, const struct comm_hello *hello,
                              struct err *err)
{
    if (note->type == COMM_NOTE_REFUSED && note->why == COMM_WHY_TAKEN)
        return err_set(err, STATUS_REFUSED, 0,
                       "rank 0 refused rank %u: another process came with that rank", hello->rank);
    if (note->type == COMM_NOTE_REFUSED)
        return err_set(err, STATUS_REFUSED, 0,
                       "rank 0 refused rank %u: wrong secret, job, generation or world size "
                       "(ours: generation %u, world %u)",
                       hello->rank, hello->identity.generation, hello->identity.world);
    if (note->type == COMM_NOTE_ABSENT)
        return err_set(err, STATUS_TIMEOUT, 0,
                       "rank %u%s did not come in time, says rank 0; look at its log", note->rank,
                       note->seq > 1 ? " (and others)" : "");
    if (note->type == COMM_NOTE_LOST)
        return err_set(err, STATUS_PEER_LOST, 0,
                       "rank %u was lost (connection closed) before all ranks had come",
                       note->rank);
    return err_set(err, STATUS_BAD_INPUT, 0, "rank 0 answered the hello with something else");
}

/* The error where rank 0 did not answer at all. */
static enum status no_answer(enum status status, const struct comm_place *meeting,
                             uint64_t timeout_us, struct err *err)
{
    if (status == STATUS_TIMEOUT)
        return err_set(err, STATUS_TIMEOUT, 0, "rank 0 at %s port %u did not answer within %.1f s",
                       meeting->host, meeting->port, (double)timeout_us / 1e6);
    return err_set(err, STATUS_PEER_LOST, 0,
                   "rank 0 was lost (connection closed) before all ranks had come");
}

static enum status take_roster(int fd, const struct comm_hello *hello, struct comm_place *roster,
                               uint64_t deadline_us, struct err *err)
{
    uint8_t bytes[COMM_PLACE_BYTES];
    struct comm_note note;
    enum status status = comm_receive_all(fd, bytes, COMM_NOTE_BYTES, deadline_us);

    if (status != STATUS_OK)
        return status;
    if (!comm_note_decode(bytes, &note))
        note.type = COMM_NOTE_BEAT; /* invalid here, as any other type but ROSTER */
    if (note.type != COMM_NOTE_ROSTER || note.rank != hello->identity.world) {
        (void)bad_answer(&note, hello, err);
        return STATUS_REFUSED;
    }
    for (uint32_t i = 0; i < note.rank; i++) {
        status = comm_receive_all(fd, bytes, sizeof bytes, deadline_us);
        if (status != STATUS_OK)
            return status;
        if (!comm_place_decode(bytes, &roster[i])) {
            (void)err_set(err, STATUS_BAD_INPUT, 0, "rank 0 sent no valid place for rank %u", i);
            return STATUS_REFUSED;
        }
    }
    return STATUS_OK;
}

/* Connects to rank 0. */
static enum status reach(const struct comm_place *meeting, int *link, uint64_t deadline_us,
                         struct err *err)
{
    struct pollfd fd = {.fd = comm_connect_begin(meeting), .events = POLLOUT};
    int reason = errno;
    int rc;

    *link = fd.fd;
    if (fd.fd >= 0) {
        do
            rc = poll(&fd, 1, comm_left_ms(deadline_us));
        while (rc < 0 && errno == EINTR);
        reason = rc == 0 ? ETIMEDOUT : comm_connect_result(fd.fd);
    }
    if (fd.fd >= 0 && reason == 0)
        return STATUS_OK;
    return err_set(err, reason == ETIMEDOUT ? STATUS_TIMEOUT : STATUS_PEER_LOST, reason,
                   "rank 0 cannot be reached at %s port %u: %s", meeting->host, meeting->port,
                   strerror(reason));
}

enum status comm_star_join(const struct comm_hello *hello, const struct comm_place *meeting,
                           int *link, struct comm_place *roster, uint64_t timeout_us,
                           struct err *err)
{
    uint64_t deadline_us = mono_us() + timeout_us;
    uint8_t bytes[COMM_HELLO_BYTES];
    struct err answer = {.status = STATUS_OK};
    enum status status = reach(meeting, link, deadline_us, err);

    assert(hello->kind == COMM_HELLO_STAR && hello->rank != 0);
    if (status != STATUS_OK)
        return status;
    comm_sock_tune(*link);
    comm_hello_encode(hello, bytes);
    status = comm_send_all(*link, bytes, sizeof bytes, deadline_us);
    if (status == STATUS_OK)
        status = take_roster(*link, hello, roster, deadline_us + COMM_STAR_GRACE_US, &answer);
    if (status == STATUS_OK)
        return STATUS_OK;
    if (answer.status != STATUS_OK)
        return err_set(err, answer.status, 0, "%s", answer.text);
    return no_answer(status, meeting, timeout_us, err);
}
