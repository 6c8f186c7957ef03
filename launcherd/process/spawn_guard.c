#include "launcherd/process/spawn_guard.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "common/thread_start.h"
#include "launcherd/process/proc.h"

#define LOOK_MS 1000 /* after SPAWN_GUARD_MS */

/* The child is reaped by the thread that waits in spawn_process, so its number stays its own. */
static void look(struct spawn_guard *guard)
{
    const pid_t pid = spawn_watch_pid(&guard->watch);

    if (pid > 0 && proc_is_stopped(pid) && kill(pid, SIGKILL) == 0)
        guard->killed = pid;
}

static void add_ms(struct timespec *until, long ms)
{
    until->tv_sec += ms / 1000;
    until->tv_nsec += ms % 1000 * 1000000;
    if (until->tv_nsec < 1000000000)
        return;
    until->tv_sec++;
    until->tv_nsec -= 1000000000;
}

static void *run(void *argument)
{
    struct spawn_guard *guard = argument;
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    add_ms(&until, SPAWN_GUARD_MS);
    (void)pthread_mutex_lock(&guard->lock);
    while (!guard->is_over) {
        if (pthread_cond_clockwait(&guard->changed, &guard->lock, CLOCK_MONOTONIC, &until) == 0)
            continue;
        if (!guard->is_over)
            look(guard);
        add_ms(&until, LOOK_MS);
    }
    (void)pthread_mutex_unlock(&guard->lock);
    return NULL;
}

void spawn_guard_begin(struct spawn_guard *guard)
{
    *guard = (struct spawn_guard){.killed = 0};
    (void)pthread_mutex_init(&guard->lock, NULL);
    (void)pthread_cond_init(&guard->changed, NULL);
    guard->is_running = thread_start(&guard->thread, 0, run, guard) == 0;
}

enum status spawn_guard_end(struct spawn_guard *guard, enum status status, struct err *err)
{
    const pid_t pid = spawn_watch_pid(&guard->watch);

    (void)pthread_mutex_lock(&guard->lock);
    guard->is_over = true;
    (void)pthread_cond_signal(&guard->changed);
    (void)pthread_mutex_unlock(&guard->lock);
    if (guard->is_running)
        (void)pthread_join(guard->thread, NULL);
    (void)pthread_cond_destroy(&guard->changed);
    (void)pthread_mutex_destroy(&guard->lock);
    if (guard->killed > 0) /* a debugger may keep it: it is reaped as the others are */
        return err_set(err, STATUS_SYSTEM, 0,
                       "its new process %d was stopped (SIGSTOP, or a debugger) before it ran its "
                       "program, and was killed after %u s",
                       (int)guard->killed, SPAWN_GUARD_MS / 1000);
    if (status != STATUS_OK && pid > 0)
        (void)waitpid(pid, NULL, 0);
    return status;
}
