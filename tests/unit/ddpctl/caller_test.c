/* What a job takes over from the process that submits it. */
#include "ddpctl/caller.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "tests/lib/test.h"

static void expect(const char *wanted, bool is_local, const char *expected)
{
    char path[CALLER_PATH_BYTES];
    struct err err = {0};

    CHECK_EQ(caller_choose_directory(wanted, is_local, path, &err), STATUS_OK);
    CHECK_STR(path, expected);
}

static void expect_error(const char *wanted, const char *expected)
{
    char path[CALLER_PATH_BYTES];
    struct err err = {0};

    CHECK(caller_choose_directory(wanted, true, path, &err) != STATUS_OK);
    if (!strstr(err.text, expected))
        FAIL("%s", err.text);
}

/* A home is often a link: a path through it is good on nodes where the link goes elsewhere. */
TEST(the_directory_is_the_one_that_was_typed)
{
    char top[] = "/tmp/ddp-caller-XXXXXX", link[64], real[64], below[80];

    CHECK(mkdtemp(top) != NULL);
    (void)snprintf(real, sizeof real, "%s/real", top);
    (void)snprintf(link, sizeof link, "%s/link", top);
    CHECK(mkdir(real, 0700) == 0 && symlink("real", link) == 0 && chdir(link) == 0);
    CHECK_EQ(setenv("PWD", link, 1), 0);
    expect(NULL, true, link);
    (void)snprintf(below, sizeof below, "%s/..", link);
    expect("..", true, below);
    expect("/etc", true, "/etc");
    (void)snprintf(below, sizeof below, "%s/none", link);
    expect("none", false, below);
    expect_error("none", "--cwd: there is no folder /tmp/ddp-caller-");
    CHECK_EQ(setenv("PWD", "/tmp", 1), 0); /* as a program leaves it that calls chdir(2) */
    expect(NULL, true, real);
    CHECK_EQ(unsetenv("PWD"), 0);
    expect(NULL, true, real);

    CHECK(rmdir(real) == 0 && unlink(link) == 0 && rmdir(top) == 0);
    expect_error(NULL,
                 "the current directory was removed: go to one that is there (cd), or name one "
                 "with --cwd /DIR");
    expect_error("x", "was removed");
    expect("/etc", true, "/etc");
    CHECK_EQ(chdir("/"), 0);
}

TEST(only_a_mask_that_is_not_the_usual_one_is_sent)
{
    char text[CALLER_MASK_BYTES];

    (void)umask(022);
    caller_mask(text);
    CHECK_STR(text, "");
    (void)umask(0);
    caller_mask(text);
    CHECK_STR(text, "000");
    (void)umask(077);
    caller_mask(text);
    CHECK_STR(text, "077");
    CHECK_EQ(umask(022), 077); /* and it stayed */
}

static void set_limit(int resource, rlim_t soft)
{
    struct rlimit limit;

    CHECK_EQ(getrlimit(resource, &limit), 0);
    limit.rlim_cur = soft;
    CHECK_EQ(setrlimit(resource, &limit), 0);
}

TEST(only_limits_that_somebody_has_set_are_sent)
{
    char text[JOB_LIMITS_TEXT_BYTES];
    struct rlimit core;

    set_limit(RLIMIT_NOFILE, 1024);
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_STACK, 8u << 20);
    set_limit(RLIMIT_MEMLOCK, 4096);
    caller_limits(text);
    CHECK_STR(text, "");
    set_limit(RLIMIT_NOFILE, 512);
    set_limit(RLIMIT_STACK, 1u << 20);
    caller_limits(text);
    CHECK_STR(text, "nofile=512,stack=1048576");
    CHECK_EQ(getrlimit(RLIMIT_CORE, &core), 0);
    if (core.rlim_max != RLIM_INFINITY)
        SKIP("the hard limit of core files is low here");
    set_limit(RLIMIT_CORE, RLIM_INFINITY);
    caller_limits(text);
    CHECK_STR(text, "core=unlimited,nofile=512,stack=1048576");
}

TEST_MAIN
