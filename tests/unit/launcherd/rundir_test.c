/* The removal of run directories, also when something is in the way. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/log.h"
#include "launcherd/process/rundir.h"
#include "tests/lib/test.h"

/* A directory as a shim leaves it, and a file that launcherd does not make. */
static void make_used(char path[PATH_MAX], bool with_other)
{
    static const struct rundir_shim shim = {
        .pid = 1, .start_ticks = 2, .boot_id = "b", .token = "t"};
    struct err err = {.text = ""};

    rundir_path(path, test_dir(), "c", 7, 1);
    if (rundir_make_dir(path, &err) != STATUS_OK ||
        rundir_write_shim(path, &shim, &err) != STATUS_OK ||
        rundir_write(path, "start.msg", "x", 1, &err) != STATUS_OK ||
        rundir_write(path, "end.msg.new", "x", 1, &err) != STATUS_OK ||
        (with_other && rundir_write(path, "other", "x", 1, &err) != STATUS_OK))
        FAIL("%s", err.text);
}

static char lines[8192]; /* of the log */

static void keep_line(const char *bytes, size_t byte_count)
{
    const size_t used = strlen(lines);

    if (byte_count < sizeof lines - used) {
        memcpy(lines + used, bytes, byte_count);
        lines[used + byte_count] = '\0';
    }
}

/* Removes, and checks that the log has `text`; NULL: no line. */
static void remove_and_read(const char *path, const char *text)
{
    lines[0] = '\0';
    log_use(keep_line);
    rundir_remove(path);
    log_use(NULL);
    if (text == NULL ? lines[0] != '\0' : strstr(lines, text) == NULL)
        FAIL("%s: the log has \"%s\"", path, lines);
}

/* A path in the test's folder. */
static const char *in_dir(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned next;

    rundir_join(paths[next % 4], test_dir(), name);
    return paths[next++ % 4];
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static bool has(const char *path, const char *text)
{
    char got[64] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t count = fd < 0 ? -1 : read(fd, got, sizeof got - 1);

    if (fd >= 0)
        (void)close(fd);
    return count >= 0 && strcmp(got, text) == 0;
}

TEST(a_run_directory_goes_with_our_files)
{
    char path[PATH_MAX];

    make_used(path, false);
    remove_and_read(path, NULL);
    CHECK(access(path, F_OK) != 0);
    remove_and_read(path, NULL); /* a second removal does nothing */
}

/* A part of which one file stays in the record keeps its run directory: else no launcherd would find that file again. */
TEST(a_run_directory_stays_while_its_record_does)
{
    char path[PATH_MAX], record[PATH_MAX], kept[PATH_MAX];

    make_used(path, false);
    (void)snprintf(record, sizeof record, "%.2000s/parts", test_dir());
    CHECK_EQ(mkdir(record, 0700), 0);
    (void)snprintf(record, sizeof record, "%.2000s/parts/%s.shim", test_dir(),
                   strrchr(path, '/') + 1);
    CHECK_EQ(mkdir(record, 0700), 0); /* unlink refuses it */
    remove_and_read(path, "cannot be removed: Is a directory");
    rundir_join(kept, path, "start.msg");
    CHECK(has(kept, "x"));
    CHECK_EQ(rmdir(record), 0);
    remove_and_read(path, NULL);
    CHECK(access(path, F_OK) != 0);
}

TEST(a_file_of_others_stays_with_its_folder)
{
    char path[PATH_MAX], name[PATH_MAX];

    make_used(path, true);
    remove_and_read(path, "has 1 files that launcherd did not make, such as \"other\"");
    rundir_join(name, path, "other");
    CHECK(has(name, "x"));
    rundir_join(name, path, "start.msg");
    CHECK(access(name, F_OK) != 0);
    rundir_join(name, path, "other");
    CHECK(unlink(name) == 0 && rmdir(path) == 0);
}

/* A folder of others, with a file that has a name of ours. */
static void make_victim(const char *name)
{
    CHECK(mkdir(in_dir(name), 0755) == 0);
    put(in_dir("victim/start.msg"), "theirs");
    put(in_dir("victim/passwd"), "theirs");
}

static void check_victim(void)
{
    CHECK(has(in_dir("victim/start.msg"), "theirs"));
    CHECK(has(in_dir("victim/passwd"), "theirs"));
    rundir_remove_all(AT_FDCWD, in_dir("victim"));
}

TEST(a_link_in_place_of_a_run_directory_is_not_followed)
{
    char path[PATH_MAX];
    struct err err = {.text = ""};
    struct rundir_shim shim;

    make_victim("victim");
    make_used(path, false);
    rundir_remove(path);
    CHECK(symlink(in_dir("victim"), path) == 0);
    remove_and_read(path, "is left alone");
    CHECK_EQ(rundir_check(path, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "is a symbolic link") != NULL);
    CHECK_EQ(rundir_make_dir(path, &err), STATUS_REFUSED);
    CHECK_EQ(rundir_write(path, "passwd", "ours", 4, &err), STATUS_REFUSED);
    CHECK_EQ(rundir_read_shim(path, &shim, &err), STATUS_REFUSED);
    CHECK(unlink(path) == 0);
    check_victim();
}

TEST(a_link_in_place_of_run_is_not_followed)
{
    char path[PATH_MAX];
    struct err err = {.text = ""};

    make_victim("victim");
    CHECK(mkdir(in_dir("victim/c-7-g1"), 0700) == 0);
    put(in_dir("victim/c-7-g1/start.msg"), "theirs");
    (void)rmdir(in_dir("run"));
    CHECK(symlink(in_dir("victim"), in_dir("run")) == 0);
    rundir_path(path, test_dir(), "c", 7, 1);
    remove_and_read(path, "is left alone");
    CHECK_EQ(rundir_make(in_dir("run"), 0700, &err), STATUS_REFUSED);
    CHECK_EQ(rundir_make_dir(path, &err), STATUS_REFUSED);
    CHECK(has(in_dir("victim/c-7-g1/start.msg"), "theirs"));
    CHECK(unlink(in_dir("run")) == 0);
    check_victim();
}

TEST(folders_with_other_names_or_of_others_are_left_alone)
{
    char path[PATH_MAX], name[PATH_MAX];

    make_used(path, false);
    rundir_join(name, test_dir(), "run/home");
    CHECK(rename(path, name) == 0);
    remove_and_read(name, "has no name of ours");
    CHECK(rename(name, path) == 0 && chmod(path, 0777) == 0);
    remove_and_read(path, "other users may write");
    CHECK(chmod(path, 0700) == 0);
    if (geteuid() == 0) {
        CHECK(chown(path, 65534, 65534) == 0);
        remove_and_read(path, "belongs to user 65534");
        CHECK(chown(path, 0, 0) == 0);
    }
    rundir_join(name, path, "start.msg");
    CHECK(has(name, "x"));
    remove_and_read(path, NULL);
    CHECK(access(path, F_OK) != 0);
}

TEST(names_of_run_directories)
{
    static const char *const good[] = {"c-7-g1", "0123abcd-18446744073709551615-g4294967295",
                                       "a-b-1-g2"};
    static const char *const bad[] = {
        "",        "c",      "-1-g1",   "c-1-g",   "c-0-g1",
        "c-01-g1", "c-1-g0", "c-1g1",   "c--g1",   "c-1-g1 ",
        "-g1",     "g1",     "c/-1-g1", "c-1-g1x", "c-123456789012345678901-g1"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!rundir_is_name(good[i]))
            FAIL("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (rundir_is_name(bad[i]))
            FAIL("%s is taken", bad[i]);
    CHECK(rundir_is_warm_name("c-7") && !rundir_is_warm_name("c") && !rundir_is_warm_name("c-0"));
}

/* A link that waits where the next write makes its file. */
TEST(a_write_follows_no_link)
{
    char path[PATH_MAX], name[PATH_MAX];
    struct err err = {.text = ""};

    make_used(path, false);
    put(in_dir("secret"), "theirs");
    rundir_join(name, path, "end.msg.new");
    CHECK(unlink(name) == 0 && symlink(in_dir("secret"), name) == 0);
    CHECK_EQ(rundir_write(path, "end.msg", "ours", 4, &err), STATUS_OK);
    CHECK(has(in_dir("secret"), "theirs"));
    rundir_join(name, path, "end.msg");
    CHECK(has(name, "ours"));
    rundir_remove(path);
    CHECK(access(path, F_OK) != 0);
    CHECK(unlink(in_dir("secret")) == 0);
}

/* Without a free descriptor the directory must still go; otherwise it would stay until launcherd's
 * next start. */
TEST(a_run_directory_goes_without_a_free_descriptor)
{
    struct rlimit usual, few;
    char path[PATH_MAX];
    int fds[64];
    size_t count = 0;

    make_used(path, false);
    CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    few = (struct rlimit){.rlim_cur = 64, .rlim_max = usual.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    own_reserve();
    while ((fds[count] = dup(0)) >= 0)
        count++;
    CHECK(errno == EMFILE);
    rundir_remove(path);
    while (count > 0)
        (void)close(fds[--count]);
    CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0);
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

/* A folder that is mounted in place of a run directory, and a disk that takes no writes. */
static int remove_with_mounts(const char *path)
{
    lines[0] = '\0';
    log_use(keep_line);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(in_dir("victim"), path, NULL, MS_BIND, NULL) != 0)
        return 77;
    rundir_remove(path);
    if (umount(path) != 0 || strstr(lines, "is a mount point") == NULL)
        return 1;
    lines[0] = '\0';
    if (mount(in_dir("run"), in_dir("run"), NULL, MS_BIND, NULL) != 0 ||
        mount(NULL, in_dir("run"), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) != 0)
        return 2;
    rundir_remove(path);
    return strstr(lines, "cannot be removed: Read-only file system") == NULL ? 3 : 0;
}

TEST(mounts_are_left_alone)
{
    char path[PATH_MAX];
    int how = 0;
    pid_t pid;

    if (geteuid() != 0)
        SKIP("only root may mount");
    make_used(path, false);
    make_victim("victim");
    pid = fork();
    if (pid == 0)
        _exit(remove_with_mounts(path));
    CHECK(waitpid(pid, &how, 0) == pid && WIFEXITED(how));
    if (WEXITSTATUS(how) == 77)
        SKIP("no mount namespaces here");
    CHECK_EQ(WEXITSTATUS(how), 0);
    check_victim();
    remove_and_read(path, NULL);
    CHECK(access(path, F_OK) != 0);
}

/* In the logs' folder, which jobs may enter, somebody else may have made it before. */
TEST(a_folder_of_another_user_is_not_given_away)
{
    const uid_t other = 4711, user = 65534;
    const gid_t group = 65534;
    char path[PATH_MAX];
    struct stat stat_of;
    struct err err = {.text = ""};

    if (geteuid() != 0)
        SKIP("only root may give folders away");
    (void)snprintf(path, sizeof path, "%s/logs", test_dir());
    CHECK_EQ(rundir_make(path, 0711, &err), STATUS_OK);
    (void)snprintf(path, sizeof path, "%s/logs/g1-errors", test_dir());
    CHECK(mkdir(path, 0700) == 0 && chown(path, other, group) == 0);
    CHECK_EQ(rundir_make_for(path, &user, &group, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "belongs to another user, 4711") != NULL);
    CHECK(stat(path, &stat_of) == 0 && stat_of.st_uid == other);
    CHECK(chown(path, user, group) == 0); /* of an earlier generation */
    CHECK_EQ(rundir_make_for(path, &user, &group, &err), STATUS_OK);
    CHECK(rmdir(path) == 0);
    CHECK_EQ(rundir_make_for(path, &user, &group, &err), STATUS_OK);
    CHECK(stat(path, &stat_of) == 0 && stat_of.st_uid == user && rmdir(path) == 0);
}

/* A limit of the size of files stands for a full disk: a write takes less than it was given. */
static int write_too_much(const char *dir)
{
    const struct rlimit limit = {.rlim_cur = 100, .rlim_max = 100};
    const char bytes[200] = "";
    struct err err = {.text = ""};

    if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 1;
    return rundir_write(dir, "start.msg", bytes, sizeof bytes, &err) == STATUS_IO &&
                   strstr(err.text, "File too large") != NULL
               ? 0
               : 2;
}

TEST(a_file_that_the_disk_does_not_take_whole_leaves_nothing)
{
    char path[PATH_MAX], dir[PATH_MAX];
    struct err err = {.text = ""};
    int how = 0;
    pid_t pid;

    rundir_path(dir, test_dir(), "c", 9, 1);
    CHECK_EQ(rundir_make_dir(dir, &err), STATUS_OK);
    CHECK_EQ(rundir_write(dir, "start.msg", "whole", 5, &err), STATUS_OK);
    pid = fork();
    if (pid == 0)
        _exit(write_too_much(dir));
    CHECK(waitpid(pid, &how, 0) == pid && WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), 0);
    rundir_join(path, dir, "start.msg.new");
    CHECK(access(path, F_OK) != 0 && errno == ENOENT);
    rundir_join(path, dir, "start.msg"); /* the one before stands */
    CHECK(access(path, F_OK) == 0);
    rundir_remove(dir);
}

TEST_MAIN
