#include "ddpctl/leftover.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOMENT_MS 500 /* how long processes may end by themselves before we kill them */
#define KILL_MS 5000

static bool have_children(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

void leftover_reap(struct leftover *leftover)
{
    siginfo_t info = {0};

    while (!leftover->had_children && waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0 && !leftover->is_ours(leftover->owner, info.si_pid)) {
        (void)waitpid(info.si_pid, NULL, WNOHANG);
        info.si_pid = 0;
    }
}

static void on_child_ended(uv_signal_t *signal, int number)
{
    (void)number;
    leftover_reap(signal->data);
}

void leftover_open(struct leftover *leftover, uv_loop_t *loop,
                   bool (*is_ours)(void *owner, pid_t pid), void *owner)
{
    assert(is_ours != NULL);
    leftover->had_children = have_children();
    leftover->is_ours = is_ours;
    leftover->owner = owner;
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    (void)uv_signal_init(loop, &leftover->child_ended);
    leftover->child_ended.data = leftover;
    (void)uv_signal_start(&leftover->child_ended, on_child_ended, SIGCHLD);
}

void leftover_stop(struct leftover *leftover)
{
    if (!uv_is_closing((uv_handle_t *)&leftover->child_ended))
        uv_close((uv_handle_t *)&leftover->child_ended, NULL);
}

/* The parent of the process `name` (its pid): field 4 of /proc/PID/stat; -1: it is gone. */
static long parent_of(const char *name)
{
    char path[64], text[512], *end;
    int fd;
    ssize_t length;

    (void)snprintf(path, sizeof path, "/proc/%.20s/stat", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[length > 0 ? length : 0] = '\0';
    end = strrchr(text, ')'); /* field 2, the name, may contain anything */
    return end && strlen(end) > 4 ? strtol(end + 4, NULL, 10) : -1;
}

static void kill_children(void)
{
    DIR *dir = opendir("/proc");

    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir))
        if (isdigit((unsigned char)entry->d_name[0]) && parent_of(entry->d_name) == (long)getpid())
            (void)kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
    if (dir)
        (void)closedir(dir);
}

/* Reaps all children that have ended, and counts those that SIGKILL has ended. True: we have no child left. */
static bool reap(int *killed)
{
    for (;;) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG);

        if (pid == 0)
            return false;
        if (pid > 0)
            *killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        else if (errno != EINTR)
            return true;
    }
}

int leftover_close(struct leftover *leftover)
{
    struct timespec pause = {.tv_nsec = 1000000};
    int killed = 0, before = 0; /* before: not by us */

    assert(leftover->is_ours != NULL); /* leftover_open was called */
    if (leftover->had_children)
        return 0;
    for (int ms = 0; ms < MOMENT_MS + KILL_MS && !reap(ms <= MOMENT_MS ? &before : &killed); ms++) {
        if (ms >= MOMENT_MS && ms % 50 == 0)
            kill_children(); /* then their children become ours */
        (void)nanosleep(&pause, NULL);
    }
    return killed;
}
