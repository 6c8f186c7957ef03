/* What /proc says about another process. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
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

TEST_MAIN
