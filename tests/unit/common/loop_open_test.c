/* A loop that is used when the process can get no more memory: libuv would end the process. */
#include "common/io/loop_open.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"

#define DESCRIPTORS 500

static uint32_t worked, readable;

static void work(uv_work_t *item)
{
    (void)item;
}

static void on_worked(uv_work_t *item, int status)
{
    (void)item;
    worked += status == 0;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)events;
    readable += status == 0;
    uv_close((uv_handle_t *)poll, NULL);
}

/* No further memory, as `prlimit --as` does it. */
static bool limit_memory(void)
{
    char text[128] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    struct rlimit limit = {.rlim_max = RLIM_INFINITY};
    rlim_t pages;

    if (file == NULL || fgets(text, sizeof text, file) == NULL || fclose(file) != 0)
        return false;
    pages = strtoul(text, NULL, 10);
    limit.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE);
    return pages > 0 && setrlimit(RLIMIT_AS, &limit) == 0;
}

/* In a child. 0: the pool works, and a high descriptor is watched. */
static int use(bool opens)
{
    static uv_work_t item;
    static uv_poll_t poll;
    uv_loop_t loop;
    struct err err;
    int fds[2], high;

    if (opens ? loop_open(&loop, DESCRIPTORS, &err) != STATUS_OK : uv_loop_init(&loop) != 0)
        return 2;
    if (pipe(fds) != 0 || write(fds[1], "x", 1) != 1 ||
        (high = fcntl(fds[0], F_DUPFD, DESCRIPTORS - 1)) < 0 || !limit_memory())
        return 3;
    if (uv_queue_work(&loop, &item, work, on_worked) != 0 ||
        uv_poll_init(&loop, &poll, high) != 0 ||
        uv_poll_start(&poll, UV_READABLE, on_readable) != 0)
        return 4;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return worked == 1 && readable == 1 && uv_loop_close(&loop) == 0 ? 0 : 5;
}

static int end_of(bool opens)
{
    int how;
    const pid_t pid = fork();

    if (pid == 0) {
        struct rlimit none = {0};

        (void)signal(SIGABRT, SIG_DFL); /* the test program reports it as its own end */
        (void)setrlimit(RLIMIT_CORE, &none);
        _exit(use(opens));
    }
    CHECK(waitpid(pid, &how, 0) == pid);
    return how;
}

TEST(it_needs_no_memory_later)
{
#ifdef __SANITIZE_ADDRESS__
    SKIP("the sanitizer needs address space of its own");
#else
    CHECK_EQ(end_of(true), 0);
#endif
}

/* Without loop_open libuv ends the process: if it no longer did, loop_open would not be needed. */
TEST(libuv_alone_ends_the_process)
{
#ifdef __SANITIZE_ADDRESS__
    SKIP("the sanitizer needs address space of its own");
#else
    const int how = end_of(false);

    CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT);
#endif
}

TEST_MAIN
