#include "common/io/lock_holder.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* False: it is gone. */
static bool read_text(const char *path, char *text, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, capacity - 1) : -1;

    if (fd >= 0)
        (void)close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* The letter of proc(5) in a file `stat`; 0: it is gone. */
static char state_in(const char *path)
{
    char text[1024];
    const char *end = read_text(path, text, sizeof text) ? strrchr(text, ')') : NULL;

    return end != NULL && end[1] == ' ' ? end[2] : '\0';
}

/* Its first thread has ended, or SIGKILL waits for it. */
static bool is_killed(long pid)
{
    char path[64], text[4096];
    const char *line;
    char state;

    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    state = state_in(path);
    if (state == 'Z' || state == 'X')
        return true;
    (void)snprintf(path, sizeof path, "/proc/%ld/status", pid);
    line = state != '\0' && read_text(path, text, sizeof text) ? strstr(text, "\nSigPnd:") : NULL;
    return line != NULL && (strtoull(line + 8, NULL, 16) >> (SIGKILL - 1) & 1) != 0;
}

/* A thread that no signal wakes; 0: none. */
static long find_hanging(long pid)
{
    char path[64];
    struct dirent *entry;
    long found = 0;
    DIR *dir;

    (void)snprintf(path, sizeof path, "/proc/%ld/task", pid);
    dir = opendir(path);
    while (dir != NULL && found == 0 && (entry = readdir(dir)) != NULL) {
        const long tid = strtol(entry->d_name, NULL, 10);

        (void)snprintf(path, sizeof path, "/proc/%ld/task/%ld/stat", pid, tid);
        if (tid > 0 && state_in(path) == 'D')
            found = tid;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return found;
}

bool lock_holder_hangs(const char *pid, char text[LOCK_HOLDER_BYTES])
{
    const long number = strtol(pid, NULL, 10);
    const long tid = number > 0 && is_killed(number) ? find_hanging(number) : 0;

    (void)snprintf(text, LOCK_HOLDER_BYTES,
                   "it was killed, but its thread %ld hangs in the kernel (state D): make the disk "
                   "answer that it waits for, or restart the machine",
                   tid);
    return tid != 0;
}

void lock_holder_name(const char *pid, const char *own, char name[LOCK_HOLDER_NAME_BYTES])
{
    char path[64], text[32];

    (void)snprintf(path, sizeof path, "/proc/%ld/comm", strtol(pid, NULL, 10));
    if (!read_text(path, text, sizeof text))
        (void)snprintf(text, sizeof text, "process");
    text[strcspn(text, "\n")] = '\0';
    (void)snprintf(name, LOCK_HOLDER_NAME_BYTES, "%s%.20s",
                   strcmp(text, own) == 0 || strcmp(text, "process") == 0 ? "another " : "", text);
}
