/* What an ended shim, and an ended keeper of warm processes, have left: a shim.json, or an end.msg, that the disk cannot give
 * now (EIO) is no proof that nothing is left. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcherd/node/shim_files.h"
#include "launcherd/node/warm_files.h"
#include "launcherd/process/rundir.h"
#include "tests/lib/test.h"

static const char *broken = ""; /* the file that the disk does not give */

int __real_openat64(int fd, const char *path, int flags, /* NOLINT(bugprone-reserved-identifier) */
                    ...);
int __wrap_openat64(int fd, const char *path, int flags, /* NOLINT(bugprone-reserved-identifier) */
                    ...);
int __wrap_openat64(int fd, const char *path, int flags, /* NOLINT(bugprone-reserved-identifier) */
                    ...)
{
    va_list args;
    mode_t mode = 0;

    va_start(args, flags);
    if ((flags & O_CREAT) != 0)
        mode = va_arg(args, mode_t);
    va_end(args);
    errno = EIO;
    return strcmp(path, broken) == 0 ? -1 : __real_openat64(fd, path, flags, mode);
}

/* Left by a process of another time: nothing has this token. */
static void make(const char *dir)
{
    static const struct rundir_shim shim = {
        .pid = 1, .start_ticks = 2, .boot_id = "b", .token = "00000000000000000000000000000000"};
    struct err err = {.text = ""};

    if (rundir_make_dir(dir, &err) != STATUS_OK || rundir_write_shim(dir, &shim, &err) != STATUS_OK)
        FAIL("%s", err.text);
}

static struct shim_files *sweep_shim(const char *dir)
{
    struct shim_files *files = shim_files_new(dir);

    CHECK(files != NULL);
    shim_files_sweep(&files->work);
    return files;
}

TEST(what_a_shim_has_left_is_unknown_while_the_disk_does_not_give_it)
{
    struct shim_files *files;
    char dir[PATH_MAX];

    rundir_path(dir, test_dir(), "c", 7, 1);
    make(dir);
    broken = "shim.json";
    files = sweep_shim(dir);
    CHECK(files->is_unknown && !files->has_msg);
    CHECK(strstr(files->err.text, "shim.json") != NULL);
    files->work.drop(&files->work);
    broken = "end.msg"; /* it may say how the ranks ended */
    files = sweep_shim(dir);
    CHECK(files->is_unknown && !files->has_msg);
    files->work.drop(&files->work);
    broken = "";
    files = sweep_shim(dir);
    CHECK(!files->is_unknown && !files->has_msg);
    CHECK_EQ(files->found, 0);
    files->work.drop(&files->work);
    rundir_remove(dir);
}

static bool warm_has_left(const char *dir)
{
    struct warm_files *files = warm_files_new(dir);
    bool has_left;

    CHECK(files != NULL);
    warm_files_sweep(&files->work);
    has_left = files->has_left;
    files->work.drop(&files->work);
    return has_left;
}

TEST(what_a_keeper_has_left_is_looked_at_again_until_the_disk_gives_it)
{
    char dir[PATH_MAX], path[PATH_MAX];

    rundir_warm_path(dir, test_dir(), "c", 8);
    make(dir);
    rundir_join(path, dir, "shim.json");
    broken = "shim.json";
    CHECK(warm_has_left(dir));
    broken = "";
    CHECK_EQ(access(path, F_OK), 0); /* it describes what may be left */
    CHECK(!warm_has_left(dir));
    CHECK(access(dir, F_OK) != 0);
}

TEST_MAIN
