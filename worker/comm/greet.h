/* The listener of a rank: accepts connections and passes on those whose first message (hello)
 * proves that they belong to this generation.
 *
 * Anyone on the network can connect. A connection that sends nothing, too little or a wrong hello
 * is dropped, at the latest after COMM_HELLO_WAIT_US or when all places are taken. It never delays
 * others. */
#ifndef WORKER_COMM_GREET_H
#define WORKER_COMM_GREET_H

#include <poll.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/wire.h"

#define COMM_GUESTS_MAX 64 /* connections without a complete hello; the kernel queues more */
#define COMM_HELLO_WAIT_US UINT64_C(2000000)

/* A connection whose hello is not complete yet. */
struct comm_guest {
    int fd; /* -1: unused */
    uint64_t deadline_us;
    uint32_t byte_count;
    uint8_t bytes[COMM_HELLO_BYTES];
};

struct comm_greeter {
    int fd; /* listener */
    struct comm_place place;
    struct comm_identity identity;
    uint32_t rank;    /* our own, for the log */
    uint32_t refused; /* connections refused so far */
    struct comm_guest guests[COMM_GUESTS_MAX];
};

/* Listens on `address` with a port that the kernel chooses. `rank` is our own. */
enum status comm_greeter_open(struct comm_greeter *greeter, const char *address, uint32_t rank,
                              const struct comm_identity *identity, struct err *err);
void comm_greeter_close(struct comm_greeter *greeter);

/* Fills `fds` with what poll(2) must watch, at most 1 + COMM_GUESTS_MAX entries; returns how many.
 */
uint32_t comm_greeter_poll(const struct comm_greeter *greeter, struct pollfd *fds);
/* Reads what has arrived and drops connections that are late. Call after each poll(2) until it
 * returns -1. A result >= 0 is a connection with a right hello, now owned by the caller. */
int comm_greeter_next(struct comm_greeter *greeter, struct comm_hello *hello);
/* Refuses a connection whose hello was right but cannot be used: sends `why`, closes, logs. */
void comm_greeter_refuse(struct comm_greeter *greeter, int fd, const struct comm_hello *hello,
                         enum comm_why why);

#endif
