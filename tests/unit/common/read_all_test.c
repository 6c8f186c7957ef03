/* Reads and writes that the kernel cuts short, and a signal between them. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/io/read_all.h"
#include "tests/lib/test.h"

/* A pipe of packets gives one packet a read. */
TEST(short_reads_are_continued_until_the_end)
{
    char bytes[16] = "";
    int ends[2];

    CHECK_EQ(pipe2(ends, O_DIRECT | O_CLOEXEC), 0);
    CHECK(write(ends[1], "one", 3) == 3 && write(ends[1], "two", 3) == 3);
    CHECK_EQ(read_all(ends[0], bytes, 4),
             4); /* no more than it was asked for; the packet's rest is gone */
    CHECK_STR(bytes, "onet");
    CHECK(write(ends[1], "three", 5) == 5 && write(ends[1], "four", 4) == 4);
    CHECK_EQ(close(ends[1]), 0);
    CHECK_EQ(read_all(ends[0], bytes, sizeof bytes - 1), 9);
    CHECK_STR(bytes, "threefour");
    CHECK_EQ(read_all(ends[0], bytes, sizeof bytes - 1), 0);
    CHECK_EQ(close(ends[0]), 0);
    CHECK(read_all(ends[0], bytes, 1) == -1 && errno == EBADF);
}

static int pipe_ends[2];
static int alarms;

static void on_alarm(int number)
{
    (void)number;
    if (++alarms == 3)
        (void)!write(pipe_ends[1], "late", 4);
}

/* Without SA_RESTART: each signal ends the read with EINTR. */
TEST(a_signal_does_not_end_a_read)
{
    const struct sigaction action = {.sa_handler = on_alarm};
    const struct itimerval often = {{.tv_usec = 2000}, {.tv_usec = 2000}}, never = {{0}, {0}};
    char bytes[5] = "";

    alarms = 0;
    CHECK_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
    CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    CHECK_EQ(read_all(pipe_ends[0], bytes, 4), 4);
    CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
    CHECK_STR(bytes, "late");
    CHECK(alarms >= 3);
    CHECK(close(pipe_ends[0]) == 0 && close(pipe_ends[1]) == 0);
}

/* With a limit of the file's size the kernel writes a part, and refuses the rest. */
TEST(a_short_write_is_continued_to_its_error)
{
    struct rlimit limit, before;
    char path[256], bytes[9] = "";
    int fd;

    (void)snprintf(path, sizeof path, "%s/file", test_dir());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && signal(SIGXFSZ, SIG_IGN) != SIG_ERR && getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = (struct rlimit){.rlim_cur = 8, .rlim_max = before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK(pwrite_all(fd, "abcd", 4, 2));
    CHECK(!pwrite_all(fd, "ABCDEF", 6, 4) && errno == EFBIG);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
    CHECK_EQ(pread_all(fd, bytes, sizeof bytes, 2), 6);
    CHECK_STR(bytes, "abABCD");
    CHECK_EQ(close(fd), 0);
}

TEST_MAIN
