/* How processes are started, and what the shim's search for its children rests on. */
#include "launcherd/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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

/* Runs the order, whose stdout is a pipe; what the process prints. */
static void read_output(struct spawn_order *order, char *text, size_t text_bytes)
{
    struct err err;
    size_t used = 0;
    ssize_t got;
    int ends[2], exit_code;
    pid_t pid;

    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    order->stdout_fd = ends[1];
    CHECK_EQ(spawn_process(order, &pid, &exit_code, &err), STATUS_OK);
    (void)close(ends[1]);
    while ((got = read(ends[0], text + used, text_bytes - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    (void)close(ends[0]);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);
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

    read_output(&order, text, text_bytes);
}

static const struct spawn_limits *job_limits; /* of run_job */

/* What a job's process prints. Descriptors up to 9 are open here, not close-on-exec, and SIGTERM is blocked. */
static void run_job(const char *path, char *const *argv, char *text, size_t text_bytes)
{
    char *const envp[] = {"PATH=/usr/bin:/bin", NULL};
    const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct spawn_order order = {.path = path,
                                .argv = argv,
                                .envp = envp,
                                .stdin_fd = null_fd,
                                .stderr_fd = STDERR_FILENO,
                                .extra_fd = null_fd,
                                .is_job = true,
                                .limits = job_limits};
    sigset_t term, before;

    for (int fd = 3; fd < 9;)
        CHECK((fd = fcntl(null_fd, F_DUPFD, 3)) >= 0);
    CHECK(sigemptyset(&term) == 0 && sigaddset(&term, SIGTERM) == 0);
    CHECK_EQ(sigprocmask(SIG_BLOCK, &term, &before), 0);
    read_output(&order, text, text_bytes);
    CHECK_EQ(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    (void)close(null_fd);
}

TEST(a_job_has_no_descriptor_that_it_was_not_given)
{
    char *const argv[] = {"sh", "-c",
                          "for n in 0 1 2 3 4 5 6 7 8 9; do [ ! -e /proc/self/fd/$n ] || echo $n; "
                          "done",
                          NULL};
    char text[64];

    run_job("/bin/sh", argv, text, sizeof text);
    CHECK_STR(text, "0\n1\n2\n3\n");
}

/* Not by a shell, which may clear the mask itself. */
TEST(a_job_gets_no_signal_mask_and_no_more_rights)
{
    char *const argv[] = {"grep", "-E", "^(NoNewPrivs|SigBlk):", "/proc/self/status", NULL};
    char text[128];

    run_job("/bin/grep", argv, text, sizeof text);
    CHECK(strstr(text, "NoNewPrivs:\t1\n") != NULL);
    CHECK(strstr(text, "SigBlk:\t0000000000000000\n") != NULL);
}

#define SHOW_LIMITS "umask; ulimit -Sn; ulimit -Sc; ulimit -Ss"

/* The submitter's umask and limits, as far as the hard limits go. */
TEST(a_job_has_the_limits_of_its_submitter)
{
    char *const argv[] = {"sh", "-c", SHOW_LIMITS, NULL};
    const struct msg_pair pairs[] = {{"umask", "027"},
                                     {"limits", "nofile=300,core=4096,stack=4194304"}},
                          high = {"limits", "nofile=700,core=4096"};
    const struct rlimit files = {.rlim_cur = 256, .rlim_max = 512};
    struct spawn_limits limits;
    char text[128], cut[80];

    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
    spawn_limits_read(&(const struct msg_pair_list){pairs, 2}, &limits, cut, sizeof cut);
    CHECK_STR(cut, "");
    job_limits = &limits;
    run_job("/bin/sh", argv, text, sizeof text);
    CHECK_STR(text, "0027\n300\n8\n4096\n");
    spawn_limits_read(&(const struct msg_pair_list){&high, 1}, &limits, cut, sizeof cut);
    CHECK_STR(cut, "nofile 700 (here 512)");
    run_job("/bin/sh", argv, text, sizeof text);
    CHECK(strncmp(text, "0022\n512\n8\n", 11) == 0);
    spawn_limits_read(&(const struct msg_pair_list){NULL, 0}, &limits, cut, sizeof cut);
    run_job("/bin/sh", argv, text, sizeof text);
    CHECK(strncmp(text, "0022\n512\n0\n", 11) == 0);
    job_limits = NULL;
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
    const pid_t pid = clone_child(-1, fails, NULL, NULL);

    CHECK(pid > 0);
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 7);
}

/* -- a start that another thread looks at -- */

static atomic_bool stops; /* a child stops before it runs its program */

int __real_execve(const char *path, char *const argv[], /* NOLINT(bugprone-reserved-identifier) */
                  char *const envp[]);
int __wrap_execve(const char *path, char *const argv[], /* NOLINT(bugprone-reserved-identifier) */
                  char *const envp[]);
int __wrap_execve(const char *path, char *const argv[], /* NOLINT(bugprone-reserved-identifier) */
                  char *const envp[])
{
    if (atomic_load(&stops))
        (void)raise(SIGSTOP);
    return __real_execve(path, argv, envp);
}

struct start {
    struct spawn_watch watch;
    const char *path;
    enum status status;
    struct err err;
};

static void *be_starter(void *argument)
{
    char *const argv[] = {"true", NULL}, *const envp[] = {NULL};
    struct start *start = argument;
    const struct spawn_order order = {.path = start->path,
                                      .argv = argv,
                                      .envp = envp,
                                      .stdin_fd = -1,
                                      .stdout_fd = -1,
                                      .stderr_fd = -1,
                                      .extra_fd = -1,
                                      .watch = &start->watch};
    int exit_code;
    pid_t pid;

    start->status = spawn_process(&order, &pid, &exit_code, &start->err);
    return NULL;
}

TEST(another_thread_knows_a_child_that_is_stopped_and_can_end_it)
{
    struct start start = {.path = "/bin/true"};
    pthread_t thread;
    int how = 0;
    pid_t pid;

    atomic_store(&stops, true);
    CHECK_EQ(pthread_create(&thread, NULL, be_starter, &start), 0);
    while ((pid = spawn_watch_pid(&start.watch)) == 0)
        (void)usleep(1000);
    CHECK_EQ(waitpid(pid, &how, WUNTRACED), pid);
    CHECK(WIFSTOPPED(how));
    CHECK_EQ(atomic_load(&start.watch.state), SPAWN_BEGINS);
    CHECK(!spawn_refuse(&start.watch));
    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    CHECK(WIFSIGNALED(how));
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(atomic_load(&start.watch.state), SPAWN_OVER);
    atomic_store(&stops, false);
}

TEST(a_start_that_is_refused_makes_no_child)
{
    struct start start = {.path = "/bin/true"};

    CHECK(spawn_refuse(&start.watch));
    (void)be_starter(&start);
    CHECK_EQ(start.status, STATUS_SYSTEM);
    CHECK_EQ(spawn_watch_pid(&start.watch), 0);
    CHECK(spawn_refuse(&start.watch)); /* still */
    CHECK(waitpid(-1, NULL, 0) < 0 && errno == ECHILD);
}

TEST(a_child_that_runs_no_program_is_reaped_by_who_looks)
{
    struct start start = {.path = "/no/such/program"};
    int how = 0;

    (void)be_starter(&start);
    CHECK_EQ(start.status, STATUS_NOT_FOUND);
    CHECK_EQ(atomic_load(&start.watch.state), SPAWN_OVER);
    CHECK_EQ(waitpid(spawn_watch_pid(&start.watch), &how, 0), spawn_watch_pid(&start.watch));
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 127);
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
