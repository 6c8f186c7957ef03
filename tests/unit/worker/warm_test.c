/* A worker that waits for its rank, and the shim that gives it one: both sides of the hand-over,
 * tested against each other. */
#include "worker/warm.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcherd/shim/warm_workers.h"
#include "launcherd/shim/worker_ends.h"
#include "tests/lib/test.h"

enum { EXIT_CLOSED = 40, EXIT_BAD = 41 };

/* NOLINTBEGIN(concurrency-mt-unsafe): one thread */

/* In its new place: says so by the new descriptors. */
static void run_worker(int fd)
{
    char number[16], text[256];
    struct err err = {.text = ""};
    const char *rank, *number_of_shim;
    struct device device;
    enum status status;
    int shim;

    (void)snprintf(number, sizeof number, "%d", fd);
    (void)setenv("DDP_WARM_FD", number, 1);
    (void)setenv("RANK", "warm", 1);
    (void)setenv("LOCAL_RANK", "0", 1);
    (void)setenv("OLD", "1", 1);
    if (!warm_is_wanted() || warm_up(&device, "cpu", &err) != STATUS_OK)
        _exit(EXIT_BAD);
    status = warm_wait(&err);
    if (status == STATUS_CLOSED)
        _exit(EXIT_CLOSED);
    rank = getenv("RANK");
    number_of_shim = getenv("DDP_SHIM_FD");
    if (status != STATUS_OK || warm_is_wanted() || getenv("OLD") != NULL || rank == NULL ||
        number_of_shim == NULL)
        _exit(EXIT_BAD);
    shim = (int)strtol(number_of_shim, NULL, 10);
    (void)snprintf(text, sizeof text, "rank %s\n", rank);
    if (write(STDOUT_FILENO, text, strlen(text)) < 0 || write(STDERR_FILENO, "error\n", 6) != 6 ||
        write(shim, "shim\n", 5) != 5)
        _exit(EXIT_BAD);
    _exit(read(STDIN_FILENO, text, sizeof text) == 2 ? 0 : EXIT_BAD);
}

/* The one worker of `warm`; it is ready. */
static pid_t begin(struct warm_workers *warm)
{
    int pair[2];
    char byte = 0;
    pid_t pid;

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        (void)setsid();
        (void)close(pair[0]);
        run_worker(pair[1]);
    }
    (void)close(pair[1]);
    CHECK_EQ(recv(pair[0], &byte, 1, 0), 1);
    CHECK_EQ(byte, WARM_ANSWERS);
    *warm = (struct warm_workers){.count = 1, .token = "0123456789abcdef0123456789abcdef"};
    warm->items[0] = (struct warm_worker){.pid = pid, .fd = pair[0], .answers = true};
    return pid;
}

static int end_of(pid_t pid)
{
    int status = 0;

    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void read_all(int fd, const char *expected)
{
    char text[256] = "";
    size_t have = 0;
    ssize_t got;

    while ((got = read(fd, text + have, sizeof text - 1 - have)) > 0)
        have += (size_t)got;
    CHECK_STR(text, expected);
    (void)close(fd);
}

/* The number under which a worker that is started has it. */
static char *environment[] = {"RANK=5", "WORLD_SIZE=8", "DDP_SHIM_FD=200", "LOCAL_RANK=0", NULL};

TEST(it_runs_with_what_it_was_given)
{
    struct warm_workers warm;
    const pid_t pid = begin(&warm);
    int in[2], out[2], errors[2], shim[2];
    char byte = 0;
    int answer = -1;
    pid_t given = 0;

    CHECK_EQ(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC) + pipe2(errors, O_CLOEXEC) +
                 pipe2(shim, O_CLOEXEC),
             0);
    CHECK(warm_workers_give(&warm, 0,
                            &(struct worker_ends){in[0], out[1], errors[1], shim[1], false}, -1,
                            environment, NULL, &given, &answer));
    CHECK_EQ(given, pid);
    CHECK_EQ(recv(answer, &byte, 1, 0), 1);
    CHECK_EQ(byte, WARM_HAS_TAKEN);
    CHECK_EQ(recv(answer, &byte, 1, 0), 0); /* it has closed it */
    (void)close(answer);
    (void)close(in[0]);
    (void)close(out[1]);
    (void)close(errors[1]);
    (void)close(shim[1]);
    CHECK_EQ(write(in[1], "go", 2), 2);
    CHECK_EQ(end_of(pid), 0);
    read_all(out[0], "rank 5\n");
    read_all(errors[0], "error\n");
    read_all(shim[0], "shim\n");
    (void)close(in[1]);
    CHECK(!warm_workers_give(&warm, 0, &(struct worker_ends){-1, 1, 2, 1, false}, 0, environment,
                             NULL, &given, &answer)); /* it is given away */
    warm_workers_drop(&warm);                         /* and stays as it is */
}

TEST(one_that_has_died_is_not_given)
{
    struct warm_workers warm;
    const pid_t pid = begin(&warm);
    siginfo_t info;
    int answer = -1;
    pid_t given = 0;

    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK_EQ(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    CHECK(!warm_workers_give(&warm, 0, &(struct worker_ends){-1, 1, 2, 1, false}, 0, environment,
                             NULL, &given, &answer));
    CHECK_EQ(given, 0);
    CHECK_EQ(warm.items[0].pid, 0);
}

TEST(one_that_wants_a_terminal_or_another_cgroup_is_killed)
{
    struct warm_workers warm;
    int answer = -1;
    pid_t given = 0, pid = begin(&warm);

    CHECK(!warm_workers_give(&warm, 0, &(struct worker_ends){1, 1, 1, 1, true}, 0, environment,
                             NULL, &given, &answer));
    CHECK_EQ(end_of(pid), 128 + SIGKILL);
    pid = begin(&warm);
    CHECK(!warm_workers_give(&warm, 0, &(struct worker_ends){-1, 1, 2, 1, false}, 0, environment,
                             "/nowhere", &given, &answer));
    CHECK_EQ(end_of(pid), 128 + SIGKILL);
    CHECK_EQ(given, 0);
}

TEST(those_that_are_left_end)
{
    struct warm_workers warm;
    pid_t pid = begin(&warm);

    warm_workers_drop(&warm);
    CHECK_EQ(end_of(pid), 128 + SIGKILL);
    CHECK_EQ(warm.count, 0);
    pid = begin(&warm);
    (void)close(warm.items[0].fd); /* as when the shim dies */
    CHECK_EQ(end_of(pid), EXIT_CLOSED);
}

TEST(the_next_program_finds_them)
{
    struct warm_workers warm = {.count = 2, .token = "0123456789abcdef0123456789abcdef"}, read;
    int fds[2];

    CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
    warm.items[0] = (struct warm_worker){.pid = 11, .fd = fds[0]};
    warm.items[1] = (struct warm_worker){.pid = 12, .fd = fds[1], .answers = true};
    CHECK(warm_workers_write(&warm));
    CHECK_EQ(fcntl(fds[0], F_GETFD), 0);
    warm_workers_read(&read);
    CHECK_EQ(read.count, 2);
    CHECK_STR(read.token, warm.token);
    CHECK_EQ(read.items[1].pid, 12);
    CHECK_EQ(read.items[1].fd, fds[1]);
    CHECK(!read.items[0].answers && read.items[1].answers);
    CHECK_EQ(fcntl(fds[1], F_GETFD), FD_CLOEXEC);
    CHECK(getenv(WARM_VARIABLE) == NULL);
    warm_workers_read(&read);
    CHECK_EQ(read.count, 0);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

/* NOLINTEND(concurrency-mt-unsafe) */

TEST_MAIN
