/* What /proc says about another process. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcherd/process/proc.h"
#include "tests/lib/test.h"

struct child {
    pid_t pid;
    int in, out;
};

/* `cat` with this environment. It has answered, so it is no longer a copy of the test. */
static struct child start(char *const *environment)
{
    static char *const argv[] = {"cat", NULL};
    int in[2], out[2];
    struct child child;
    char byte = 'x';

    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0); /* so `cat` ends with us */
    child = (struct child){.pid = fork(), .in = in[1], .out = out[0]};
    if (child.pid == 0) {
        if (dup2(in[0], 0) == 0 && dup2(out[1], 1) == 1)
            (void)execve("/bin/cat", argv, environment);
        _exit(1);
    }
    CHECK(close(in[0]) == 0 && close(out[1]) == 0);
    CHECK(write(child.in, &byte, 1) == 1 && read(child.out, &byte, 1) == 1);
    return child;
}

static void end(const struct child *child)
{
    CHECK(kill(child->pid, SIGKILL) == 0 && waitpid(child->pid, NULL, 0) == child->pid);
    CHECK(close(child->in) == 0 && close(child->out) == 0);
}

static bool has(const struct child *child, const char *entry)
{
    return proc_environment_has(child->pid, entry, strlen(entry) + 1);
}

TEST(a_variable_is_found_behind_a_longer_name)
{
    char *const environment[] = {"LOCAL_RANK=1", "ROLE_RANK=1", "RANK=1", "LAST=RANK=2", NULL};
    const struct child child = start(environment);

    CHECK(has(&child, "RANK=1"));
    CHECK(has(&child, "LOCAL_RANK=1"));
    CHECK(!has(&child, "RANK=2"));
    CHECK(!has(&child, "RANK="));
    CHECK(!has(&child, "ANK=1"));
    CHECK(proc_environment_has(child.pid, "RANK=", 5)); /* the beginning of one */
    end(&child);
}

/* The environment is read in pieces. The variable is put at every place around the end of one. */
TEST(a_variable_is_found_between_two_pieces)
{
    static char filler[16400];

    for (size_t bytes = 16360; bytes < 16390; bytes++) {
        char *const environment[] = {filler, "TOKEN=0123456789", "LAST=1", NULL};
        struct child child;

        memset(filler, 'x', bytes);
        filler[1] = '=';
        filler[bytes] = '\0';
        child = start(environment);
        CHECK(has(&child, "TOKEN=0123456789"));
        CHECK(has(&child, "LAST=1"));
        CHECK(!has(&child, "TOKEN=012345678"));
        end(&child);
    }
}

/* In `own`, or in a mount namespace in which another folder has the same path. It waits for input. */
static pid_t start_in(const char *folder, const char *path, bool is_own, int input)
{
    const pid_t pid = fork();

    if (pid != 0)
        return pid;
    if (!is_own &&
        (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
         mount("none", folder, "tmpfs", 0, NULL) != 0 || mkdir(path, 0700) != 0))
        _exit(1);
    (void)dup2(input, STDIN_FILENO);
    (void)execl("/bin/sh", "sh", "-s", path, (char *)NULL);
    _exit(1);
}

static bool runs_sh(pid_t pid)
{
    while (!proc_has_word(pid, "-s"))
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return false;
    return true;
}

/* A container may have its state at the same path. */
TEST(a_command_of_another_mount_namespace_is_not_found_by_its_path)
{
    char folder[] = "/tmp/ddp-proc-XXXXXX", path[64];
    int pipe_fds[2];
    pid_t far, near;

    CHECK(mkdtemp(folder) != NULL && pipe2(pipe_fds, O_CLOEXEC) == 0);
    (void)snprintf(path, sizeof path, "%s/run", folder);
    CHECK_EQ(mkdir(path, 0700), 0);
    far = start_in(folder, path, false, pipe_fds[0]);
    if (runs_sh(far)) {
        CHECK_EQ(proc_find_command("-s", path), 0);
        near = start_in(folder, path, true, pipe_fds[0]);
        CHECK(runs_sh(near));
        CHECK_EQ(proc_find_command("-s", path), near);
        CHECK_EQ(kill(near, SIGKILL), 0);
        CHECK_EQ(waitpid(near, NULL, 0), near);
        CHECK_EQ(kill(far, SIGKILL), 0);
        CHECK_EQ(waitpid(far, NULL, 0), far);
    } /* else it may not make a namespace */
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    CHECK_EQ(rmdir(path) + rmdir(folder), 0);
}

TEST(the_user_of_a_process_is_known)
{
    const pid_t pid = fork();
    uid_t user = 1;

    if (pid == 0) {
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(1);
        (void)pause();
        _exit(0);
    }
    while (geteuid() == 0 && proc_user(pid, &user) && user != 65534)
        (void)sched_yield();
    CHECK(proc_user(pid, &user));
    CHECK_EQ(user, geteuid() == 0 ? 65534 : geteuid());
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    CHECK(!proc_user(pid, &user));
}

struct seen {
    char mark[32];
    uint32_t count;
    pid_t pid;
};

static void see(void *owner, const struct proc_found *found, const char *third, const char *fourth)
{
    struct seen *seen = owner;

    (void)fourth;
    if (strstr(third, seen->mark) == NULL)
        return;
    seen->count++;
    seen->pid = found->pid;
}

static struct seen look_for(const char *mark)
{
    struct seen seen = {.count = 0};

    (void)snprintf(seen.mark, sizeof seen.mark, "%s", mark);
    CHECK(proc_each_command("-c", see, &seen));
    return seen;
}

/* A shim makes children of itself. Until they are programs of their own they have its words. */
TEST(a_child_that_is_no_program_yet_is_not_taken_for_its_parent)
{
    char mark[32], script[128], byte;
    int in[2], out[2];
    pid_t pid;

    (void)snprintf(mark, sizeof mark, "mark-%d", (int)getpid());
    (void)snprintf(script, sizeof script, "(echo >&4; read x <&3) & wait # %s", mark);
    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    pid = fork();
    if (pid == 0) {
        const int lower = dup(in[0]), upper = dup(out[1]); /* they may be 3 or 4 themselves */

        if (lower >= 0 && upper >= 0 && dup2(lower, 3) == 3 && dup2(upper, 4) == 4)
            (void)execl("/bin/sh", "sh", "-c", script, NULL);
        _exit(1);
    }
    CHECK(close(in[0]) == 0 && close(out[1]) == 0);
    CHECK_EQ(read(out[0], &byte, 1), 1);
    CHECK_EQ(look_for(mark).count, 1);
    CHECK_EQ(look_for(mark).pid, pid);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    CHECK_EQ(look_for(mark).count, 1); /* its parent is gone: it counts for itself */
    CHECK(look_for(mark).pid != pid);
    CHECK(close(in[1]) == 0 && close(out[0]) == 0);
}

/* -- one process, and no other -- */

static sigset_t both_signals(void)
{
    sigset_t both;

    (void)sigemptyset(&both);
    (void)sigaddset(&both, SIGUSR1);
    (void)sigaddset(&both, SIGUSR2);
    return both;
}

/* Ends with the number of the first signal that it gets; SIGUSR1 comes before SIGUSR2. */
static pid_t start_waiting(const char *name)
{
    const sigset_t both = both_signals();
    pid_t pid;

    CHECK(sigprocmask(SIG_BLOCK, &both, NULL) == 0);
    pid = fork();
    if (pid == 0)
        _exit(prctl(PR_SET_NAME, name) == 0 ? sigwaitinfo(&both, NULL) : 1);
    CHECK(pid > 0);
    return pid;
}

static int end_of(pid_t pid)
{
    int how = 0;

    CHECK(waitpid(pid, &how, 0) == pid && WIFEXITED(how));
    return WEXITSTATUS(how);
}

TEST(a_process_that_has_got_the_number_of_another_is_not_signalled)
{
    const pid_t pid = start_waiting("waits");
    struct proc_found found = {.pid = pid, .start_ticks = proc_start_ticks(pid) - 1};

    proc_signal_exactly(&found, SIGUSR1);
    found.start_ticks++;
    proc_signal_exactly(&found, SIGUSR2);
    CHECK_EQ(end_of(pid), SIGUSR2);
}

TEST(a_name_may_have_spaces_and_parentheses)
{
    const pid_t pid = start_waiting("a) R 1 (b) 2");
    struct proc_stat stat;

    do /* until it has its name */
        CHECK(proc_stat_of(pid, &stat));
    while (strcmp(stat.is.name, "a) R 1 (b) 2") != 0 && sched_yield() == 0 &&
           stat.is.parent == getpid());
    CHECK_STR(stat.is.name, "a) R 1 (b) 2");
    CHECK_EQ(stat.is.parent, getpid());
    CHECK_EQ(stat.is.group, getpgrp());
    CHECK_EQ(stat.is.session, getsid(0));
    CHECK(stat.is.start_ticks > 0 && stat.is.start_ticks == proc_start_ticks(pid));
    CHECK(kill(pid, SIGUSR1) == 0);
    CHECK_EQ(end_of(pid), SIGUSR1);
}

static void ignore(int number)
{
    (void)number;
}

TEST(a_process_answers_a_signal_with_a_handler_or_by_waiting_for_it)
{
    char *const environment[] = {NULL};
    const struct child child = start(environment);
    sigset_t set;

    CHECK(!proc_answers(child.pid, SIGTERM) && !proc_answers(child.pid, SIGHUP));
    CHECK(!proc_answers(getpid(), SIGTERM) && !proc_answers(getpid(), SIGHUP));
    CHECK(signal(SIGTERM, ignore) != SIG_ERR);
    CHECK(proc_answers(getpid(), SIGTERM) && !proc_answers(getpid(), SIGHUP));
    CHECK(!proc_ignores(getpid(), SIGTERM));
    CHECK(signal(SIGTERM, SIG_IGN) == ignore && !proc_answers(getpid(), SIGTERM));
    CHECK(proc_ignores(getpid(), SIGTERM) && !proc_ignores(getpid(), SIGHUP));
    CHECK(signal(SIGTERM, SIG_DFL) == SIG_IGN);
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGHUP) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(proc_answers(getpid(), SIGHUP) && !proc_answers(getpid(), SIGTERM));
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    end(&child);
}

TEST(the_program_and_the_pipes_of_a_process)
{
    char *const environment[] = {NULL};
    const struct child child = start(environment), other = start(environment);
    char name[PROC_PROGRAM_BYTES];

    proc_program(child.pid, name);
    CHECK_STR(name, "cat");
    CHECK(proc_program_id(child.pid) != 0 &&
          proc_program_id(child.pid) == proc_program_id(other.pid));
    CHECK(proc_program_id(child.pid) != proc_program_id(getpid()));
    CHECK(proc_pipe(child.pid, 0) != 0 && proc_pipe(child.pid, 0) == proc_pipe(getpid(), child.in));
    CHECK(proc_pipe(child.pid, 0) != proc_pipe(other.pid, 0));
    CHECK_EQ(proc_pipe(child.pid, 200), 0);
    end(&other);
    end(&child);
    proc_program(child.pid, name);
    CHECK(name[0] == '\0' && proc_program_id(child.pid) == 0);
}

TEST_MAIN
