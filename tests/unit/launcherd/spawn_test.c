/* How processes are started, and what the shim's search for its children rests on. */
#include "launcherd/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcherd/process/cgroup.h"
#include "launcherd/process/clone_child.h"
#include "tests/lib/test.h"

static uint32_t moves; /* how often a cgroup.procs was opened */

int __real_open64(const char *path, int flags,
                  ...); /* NOLINT(bugprone-reserved-identifier): the linker's */
int __wrap_open64(const char *path, int flags, ...); /* NOLINT(bugprone-reserved-identifier) */
int __wrap_open64(const char *path, int flags, ...)  /* NOLINT(bugprone-reserved-identifier) */
{
    va_list args;
    mode_t mode = 0;

    va_start(args, flags);
    if ((flags & O_CREAT) != 0)
        mode = va_arg(args, mode_t);
    va_end(args);
    moves += strstr(path, "/cgroup.procs") != NULL;
    return __real_open64(path, flags, mode);
}

/* `cat /proc/self/cgroup` in the group `dir`; what it prints. */
static void read_cgroup(const char *dir, char *text, size_t text_bytes)
{
    char *const argv[] = {"cat", "/proc/self/cgroup", NULL}, *const envp[] = {NULL};
    struct spawn_order order = {.path = "/bin/cat",
                                .argv = argv,
                                .envp = envp,
                                .cgroup = dir,
                                .stdin_fd = -1,
                                .stderr_fd = STDERR_FILENO,
                                .extra_fd = -1};
    struct err err;
    size_t used = 0;
    ssize_t got;
    int ends[2], exit_code;
    pid_t pid;

    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    order.stdout_fd = ends[1];
    CHECK_EQ(spawn_process(&order, &pid, &exit_code, &err), STATUS_OK);
    (void)close(ends[1]);
    while ((got = read(ends[0], text + used, text_bytes - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    (void)close(ends[0]);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

/* A move by cgroup.procs waits for an RCU grace period: 10 ms and more for the first rank of a generation, and in launcherd's
 * start. */
TEST(a_process_is_born_in_its_cgroup)
{
    char base[PATH_MAX], dir[PATH_MAX], name[64], text[4096];
    const struct cgroup_limits limits = {0};
    struct err err;

    if (syscall(SYS_clone3, NULL, 0) != 0 && errno == ENOSYS)
        SKIP("there is no clone3 here");
    if (cgroup_find_base(base, &err) != STATUS_OK)
        SKIP(err.text);
    (void)snprintf(name, sizeof name, "test-spawn-%d", (int)getpid());
    (void)snprintf(dir, sizeof dir, "%.4000s/%s", base, name);
    CHECK_EQ(cgroup_make(dir, &limits, &err), STATUS_OK);
    read_cgroup(dir, text, sizeof text);
    for (int i = 0; i < 6000 && cgroup_is_populated(dir); i++)
        (void)usleep(1000); /* the kernel may count it as gone a little later */
    cgroup_remove(dir);
    CHECK(strstr(text, name) != NULL);
    CHECK_EQ(moves, 0);
}

TEST(a_cgroup_that_is_not_there_is_named)
{
    char *const argv[] = {"true", NULL}, *const envp[] = {NULL};
    const struct spawn_order order = {.path = "/bin/true",
                                      .argv = argv,
                                      .envp = envp,
                                      .cgroup = "/no/such/group",
                                      .stdin_fd = -1,
                                      .stdout_fd = -1,
                                      .stderr_fd = -1,
                                      .extra_fd = -1};
    struct err err = {.text = ""};
    int exit_code = 0;
    pid_t pid;

    CHECK_EQ(spawn_process(&order, &pid, &exit_code, &err), STATUS_SYSTEM);
    CHECK_EQ(exit_code, 125);
    CHECK(strstr(err.text, "/no/such/group") != NULL);
}

static int fails(void *argument)
{
    (void)argument;
    return 7;
}

TEST(what_a_child_returns_is_its_exit_code)
{
    int how = 0;
    const pid_t pid = clone_child(-1, fails, NULL);

    CHECK(pid > 0);
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 7);
}

/* -- children of other threads -- */

struct parent {
    int started[2], may_end[2];
    pid_t child;
};

static pid_t start_sleeper(void)
{
    const pid_t pid = fork();

    if (pid == 0)
        for (;;)
            (void)pause();
    return pid;
}

static void end_sleeper(pid_t pid)
{
    CHECK(pid > 0 && kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

static void *be_parent(void *argument)
{
    struct parent *parent = argument;
    char byte = 'x';

    parent->child = start_sleeper();
    (void)!write(parent->started[1], &byte, 1);
    (void)!read(parent->may_end[0], &byte, 1);
    return NULL;
}

static bool has_child(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WNOTHREAD) == 0 ||
           errno != ECHILD;
}

/* A grandchild whose parent has ended. */
static pid_t adopt_orphan(void)
{
    int told[2];
    pid_t orphan = 0;

    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && pipe2(told, O_CLOEXEC) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        orphan = start_sleeper();
        _exit(write(told[1], &orphan, sizeof orphan) == (ssize_t)sizeof orphan ? 0 : 1);
    }
    CHECK(read(told[0], &orphan, sizeof orphan) == (ssize_t)sizeof orphan);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
    (void)close(told[0]);
    (void)close(told[1]);
    return orphan;
}

/* What tree_is_empty (shim_workers.c) rests on: the child of another thread does not count, and an orphan that this
 * process adopts does. */
TEST(only_children_of_other_threads_are_left_out)
{
    struct parent parent;
    pthread_t thread;
    pid_t orphan;
    char byte = 'x';

    CHECK(pipe2(parent.started, O_CLOEXEC) == 0 && pipe2(parent.may_end, O_CLOEXEC) == 0);
    CHECK_EQ(pthread_create(&thread, NULL, be_parent, &parent), 0);
    CHECK_EQ(read(parent.started[0], &byte, 1), 1);
    CHECK(!has_child());
    orphan = adopt_orphan();
    CHECK(has_child());
    end_sleeper(orphan);
    CHECK(!has_child());
    end_sleeper(parent.child);
    CHECK_EQ(write(parent.may_end[1], &byte, 1), 1);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 2; i++)
        CHECK(close(parent.started[i]) == 0 && close(parent.may_end[i]) == 0);
}

TEST_MAIN
