#include "launcherd/shim/warm_workers.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/write_all.h"
#include "launcherd/shim/worker_ends.h"

#define GIVEN_FDS 5 /* stdin, stdout, stderr, the shim's socket, the environment */

/* The number at `*at`; moves `*at` past it and past `end`. -1: there is none. */
static int take_number(const char **at, char end)
{
    char *behind;
    const long number = strtol(*at, &behind, 10);

    if (behind == *at || number < 0 || number > INT_MAX || (*behind != end && *behind != '\0'))
        return -1;
    *at = *behind == '\0' ? behind : behind + 1;
    return (int)number;
}

void warm_workers_read(struct warm_workers *warm)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread */
    const char *at = getenv(WARM_VARIABLE);

    *warm = (struct warm_workers){.count = 0};
    if (at == NULL || strlen(at) <= PROC_TOKEN_CHARS)
        return;
    memcpy(warm->token, at, PROC_TOKEN_CHARS);
    at += PROC_TOKEN_CHARS + 1;
    while (*at != '\0' && warm->count < SLOTS_PER_NODE_MAX) {
        const int pid = take_number(&at, ':'), fd = take_number(&at, ':');
        const int answers = take_number(&at, ' ');

        if (pid <= 0 || fd < 0 || answers < 0)
            break; /* warm_workers_write has not written this */
        warm->items[warm->count++] =
            (struct warm_worker){.pid = pid, .fd = fd, .answers = answers != 0};
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    (void)unsetenv(WARM_VARIABLE); /* NOLINT(concurrency-mt-unsafe): as above */
}

bool warm_workers_write(const struct warm_workers *warm)
{
    char text[SLOTS_PER_NODE_MAX * 26 + PROC_TOKEN_CHARS + 1];
    size_t at = (size_t)snprintf(text, sizeof text, "%s", warm->token);

    for (uint32_t i = 0; i < warm->count; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, " %d:%d:%d", (int)warm->items[i].pid,
                               warm->items[i].fd, warm->items[i].answers);
        if (fcntl(warm->items[i].fd, F_SETFD, 0) != 0)
            return false;
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the process has one thread */
    return setenv(WARM_VARIABLE, text, 1) == 0;
}

/* Writes the environment into a file in memory. Returns its descriptor; -1: it failed. */
static int write_environment(char *const *envp)
{
    int fd = memfd_create("environment", MFD_CLOEXEC);
    bool done = fd >= 0;

    for (; done && *envp != NULL; envp++)
        done = write_all(fd, *envp, strlen(*envp) + 1);
    if (fd >= 0 && (!done || lseek(fd, 0, SEEK_SET) != 0)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static bool send_place(int to, const int fds[GIVEN_FDS])
{
    union {
        char bytes[CMSG_SPACE(GIVEN_FDS * sizeof(int))];
        struct cmsghdr align;
    } control = {.bytes = {0}};
    struct iovec byte = {.iov_base = (char[]){'p'}, .iov_len = 1};
    struct msghdr msg = {.msg_iov = &byte,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(GIVEN_FDS * sizeof(int));
    memcpy(CMSG_DATA(head), fds, GIVEN_FDS * sizeof(int));
    return sendmsg(to, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

static bool move_to(const char *cgroup, pid_t pid)
{
    char path[PATH_MAX], number[16];
    int length = snprintf(number, sizeof number, "%d", (int)pid), fd;
    bool done;

    if (snprintf(path, sizeof path, "%s/cgroup.procs", cgroup) >= (int)sizeof path)
        return false;
    fd = open(path, O_WRONLY | O_CLOEXEC);
    done = fd >= 0 && write(fd, number, (size_t)length) == length;
    if (fd >= 0)
        (void)close(fd);
    return done;
}

static bool give(const struct warm_worker *worker, const struct worker_ends *ends, int null_fd,
                 char *const *envp, const char *cgroup)
{
    const int environment = write_environment(envp);
    const int fds[GIVEN_FDS] = {ends->stdin_fd >= 0 ? ends->stdin_fd : null_fd, ends->stdout_fd,
                                ends->stderr_fd, ends->conn_fd, environment};
    bool done = environment >= 0 && (cgroup == NULL || move_to(cgroup, worker->pid)) &&
                send_place(worker->fd, fds);

    if (environment >= 0)
        (void)close(environment);
    return done;
}

/* Whether it is our child and runs. While it is not reaped, no other process can get its pid, so it
 * is safe to signal it. Reaps it if it has ended. */
static bool is_alive(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) == 0;
}

bool warm_workers_give(struct warm_workers *warm, uint32_t local, const struct worker_ends *ends,
                       int null_fd, char *const *envp, const char *cgroup, pid_t *pid,
                       int *answer_fd)
{
    struct warm_worker *worker = local < warm->count ? &warm->items[local] : NULL;
    bool lives, done;

    *answer_fd = -1;
    if (worker == NULL || worker->pid == 0)
        return false;
    lives = is_alive(worker->pid);
    done = lives && !proc_is_stopped(worker->pid) && !ends->has_terminal &&
           give(worker, ends, null_fd, envp, cgroup);
    if (done)
        *pid = worker->pid;
    else if (lives)
        (void)kill(-worker->pid, SIGKILL);
    if (done && worker->answers)
        *answer_fd = worker->fd;
    else
        (void)close(worker->fd);
    worker->pid = 0;
    return done;
}

void warm_workers_drop(struct warm_workers *warm)
{
    for (uint32_t i = 0; i < warm->count; i++) {
        if (warm->items[i].pid == 0)
            continue;
        if (is_alive(warm->items[i].pid))
            (void)kill(-warm->items[i].pid, SIGKILL);
        (void)close(warm->items[i].fd);
    }
    warm->count = 0;
}
