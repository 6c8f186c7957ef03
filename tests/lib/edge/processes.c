/* Calls that begin a process or a program. The path of a fork is empty. What the C library begins by itself (posix_spawn,
 * popen), vfork, and clone3 as a system call are not seen. */
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/lib/edge/edge.h"

static struct {
    pid_t (*fork)(void);
    int (*clone)(int (*)(void *), void *, int, void *, ...);
    int (*execve)(const char *, char *const[], char *const[]);
    int (*execv)(const char *, char *const[]);
    int (*execvp)(const char *, char *const[]);
    int (*execvpe)(const char *, char *const[], char *const[]);
} real;

__attribute__((constructor)) static void find_all(void)
{
    EDGE_FIND(real, fork);
    EDGE_FIND(real, clone);
    EDGE_FIND(real, execve);
    EDGE_FIND(real, execv);
    EDGE_FIND(real, execvp);
    EDGE_FIND(real, execvpe);
}

pid_t fork(void)
{
    EDGE_FIND(real, fork);
    return edge_fails_at(EDGE_FORK, AT_FDCWD, NULL) ? -1 : real.fork();
}

/* Words that are not given are not looked at. */
int clone(int (*run)(void *), void *stack, int flags, void *argument, ...)
{
    void *words[3];
    va_list args;

    EDGE_FIND(real, clone);
    va_start(args, argument);
    for (int i = 0; i < 3; i++)
        words[i] = va_arg(args, void *);
    va_end(args);
    if (edge_fails_at(EDGE_FORK, AT_FDCWD, NULL))
        return -1;
    return real.clone(run, stack, flags, argument, words[0], words[1], words[2]);
}

int execve(const char *path, char *const argv[], char *const envp[])
{
    EDGE_FIND(real, execve);
    return edge_fails_at(EDGE_EXEC, AT_FDCWD, path) ? -1 : real.execve(path, argv, envp);
}

int execv(const char *path, char *const argv[])
{
    EDGE_FIND(real, execv);
    return edge_fails_at(EDGE_EXEC, AT_FDCWD, path) ? -1 : real.execv(path, argv);
}

/* A name alone is looked up in PATH, which is not done here. */
static int folder_of(const char *name)
{
    return strchr(name, '/') != NULL ? AT_FDCWD : -1;
}

int execvp(const char *name, char *const argv[])
{
    EDGE_FIND(real, execvp);
    return edge_fails_at(EDGE_EXEC, folder_of(name), name) ? -1 : real.execvp(name, argv);
}

int execvpe(const char *name, char *const argv[], char *const envp[])
{
    EDGE_FIND(real, execvpe);
    return edge_fails_at(EDGE_EXEC, folder_of(name), name) ? -1 : real.execvpe(name, argv, envp);
}
