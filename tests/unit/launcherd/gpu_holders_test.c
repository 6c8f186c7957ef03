/* The process of a pid, and the processes that have a file open; tested with children of our
 * own. */
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcherd/gpu/gpu_holders.h"
#include "tests/lib/test.h"

/* A child that has `path` open (NULL: nothing) and DDP_JOB_ID=job in its environment; it waits to
 * be killed. It is cat, which answers when it runs: the kernel closes descriptors for execve before
 * it gives the process its new name and environment. */
static pid_t begin_child(const char *path, const char *job)
{
    int in[2], out[2];
    char byte = 0;
    CHECK_EQ(pipe2(in, O_CLOEXEC), 0);
    CHECK_EQ(pipe2(out, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {(char[]){"cat"}, NULL};
        char entry[64];
        char *envp[] = {(char[]){"A=1"}, entry, NULL};
        (void)snprintf(entry, sizeof entry, "DDP_JOB_ID=%s", job);
        if (path != NULL && open(path, O_RDONLY) < 0) /* inherited over execve */
            _exit(1);
        if (dup2(in[0], STDIN_FILENO) >= 0 && dup2(out[1], STDOUT_FILENO) >= 0)
            execve("/bin/cat", argv, envp);
        _exit(1);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    CHECK_EQ(write(in[1], "x", 1), 1);
    CHECK_EQ(read(out[0], &byte, 1), 1);
    (void)close(out[0]);
    return pid; /* `in` stays open: at its end cat would end */
}

static void end_child(pid_t pid)
{
    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

TEST(a_process_is_described)
{
    struct gpu_process process = {.pid = (uint32_t)begin_child(NULL, "41"), .bytes = 5};
    const struct passwd *user = getpwuid(getuid());
    gpu_process_describe(&process);
    CHECK(!process.is_gone);
    CHECK_EQ(process.job_id, 41);
    CHECK_STR(process.program, "cat");
    if (user != NULL)
        CHECK_STR(process.user, user->pw_name);
    CHECK_EQ(process.bytes, 5);
    CHECK_EQ(kill((pid_t)process.pid, SIGKILL), 0);
    while (!process.is_gone) /* a zombie has no open files */
        gpu_process_describe(&process);
    CHECK_EQ(process.job_id, 0);
    CHECK_EQ(waitpid((pid_t)process.pid, NULL, 0), (pid_t)process.pid);
    process.is_gone = false;
    gpu_process_describe(&process);
    CHECK(process.is_gone);
    CHECK_STR(process.user, "?");
}

TEST(processes_with_an_open_file_are_found)
{
    struct gpu_process found[2];
    char path[512];
    (void)snprintf(path, sizeof path, "%s/device", test_dir());
    int fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0); /* open in this process, which does not count */
    CHECK_EQ(gpu_openers_find(path, found, 2), 0);
    pid_t first = begin_child(path, "1"), second = begin_child(path, "2");
    pid_t other = begin_child(NULL, "3");
    CHECK_EQ(gpu_openers_find(path, found, 2), 2);
    CHECK(found[0].pid != (uint32_t)other && found[1].pid != (uint32_t)other);
    CHECK_STR(found[0].program, "cat");
    CHECK_EQ(gpu_openers_find(path, found, 1), 1);
    end_child(first);
    end_child(second);
    end_child(other);
    CHECK_EQ(gpu_openers_find(path, found, 2), 0);
    (void)close(fd);
}

TEST(text_is_made_printable)
{
    char out[8];
    gpu_printable("a\nb\xc3\xa9", out, sizeof out);
    CHECK_STR(out, "a?b??");
    gpu_printable("0123456789", out, sizeof out);
    CHECK_STR(out, "0123456");
    gpu_printable("", out, sizeof out);
    CHECK_STR(out, "?");
}

TEST_MAIN
