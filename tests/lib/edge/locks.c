/* Semaphores and condition variables on the gated clock. The C library's condition variables cannot be woken from outside, so
 * these are others in the same memory: a number that each signal raises, on which they wait. */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/edge/clock.h"

#define NS_PER_S 1000000000

/* A wait this short also ends in real time: Python's threads ask for their lock in this way, and one that computes would
 * have it for ever. */
#define SHORT_NS 10000000

/* Of a zeroed one, as of PTHREAD_COND_INITIALIZER, the clock is CLOCK_REALTIME, 0. */
struct gate_cond {
    uint32_t number;
    clockid_t clock;
};

_Static_assert(sizeof(struct gate_cond) <= sizeof(pthread_cond_t), "it lies there");

static struct gate_cond *gate_of(pthread_cond_t *cond)
{
    return (struct gate_cond *)(void *)cond;
}

static int64_t deadline_of(clockid_t clock, const struct timespec *at)
{
    const int64_t ns = at->tv_sec * (int64_t)NS_PER_S + at->tv_nsec;

    return clock == CLOCK_REALTIME ? ns - clock_realtime_ns() : ns;
}

int pthread_cond_init(pthread_cond_t *restrict cond, const pthread_condattr_t *restrict attributes)
{
    struct gate_cond *gate = gate_of(cond);

    memset(gate, 0, sizeof(pthread_cond_t));
    if (attributes != NULL)
        (void)pthread_condattr_getclock(attributes, &gate->clock);
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *cond)
{
    (void)cond;
    return 0;
}

static void wake(pthread_cond_t *cond, int count)
{
    (void)__atomic_add_fetch(&gate_of(cond)->number, 1, __ATOMIC_ACQ_REL);
    (void)syscall(SYS_futex, &gate_of(cond)->number, FUTEX_WAKE, count, NULL, NULL, 0);
}

int pthread_cond_signal(pthread_cond_t *cond)
{
    wake(cond, 1);
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *cond)
{
    wake(cond, INT32_MAX);
    return 0;
}

/* Sleeps once while the number is the same. False: a short wait is over in real time. */
static bool sleep_once(uint32_t *word, uint32_t number, const struct clock_wait *wait)
{
    const int64_t left =
        wait->deadline_ns == EDGE_NEVER ? EDGE_NEVER : wait->deadline_ns - clock_now();
    const struct timespec limit = {.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
    const bool is_real = left <= SHORT_NS || (wait->slot < 0 && left != EDGE_NEVER);

    return syscall(SYS_futex, word, FUTEX_WAIT, number, is_real ? &limit : NULL, NULL, 0) == 0 ||
           errno != ETIMEDOUT;
}

static int wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns)
{
    uint32_t *word = &gate_of(cond)->number;
    const uint32_t number = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    struct clock_wait wait;
    bool is_late = false;
    int code = pthread_mutex_unlock(mutex);

    if (code != 0)
        return code;
    clock_begin(&wait, deadline_ns);
    clock_open();
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == number && !is_late) {
        is_late = clock_is_over(&wait);
        if (!is_late)
            is_late = !sleep_once(word, number, &wait);
    }
    clock_shut();
    clock_end(&wait);
    is_late = is_late && __atomic_load_n(word, __ATOMIC_ACQUIRE) == number;
    code = pthread_mutex_lock(mutex);
    if (code != 0)
        return code;
    return is_late ? ETIMEDOUT : 0;
}

int pthread_cond_wait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex)
{
    return wait_until(cond, mutex, EDGE_NEVER);
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict at)
{
    return wait_until(cond, mutex, deadline_of(gate_of(cond)->clock, at));
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           clockid_t clock, const struct timespec *restrict at)
{
    return wait_until(cond, mutex, deadline_of(clock, at));
}

/* sem_wait ends by our signal. */
int sem_clockwait(sem_t *restrict sem, clockid_t clock, const struct timespec *restrict at)
{
    struct clock_wait wait;
    int result;

    clock_begin(&wait, deadline_of(clock, at));
    if (wait.slot < 0) { /* no control file */
        static int (*real)(sem_t *, clockid_t, const struct timespec *);
        if (real == NULL)
            *(void **)&real = edge_real("sem_clockwait");
        return real(sem, clock, at);
    }
    do {
        clock_open();
        if (clock_is_over(&wait)) {
            result = sem_trywait(sem);
            if (result != 0 && errno == EAGAIN)
                errno = ETIMEDOUT;
        } else {
            result = sem_wait(sem);
        }
        clock_shut();
    } while (result != 0 && errno == EINTR && clock_was_woken());
    clock_end(&wait);
    return result;
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict at)
{
    return sem_clockwait(sem, CLOCK_REALTIME, at);
}
