/* Timers that are descriptors (timerfd), on the gated clock: each is a timer of the kernel that is set off when a wait of its process (waits.c)
 * finds that its time has come. So a wait sees those that were set before it began, and a read that blocks sees none. Such a timer
 * fires once. */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/edge/clock.h"

#define NS_PER_S 1000000000
#define TIMERS 1024 /* by descriptor */

static struct {
    int64_t deadline_ns; /* 0: not set */
    clockid_t clock;
} timers[TIMERS];

static int set_real(int fd, int flags, const struct itimerspec *time)
{
    return (int)syscall(SYS_timerfd_settime, fd, flags, time, NULL);
}

int timerfd_create(clockid_t clock, int flags)
{
    const int fd = (int)syscall(SYS_timerfd_create, clock, flags);

    if (fd < 0 || fd >= TIMERS)
        return fd;
    __atomic_store_n(&timers[fd].deadline_ns, 0, __ATOMIC_RELEASE);
    timers[fd].clock = clock;
    return fd;
}

static void tell_left(int fd, struct itimerspec *time)
{
    const int64_t deadline_ns = __atomic_load_n(&timers[fd].deadline_ns, __ATOMIC_ACQUIRE);
    const int64_t left = deadline_ns > clock_now() ? deadline_ns - clock_now() : 0;

    memset(time, 0, sizeof *time);
    time->it_value = (struct timespec){.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
}

int timerfd_gettime(int fd, struct itimerspec *time)
{
    if (clock_is_real() || fd < 0 || fd >= TIMERS)
        return (int)syscall(SYS_timerfd_gettime, fd, time);
    tell_left(fd, time);
    return 0;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *time, struct itimerspec *before)
{
    static const struct itimerspec off;
    const int64_t ns = time->it_value.tv_sec * (int64_t)NS_PER_S + time->it_value.tv_nsec;
    int64_t deadline_ns = ns;

    if (clock_is_real() || fd < 0 || fd >= TIMERS)
        return (int)syscall(SYS_timerfd_settime, fd, flags, time, before);
    if (time->it_interval.tv_sec != 0 || time->it_interval.tv_nsec != 0) {
        errno = ENOSYS;
        return -1;
    }
    if (set_real(fd, 0, &off) != 0) /* what has expired is forgotten, as with the real one */
        return -1;
    if (before != NULL)
        tell_left(fd, before);
    if ((flags & TFD_TIMER_ABSTIME) == 0)
        deadline_ns += clock_now();
    else if (timers[fd].clock == CLOCK_REALTIME)
        deadline_ns -= clock_realtime_ns();
    if (ns != 0 && deadline_ns <= 0)
        deadline_ns = 1; /* long ago */
    __atomic_store_n(&timers[fd].deadline_ns, ns != 0 ? deadline_ns : 0, __ATOMIC_RELEASE);
    return 0;
}

int64_t timers_fire(void)
{
    static const struct itimerspec long_ago = {.it_value = {.tv_nsec = 1}};
    int64_t next = EDGE_NEVER;

    for (int fd = 0; fd < TIMERS; fd++) {
        const int64_t deadline_ns = __atomic_load_n(&timers[fd].deadline_ns, __ATOMIC_ACQUIRE);

        if (deadline_ns == 0)
            continue;
        if (deadline_ns > clock_now()) {
            next = deadline_ns < next ? deadline_ns : next;
            continue;
        }
        __atomic_store_n(&timers[fd].deadline_ns, 0, __ATOMIC_RELEASE);
        (void)set_real(fd, TFD_TIMER_ABSTIME, &long_ago);
    }
    return next;
}
