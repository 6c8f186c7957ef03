/* For LD_PRELOAD: the clocks of a group of processes, moved by driver.c. Without $EDGE_FILE they are the real ones. */
#include "tests/lib/edge/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000

static struct edge_clock *shared;
static __thread volatile sig_atomic_t is_woken;

static void on_signal(int number)
{
    (void)number;
    is_woken = 1;
}

/* Twice is no harm: a parent notes its child, and the child itself. */
static void note_pid(int32_t pid)
{
    for (int i = 0; shared != NULL && i < EDGE_PIDS; i++) {
        int32_t none = 0;

        if (__atomic_compare_exchange_n(&shared->pids[i], &none, pid, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            none == pid)
            return;
    }
}

static void note_self(void)
{
    note_pid((int32_t)getpid());
}

/* A program that ignores all signals must not ignore ours: it is reserved, as are those of the C library. */
static bool is_reserved(int number)
{
    if (number != EDGE_SIGNAL || shared == NULL)
        return false;
    errno = EINVAL;
    return true;
}

static int real_sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    static int (*real)(int, const struct sigaction *, struct sigaction *);

    if (real == NULL)
        *(void **)&real = edge_real("sigaction");
    return real(number, action, before);
}

int sigaction(int number, const struct sigaction *restrict action,
              struct sigaction *restrict before)
{
    if (action != NULL && is_reserved(number))
        return -1;
    return real_sigaction(number, action, before);
}

void (*signal(int number, void (*handler)(int)))(int)
{
    static void (*(*real)(int, void (*)(int)))(int);

    if (is_reserved(number))
        return SIG_ERR;
    if (real == NULL)
        *(void **)&real = edge_real("signal");
    return real(number, handler);
}

__attribute__((constructor)) static void load(void)
{
    const struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: it ends a wait */
    struct edge_clock_file *file = edge_map(sizeof *file);

    if (file == NULL)
        return;
    clock_shut();
    (void)real_sigaction(EDGE_SIGNAL, &action, NULL);
    shared = &file->clock;
    note_self();
    (void)pthread_atfork(NULL, NULL, note_self);
}

static int64_t real_ns(clockid_t id)
{
    struct timespec time;

    (void)syscall(SYS_clock_gettime, id, &time);
    return time.tv_sec * (int64_t)NS_PER_S + time.tv_nsec;
}

int64_t clock_now(void)
{
    return shared != NULL ? __atomic_load_n(&shared->now_ns, __ATOMIC_ACQUIRE)
                          : real_ns(CLOCK_MONOTONIC);
}

int64_t clock_realtime_ns(void)
{
    return shared != NULL ? shared->realtime_ns
                          : real_ns(CLOCK_REALTIME) - real_ns(CLOCK_MONOTONIC);
}

bool clock_is_real(void)
{
    return shared == NULL;
}

/* -- waits -- */

void clock_begin(struct clock_wait *wait, int64_t deadline_ns)
{
    const int32_t tid = (int32_t)syscall(SYS_gettid);

    *wait = (struct clock_wait){.deadline_ns = deadline_ns, .slot = -1};
    is_woken = 0;
    for (int i = 0; shared != NULL && deadline_ns != EDGE_NEVER && i < EDGE_WAITERS; i++) {
        struct edge_waiter *waiter = &shared->waiters[(tid + i) % EDGE_WAITERS];
        uint64_t none = 0;

        if (!__atomic_compare_exchange_n(&waiter->owner, &none, edge_owner((int32_t)getpid(), tid),
                                         false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            continue;
        wait->slot = (tid + i) % EDGE_WAITERS;
        __atomic_store_n(&waiter->deadline_ns, deadline_ns, __ATOMIC_RELEASE);
        (void)__atomic_add_fetch(&shared->changes, 1, __ATOMIC_ACQ_REL);
        return;
    }
}

bool clock_is_over(const struct clock_wait *wait)
{
    return wait->deadline_ns != EDGE_NEVER && clock_now() >= wait->deadline_ns;
}

void clock_end(struct clock_wait *wait)
{
    struct edge_waiter *waiter = wait->slot >= 0 ? &shared->waiters[wait->slot] : NULL;

    if (waiter == NULL)
        return;
    (void)__atomic_add_fetch(&shared->changes, 1, __ATOMIC_ACQ_REL);
    __atomic_store_n(&waiter->deadline_ns, EDGE_NEVER, __ATOMIC_RELEASE);
    __atomic_store_n(&waiter->owner, 0, __ATOMIC_RELEASE);
    wait->slot = -1;
}

static void change_mask(int how)
{
    const int before = errno;
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, EDGE_SIGNAL);
    (void)pthread_sigmask(how, &set, NULL);
    errno = before;
}

void clock_open(void)
{
    change_mask(SIG_UNBLOCK);
}

void clock_shut(void)
{
    change_mask(SIG_BLOCK);
}

bool clock_was_woken(void)
{
    const bool was = is_woken != 0;

    is_woken = 0;
    return was;
}

/* -- the time -- */

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

int clock_gettime(clockid_t id, struct timespec *time)
{
    switch (id) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        *time = timespec_of(clock_now());
        return 0;
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        *time = timespec_of(clock_now() + clock_realtime_ns());
        return 0;
    default: /* of processors */
        return (int)syscall(SYS_clock_gettime, id, time);
    }
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    const int64_t ns = clock_now() + clock_realtime_ns();

    (void)zone;
    *time = (struct timeval){.tv_sec = ns / NS_PER_S, .tv_usec = ns % NS_PER_S / 1000};
    return 0;
}

time_t time(time_t *at)
{
    const time_t seconds = (clock_now() + clock_realtime_ns()) / NS_PER_S;

    if (at != NULL)
        *at = seconds;
    return seconds;
}
