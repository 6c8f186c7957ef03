/* The watcher's thread when it is late: it is asked to leave and to end before it runs again. */
#include <fcntl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker/comm/watch.h"
#include "worker/comm/wire.h"

/* Longer than comm_watch_free waits for the thread to leave, 1 s. */
#define LATE_NS 600000000L
#define LATE_S 1
#define HANG_S 30

/* On the watcher's thread: holds it up. `user`: a pipe's end, told first. */
static void be_late(void *user)
{
    const struct timespec late = {.tv_sec = LATE_S, .tv_nsec = LATE_NS};

    CHECK_EQ(write(*(int *)user, "", 1), 1);
    (void)nanosleep(&late, NULL);
}

/* Reads until a note of `type` comes. */
static void await_note(int fd, enum comm_note_type type)
{
    struct comm_note note = {.type = COMM_NOTE_TYPES};
    uint8_t bytes[COMM_NOTE_BYTES];

    while (note.type != type) {
        CHECK_EQ(recv(fd, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
        CHECK(comm_note_decode(bytes, &note));
    }
    CHECK_EQ(note.rank, type == COMM_NOTE_LEFT ? 0 : 1);
}

TEST(a_late_thread_leaves_and_ends)
{
    struct comm_watch *watch;
    struct err err = {.text = ""};
    int told[2], lost[2], other[2], links[3];
    char byte;

    CHECK_EQ(pipe(told), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, lost), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
    CHECK_EQ(fcntl(other[0], F_SETFL, O_NONBLOCK), 0);
    links[0] = -1;
    links[1] = lost[0];
    links[2] = other[0];
    CHECK_EQ(comm_watch_new(&watch, links, 0, 3, be_late, &told[1], &err), STATUS_OK);
    (void)close(lost[1]); /* rank 1 is lost, so the thread calls be_late */
    CHECK_EQ(read(told[0], &byte, 1), 1);
    (void)alarm(HANG_S); /* ends the test if the thread never ends */
    comm_watch_free(&watch);
    (void)alarm(0);
    await_note(other[1], COMM_NOTE_LOST);
    await_note(other[1], COMM_NOTE_LEFT);
    (void)close(other[1]);
    (void)close(told[0]);
    (void)close(told[1]);
}

TEST_MAIN
