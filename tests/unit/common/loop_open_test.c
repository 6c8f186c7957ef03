/* A loop that is used when the process can get no more memory: libuv would end the process. */
#include "common/io/loop_open.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
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

static uint32_t count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    uint32_t count = 0;

    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL)
        count += entry->d_name[0] != '.';
    (void)closedir(tasks);
    return count;
}

static uint32_t threads_at_growth; /* 0: the table has not grown yet */

int __real_fcntl64(int fd, int command,
                   ...); /* NOLINT(bugprone-reserved-identifier): the linker's */
int __wrap_fcntl64(int fd, int command, ...); /* NOLINT(bugprone-reserved-identifier) */
int __wrap_fcntl64(int fd, int command, ...)  /* NOLINT(bugprone-reserved-identifier) */
{
    va_list args;
    int argument;

    va_start(args, command);
    argument = va_arg(args, int);
    va_end(args);
    if (command == F_DUPFD_CLOEXEC && argument == DESCRIPTORS - 1 && threads_at_growth == 0)
        threads_at_growth = count_threads();
    return __real_fcntl64(fd, command, argument);
}

/* In a child, because the pool is of the whole process. */
static int open_and_count(void)
{
    const uint32_t before = count_threads(); /* a sanitizer may have its own */
    uv_loop_t loop;
    struct err err;

    if (loop_open(&loop, DESCRIPTORS, &err) != STATUS_OK || uv_loop_close(&loop) != 0)
        return 2;
    return threads_at_growth != before ? 3 : count_threads() > before ? 0 : 4;
}

/* The kernel's table of descriptors grows with ours. Where threads share it, the kernel waits for an RCU grace period,
 * 10 to 20 ms in the start of every daemon. */
TEST(the_table_grows_before_there_are_threads)
{
    int how;
    const pid_t pid = fork();

    if (pid == 0)
        _exit(open_and_count());
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), 0);
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
