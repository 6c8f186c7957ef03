/* The removal of run directories, also when something is in the way. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcherd/process/rundir.h"
#include "tests/lib/test.h"

/* A directory as a shim leaves it, and a file that a later version may put there. */
static void make_used(char path[PATH_MAX], bool with_other)
{
    static const struct rundir_shim shim = {
        .pid = 1, .start_ticks = 2, .boot_id = "b", .token = "t"};
    struct err err = {.text = ""};

    rundir_path(path, test_dir(), "c", 7, 1);
    if (rundir_make(path, 0700, &err) != STATUS_OK ||
        rundir_write_shim(path, &shim, &err) != STATUS_OK ||
        rundir_write(path, "start.msg", "x", 1, &err) != STATUS_OK ||
        rundir_write(path, "end.msg.new", "x", 1, &err) != STATUS_OK ||
        (with_other && rundir_write(path, "other", "x", 1, &err) != STATUS_OK))
        FAIL("%s", err.text);
}

TEST(a_run_directory_goes_with_all_its_files)
{
    char path[PATH_MAX];

    make_used(path, true);
    rundir_remove(path);
    CHECK(access(path, F_OK) != 0);
    rundir_remove(path); /* a second removal does nothing */
}

/* Without a free descriptor the directory must still go; otherwise it would stay until launcherd's
 * next start. */
TEST(a_run_directory_goes_without_a_free_descriptor)
{
    struct rlimit usual, none;
    char path[PATH_MAX];
    int probe;

    make_used(path, false);
    CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = usual.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    probe = dup(0);
    rundir_remove(path);
    CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    CHECK(probe < 0);
    CHECK(access(path, F_OK) != 0);
}

static void make_read_only(void)
{
    char path[PATH_MAX];
    int fd;

    (void)snprintf(path, sizeof path, "%s/tree/inner", test_dir());
    CHECK(mkdir(path, 0700) == 0);
    (void)snprintf(path, sizeof path, "%s/tree/inner/file", test_dir());
    fd = open(path, O_WRONLY | O_CREAT, 0400);
    CHECK(fd >= 0 && close(fd) == 0);
    (void)snprintf(path, sizeof path, "%s/tree/inner", test_dir());
    CHECK(chmod(path, 0555) == 0);
    (void)snprintf(path, sizeof path, "%s/tree/closed", test_dir());
    CHECK(mkdir(path, 0000) == 0);
}

/* Permissions do not hold root back, so the removal is done by another user. */
TEST(folders_without_permissions_go_too)
{
    char path[PATH_MAX];
    int how;
    pid_t pid;

    (void)snprintf(path, sizeof path, "%s/tree", test_dir());
    CHECK(mkdir(path, 0700) == 0);
    CHECK(geteuid() != 0 || (chown(path, 65534, 65534) == 0 && chmod(test_dir(), 0711) == 0));
    pid = fork();
    if (pid == 0) {
        int fd = open(path, O_RDONLY | O_DIRECTORY);

        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(1);
        make_read_only();
        rundir_remove_all(fd, "inner");
        rundir_remove_all(fd, "closed");
        _exit(0);
    }
    CHECK(waitpid(pid, &how, 0) == pid && how == 0);
    CHECK(rmdir(path) == 0); /* it is empty */
}

TEST_MAIN
