/* Waits on the gated clock: for descriptors, and sleeps. They end by a descriptor, by a signal of the program's as usual, or
 * by the driver's signal when the time has come. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/edge/clock.h"

#define NS_PER_S 1000000000
#define MASK_BYTES 8 /* of the kernel's sigset_t */

static int64_t ns_of(const struct timespec *time)
{
    return time->tv_sec * (int64_t)NS_PER_S + time->tv_nsec;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

static int64_t after(int64_t ns)
{
    const int64_t now = clock_now();

    return ns > EDGE_NEVER - 1 - now ? EDGE_NEVER - 1 : now + ns;
}

/* The mask during a wait: the given one, or that of the thread, with our signal. */
static void open_mask(sigset_t *mask, const sigset_t *given)
{
    if (given != NULL)
        *mask = *given;
    else
        (void)pthread_sigmask(SIG_SETMASK, NULL, mask);
    (void)sigdelset(mask, EDGE_SIGNAL);
}

/* Without a control file nobody moves the time: then the kernel waits for it. */
static const struct timespec *real_limit(const struct clock_wait *wait, struct timespec *limit)
{
    const int64_t left = wait->deadline_ns - clock_now();

    if (wait->slot >= 0 || wait->deadline_ns == EDGE_NEVER)
        return NULL;
    *limit = timespec_of(left > 0 ? left : 0);
    return limit;
}

/* ppoll(2) until a time. */
static int poll_once(struct pollfd *fds, nfds_t count, int64_t deadline_ns, const sigset_t *given)
{
    static const struct timespec none;
    struct timespec limit;
    struct clock_wait wait;
    sigset_t mask;
    long result;

    open_mask(&mask, given);
    clock_begin(&wait, deadline_ns);
    do {
        const struct timespec *at = clock_is_over(&wait) ? &none : real_limit(&wait, &limit);
        struct timespec copy = at != NULL ? *at : none; /* the kernel writes what is left */

        result = syscall(SYS_ppoll, fds, count, at != NULL ? &copy : NULL, &mask, MASK_BYTES);
    } while ((result < 0 && errno == EINTR && clock_was_woken()) ||
             (result == 0 && !clock_is_over(&wait)));
    clock_end(&wait);
    return (int)result;
}

/* Until one of them has something, a timer of the process or the time. */
static int poll_until(struct pollfd *fds, nfds_t count, int64_t deadline_ns, const sigset_t *given)
{
    for (;;) {
        const int64_t timer_ns = timers_fire();
        const int64_t at_ns = timer_ns < deadline_ns ? timer_ns : deadline_ns;
        const int result = poll_once(fds, count, at_ns, given);

        if (result != 0 || at_ns == deadline_ns)
            return result;
    }
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    return poll_until(fds, count, timeout_ms < 0 ? EDGE_NEVER : after(timeout_ms * 1000000LL),
                      NULL);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    return poll_until(fds, count, timeout == NULL ? EDGE_NEVER : after(ns_of(timeout)), mask);
}

/* An epoll descriptor can be polled itself; what is ready is then taken without waiting. */
int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout_ms, const sigset_t *mask)
{
    const int64_t deadline_ns = timeout_ms < 0 ? EDGE_NEVER : after(timeout_ms * 1000000LL);
    struct pollfd one = {.fd = fd, .events = POLLIN};
    int count;

    for (;;) {
        (void)timers_fire();
        count = (int)syscall(SYS_epoll_pwait, fd, events, most, 0, NULL, MASK_BYTES);
        if (count != 0 || timeout_ms == 0 || clock_now() >= deadline_ns)
            return count;
        count = poll_until(&one, 1, deadline_ns, mask);
        if (count < 0)
            return count;
    }
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    return epoll_pwait(fd, events, most, timeout_ms, NULL);
}

/* The six words of pselect6(2). The sets are as before when the time is over. */
static int select_once(int count, fd_set *sets[3], int64_t deadline_ns, const sigset_t *given)
{
    static const struct timespec none;
    fd_set copies[3];
    sigset_t mask;
    struct timespec limit;
    struct clock_wait wait;
    long result;

    open_mask(&mask, given);
    clock_begin(&wait, deadline_ns);
    do {
        const struct timespec *at = clock_is_over(&wait) ? &none : real_limit(&wait, &limit);
        struct timespec copy = at != NULL ? *at : none;
        struct {
            const sigset_t *mask;
            size_t bytes;
        } last = {&mask, MASK_BYTES};
        fd_set *each[3];

        for (int i = 0; i < 3; i++) {
            if (sets[i] != NULL)
                copies[i] = *sets[i];
            each[i] = sets[i] != NULL ? &copies[i] : NULL;
        }
        result = syscall(SYS_pselect6, count, each[0], each[1], each[2], at != NULL ? &copy : NULL,
                         &last);
    } while ((result < 0 && errno == EINTR && clock_was_woken()) ||
             (result == 0 && !clock_is_over(&wait)));
    clock_end(&wait);
    for (int i = 0; i < 3 && result > 0; i++)
        if (sets[i] != NULL)
            *sets[i] = copies[i];
    return (int)result;
}

static int select_until(int count, fd_set *sets[3], int64_t deadline_ns, const sigset_t *given)
{
    for (;;) {
        const int64_t timer_ns = timers_fire();
        const int64_t at_ns = timer_ns < deadline_ns ? timer_ns : deadline_ns;
        const int result = select_once(count, sets, at_ns, given);

        for (int i = 0; i < 3 && result == 0 && at_ns == deadline_ns; i++)
            if (sets[i] != NULL)
                FD_ZERO(sets[i]);
        if (result != 0 || at_ns == deadline_ns)
            return result;
    }
}

int select(int count, fd_set *restrict reads, fd_set *restrict writes, fd_set *restrict others,
           struct timeval *restrict timeout)
{
    fd_set *sets[3] = {reads, writes, others};
    const int64_t ns =
        timeout == NULL ? 0 : timeout->tv_sec * (int64_t)NS_PER_S + timeout->tv_usec * 1000;

    return select_until(count, sets, timeout == NULL ? EDGE_NEVER : after(ns), NULL);
}

int pselect(int count, fd_set *restrict reads, fd_set *restrict writes, fd_set *restrict others,
            const struct timespec *restrict timeout, const sigset_t *restrict mask)
{
    fd_set *sets[3] = {reads, writes, others};

    return select_until(count, sets, timeout == NULL ? EDGE_NEVER : after(ns_of(timeout)), mask);
}

/* -- sleeps -- */

int clock_nanosleep(clockid_t id, int flags, const struct timespec *wanted, struct timespec *left)
{
    const bool is_at = (flags & TIMER_ABSTIME) != 0;
    int64_t deadline_ns;

    if (wanted->tv_sec < 0 || wanted->tv_nsec < 0 || wanted->tv_nsec >= NS_PER_S)
        return EINVAL;
    deadline_ns = is_at ? ns_of(wanted) : after(ns_of(wanted));
    if (is_at && id == CLOCK_REALTIME)
        deadline_ns -= clock_realtime_ns();
    if (poll_until(NULL, 0, deadline_ns, NULL) == 0)
        return 0;
    if (!is_at && left != NULL) {
        const int64_t rest = deadline_ns - clock_now();
        *left = timespec_of(rest > 0 ? rest : 0);
    }
    return errno;
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    const int code = clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);

    if (code != 0)
        errno = code;
    return code == 0 ? 0 : -1;
}

int usleep(useconds_t us)
{
    const struct timespec wanted = timespec_of(us * 1000LL);

    return nanosleep(&wanted, NULL);
}

unsigned sleep(unsigned seconds)
{
    const struct timespec wanted = {.tv_sec = seconds};
    struct timespec left;

    return nanosleep(&wanted, &left) == 0 ? 0 : (unsigned)left.tv_sec + (left.tv_nsec > 0);
}
