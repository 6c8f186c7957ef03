#include "launcherd/shim/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "common/io/own_path.h"
#include "common/limits.h"
#include "common/log.h"
#include "launcherd/process/cgroup.h"
#include "launcherd/process/lease_page.h"
#include "launcherd/process/proc.h"
#include "launcherd/process/rundir.h"
#include "launcherd/process/spawn.h"

#define ACTS_US 5000000u /* a shim that ends its ranks by itself has this time, as with launcherd */
#define AGAIN_US 1000000u /* the lease is over and nothing runs: whether it is renewed */
#define TURNS_FAST 400u   /* then the rest hang in the kernel */
#define PAUSE_FAST_NS 5000000
#define PAUSE_SLOW_NS 500000000
#define CLEAN_TURNS 4u
#define TURNS_GONE_MAX 600u /* of a shim that is gone: about two minutes */

struct guard {
    const char *log;
    struct rundir_shim shim;
    struct lease_page *page;
    int pidfd, timer_fd;
    bool is_told;
};

/* After the kill: the disk of the log may hang. */
static void tell(struct guard *guard, const char *why)
{
    struct err err;
    int fd;

    if (guard->is_told)
        return;
    guard->is_told = true;
    if (own_file_open(guard->log, 1, O_WRONLY | O_APPEND, 0600, &fd, &err) != STATUS_OK)
        return;
    (void)dup2(fd, STDERR_FILENO);
    (void)close(fd);
    log_line(LOG_WARNING, LOG_ABOUT_NONE, "the guard of the shim, pid %d, kills the ranks: %s",
             (int)guard->shim.pid, why);
}

static bool shim_lives(const struct guard *guard)
{
    struct pollfd poll_fd = {.fd = guard->pidfd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) == 0;
}

/* Returns how many were found. The shim is a subreaper: while it lives, all that its ranks have started is below it. */
static uint32_t kill_once(const struct guard *guard)
{
    const struct rundir_shim *shim = &guard->shim;
    uint32_t count = 0;

    if (shim->cgroup[0] != '\0' && cgroup_is_populated(shim->cgroup)) {
        (void)cgroup_kill(shim->cgroup);
        count++;
    }
    if (shim_lives(guard))
        count += proc_kill_descendants(shim->pid, NULL, NULL);
    return count + proc_kill_token(shim->token);
}

/* Until nothing is found for a while: a process that begins a program just then shows no token. */
static void kill_all(struct guard *guard, const char *why)
{
    uint32_t clean = 0;

    for (uint32_t turn = 0; clean < CLEAN_TURNS && turn < TURNS_GONE_MAX; turn++) {
        const bool is_found = kill_once(guard) > 0;
        const struct timespec pause = {.tv_nsec = clean == 0 && turn < TURNS_FAST ? PAUSE_FAST_NS
                                                                                  : PAUSE_SLOW_NS};

        clean = is_found ? 0 : clean + 1;
        (void)nanosleep(&pause, NULL);
        if (turn == 1 && is_found)
            tell(guard, why);
    }
}

/* When to look at the lease again, or to kill. */
static uint64_t due_us(const struct guard *guard)
{
    const uint64_t until_us = lease_page_until_us(guard->page);

    if (until_us == 0)
        return clock_boot_us() + AGAIN_US;
    return until_us + (atomic_load(&guard->page->is_over) ? ACTS_US : LEASE_GUARD_US);
}

/* Waits until `at_us`, which counts on while the machine sleeps. True: the shim is gone. */
static bool wait_until(const struct guard *guard, uint64_t at_us)
{
    const struct itimerspec when = {.it_value = {.tv_sec = (time_t)(at_us / 1000000),
                                                 .tv_nsec = (long)(at_us % 1000000) * 1000}};
    struct pollfd fds[2] = {{.fd = guard->pidfd, .events = POLLIN},
                            {.fd = guard->timer_fd, .events = POLLIN}};

    if (timerfd_settime(guard->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) != 0)
        return true;
    while (poll(fds, 2, -1) < 0)
        continue; /* a signal */
    return fds[0].revents != 0;
}

/* Until the shim is gone. */
static void watch(struct guard *guard)
{
    uint64_t clean_us = 0; /* the lease after whose end nothing was left */

    for (;;) {
        const uint64_t at_us = due_us(guard), now_us = clock_boot_us();

        if (now_us < at_us) {
            if (wait_until(guard, at_us))
                break;
            continue;
        }
        if (clean_us != at_us)
            kill_all(guard, "its lease is over, and the shim does not end them");
        clean_us = at_us;
        if (wait_until(guard, clock_boot_us() + AGAIN_US))
            break;
    }
}

/* False: there is nothing to guard. Without a pidfd the shim is gone already; with one the number stays its own. */
static bool find_shim(struct guard *guard, const char *run_dir)
{
    char boot_id[64];
    struct err err;

    proc_boot_id(boot_id, sizeof boot_id);
    if (rundir_read_shim(run_dir, &guard->shim, &err) != STATUS_OK ||
        strcmp(guard->shim.boot_id, boot_id) != 0)
        return false;
    guard->pidfd = proc_pidfd(guard->shim.pid);
    if (guard->pidfd >= 0 && proc_start_ticks(guard->shim.pid) != guard->shim.start_ticks) {
        (void)close(guard->pidfd); /* the number is another process's by now, or nobody's */
        guard->pidfd = -1;
    }
    return true;
}

int guard_main(char *const *arguments)
{
    static struct guard guard; /* large */

    for (int number = 1; number < NSIG; number++)
        if (number != SIGCHLD)
            (void)signal(number, SIG_IGN); /* it goes with the shim */
    log_open("guard", LOG_INFO, false);
    guard.log = arguments[GUARD_ARG_LOG];
    guard.page = lease_page_map(SPAWN_EXTRA_FD);
    guard.timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
    if (guard.page == NULL || guard.timer_fd < 0)
        return 1;
    if (!lease_page_begin_guard(SPAWN_EXTRA_FD))
        return 0; /* the shim has a guard */
    if (!find_shim(&guard, arguments[GUARD_ARG_RUN_DIR]))
        return 0;
    if (guard.pidfd >= 0)
        watch(&guard);
    if (!atomic_load(&guard.page->has_ended))
        kill_all(&guard, "their shim is gone");
    return 0;
}
