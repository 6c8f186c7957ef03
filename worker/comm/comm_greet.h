/* The door of a rank: accepts connections and lets in those that say the right hello.
 *
 * Anybody on the network can connect. A stranger that says nothing, too little or the wrong thing
 * is dropped after COMM_HELLO_WAIT_US or when others need its place, and never delays those that
 * belong here. */
#ifndef WORKER_COMM_COMM_GREET_H
#define WORKER_COMM_COMM_GREET_H

#include <poll.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm_wire.h"

#define COMM_GUESTS_MAX 64 /* not greeted yet; the kernel queues more */
#define COMM_HELLO_WAIT_US UINT64_C(2000000)

struct comm_guest {
    int fd; /* -1: free */
    uint64_t deadline_us;
    uint32_t byte_count;
    uint8_t bytes[COMM_HELLO_BYTES];
};

struct comm_greeter {
    int fd; /* listener */
    struct comm_place place;
    struct comm_identity identity;
    uint32_t rank;    /* ours, for the log */
    uint32_t refused; /* connections turned away so far */
    struct comm_guest guests[COMM_GUESTS_MAX];
};

/* Listens on `address`, port from the kernel; `rank` is ours. */
enum status comm_greeter_open(struct comm_greeter *greeter, const char *address, uint32_t rank,
                              const struct comm_identity *identity, struct err *err);
void comm_greeter_close(struct comm_greeter *greeter);

/* Fills at most 1 + COMM_GUESTS_MAX entries; returns how many. */
uint32_t comm_greeter_poll(const struct comm_greeter *greeter, struct pollfd *fds);
/* Takes what has come and drops who is late. Call after each poll(2), until it returns -1. A
 * descriptor >= 0 has said `hello` and is now the caller's. */
int comm_greeter_next(struct comm_greeter *greeter, struct comm_hello *hello);
/* Turns away a guest whose hello was well-formed but cannot be served: tells it `why`, closes,
 * logs. */
void comm_greeter_refuse(struct comm_greeter *greeter, int fd, const struct comm_hello *hello,
                         enum comm_why why);

#endif
