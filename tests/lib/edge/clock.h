/* The gated clock's part of the control file, after its rules (edge.h). The driver (driver.c) alone moves the time. */
#ifndef TESTS_LIB_EDGE_CLOCK_H
#define TESTS_LIB_EDGE_CLOCK_H

#include <stdint.h>

#include "tests/lib/edge/edge.h"

#define EDGE_WAITERS 1024
#define EDGE_PIDS 1024
#define EDGE_NEVER INT64_MAX

/* A thread that waits for a time. Its owner is one word: with two the driver could see the process of one owner and the thread of the
 * next, and take the place from a thread that lives. */
struct edge_waiter {
    int64_t deadline_ns; /* EDGE_NEVER: not yet, or no longer */
    uint64_t owner;      /* edge_owner; 0: free */
};

static inline uint64_t edge_owner(int32_t pid, int32_t tid)
{
    return (uint64_t)(uint32_t)pid << 32 | (uint32_t)tid;
}

static inline int32_t edge_owner_pid(uint64_t owner)
{
    return (int32_t)(owner >> 32);
}

static inline int32_t edge_owner_tid(uint64_t owner)
{
    return (int32_t)(owner & UINT32_MAX);
}

struct edge_clock {
    int64_t now_ns;      /* CLOCK_MONOTONIC and CLOCK_BOOTTIME */
    int64_t realtime_ns; /* what CLOCK_REALTIME has more */
    uint64_t moves;
    uint64_t changes; /* waits that have begun or ended */
    struct edge_waiter waiters[EDGE_WAITERS];
    int32_t pids[EDGE_PIDS]; /* that have the library; 0: free */
};

struct edge_clock_file {
    struct edge_file rules;
    struct edge_clock clock;
};

/* The driver wakes a waiter with it. Threads block it outside of their waits, so no other call is interrupted. */
#define EDGE_SIGNAL (SIGRTMAX - 5)

/* -- for the parts of the library -- */

#pragma GCC visibility push(hidden)

/* The gated monotonic time; without a control file the real one. */
int64_t clock_now(void);
int64_t clock_realtime_ns(void); /* what CLOCK_REALTIME has more */
bool clock_is_real(void);        /* there is no control file */

/* Sets off the timers of this process whose time has come. Returns when the next one's comes, or EDGE_NEVER. */
int64_t timers_fire(void);

/* A wait until a time of the gated clock: begin, then in a loop until clock_is_over a call that our signal interrupts, then end.
 * Between clock_open and clock_shut this thread takes the signal, for calls that have no mask. */
struct clock_wait {
    int64_t deadline_ns;
    int slot;
};
void clock_begin(struct clock_wait *wait, int64_t deadline_ns);
bool clock_is_over(const struct clock_wait *wait);
void clock_end(struct clock_wait *wait); /* keeps errno */
void clock_open(void);
void clock_shut(void); /* keeps errno */

/* Whether our signal came since the last time. */
bool clock_was_woken(void);

#pragma GCC visibility pop

#endif
