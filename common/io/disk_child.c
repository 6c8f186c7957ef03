#include "common/io/disk_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/io/mono.h"

#define LOOK_MS 1000u       /* how often its progress is looked at */
#define BUSY_TICKS_PART 10u /* it computes: that part of a second's ticks at least */

/* What the child leaves for its parent. */
struct outcome {
    enum status status;
    struct err err;
};

/* What it has done so far. */
struct progress {
    unsigned long long bytes, ticks;
};

static void read_text(pid_t pid, const char *name, char *text, size_t capacity)
{
    char path[64];
    ssize_t got = -1;
    int fd;

    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, capacity - 1);
        (void)close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
}

/* proc(5): the times are fields 14 and 15 of `stat`, where the name, field 2, may have spaces. */
static struct progress look(pid_t pid)
{
    struct progress now = {0};
    char text[1024], *at;

    read_text(pid, "io", text, sizeof text);
    if ((at = strstr(text, "rchar: ")) != NULL)
        now.bytes += strtoull(at + strlen("rchar: "), NULL, 10);
    if ((at = strstr(text, "wchar: ")) != NULL)
        now.bytes += strtoull(at + strlen("wchar: "), NULL, 10);
    read_text(pid, "stat", text, sizeof text);
    at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 14; field++)
        if ((at = strchr(at, ' ')) != NULL)
            at++;
    if (at != NULL) {
        now.ticks = strtoull(at, &at, 10);
        now.ticks += strtoull(at, NULL, 10);
    }
    return now;
}

static bool goes_on(const struct progress *before, const struct progress *now)
{
    const long a_second = sysconf(_SC_CLK_TCK);

    return now->bytes != before->bytes ||
           now->ticks - before->ticks >= (unsigned long long)a_second / BUSY_TICKS_PART;
}

static void run_child(enum status (*work)(void *context, struct err *err), void *context,
                      pid_t parent, struct outcome *outcome)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE);
    outcome->status = work(context, &outcome->err);
    (void)fflush(NULL);
    _exit(EXIT_SUCCESS);
}

/* True: it has ended, with that `*ended` of waitpid(2). False: nothing has come of it for `limit_ms`. */
static bool wait_for(pid_t pid, uint32_t limit_ms, int *ended)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    uint64_t now_ms = mono_us() / 1000, moved_ms = now_ms, looked_ms = now_ms;
    struct progress before = look(pid), now;
    pid_t got;

    while ((got = waitpid(pid, ended, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        (void)nanosleep(&pause, NULL);
        now_ms = mono_us() / 1000;
        if (now_ms - looked_ms < LOOK_MS)
            continue;
        now = look(pid);
        if (goes_on(&before, &now))
            moved_ms = now_ms;
        before = now;
        looked_ms = now_ms;
        if (now_ms - moved_ms >= limit_ms)
            return false;
    }
    return true;
}

enum status disk_child_run(enum status (*work)(void *context, struct err *err), void *context,
                           uint32_t limit_ms, struct err *err)
{
    struct outcome *outcome =
        mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t parent = getpid();
    enum status status;
    int ended = 0;
    pid_t pid;

    if (outcome == MAP_FAILED)
        return err_set(err, STATUS_MEMORY, errno, "no memory for a process");
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0)
        run_child(work, context, parent, outcome);
    if (pid < 0) {
        status =
            err_set(err, STATUS_SYSTEM, errno, "no process can be started: %s", strerror(errno));
    } else if (!wait_for(pid, limit_ms, &ended)) {
        (void)kill(pid, SIGKILL);
        status = err_set(err, STATUS_TIMEOUT, 0, "nothing was read or written for %u s",
                         limit_ms / 1000);
    } else if (!WIFEXITED(ended) || WEXITSTATUS(ended) != EXIT_SUCCESS) {
        status = err_set(err, STATUS_SYSTEM, 0, "process %d, which did it, was killed", (int)pid);
    } else {
        status = outcome->status;
        if (status != STATUS_OK && err != NULL)
            *err = outcome->err;
    }
    (void)munmap(outcome, sizeof *outcome);
    return status;
}
