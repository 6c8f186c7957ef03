/* A private run (`run --standalone`): its folder, what its daemons get from the environment, and what it leaves. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/io/service.h"
#include "ddpctl/keep_fresh.h"
#include "ddpctl/leftover.h"
#include "ddpctl/private_daemons.h"
#include "ddpctl/scratch.h"
#include "tests/lib/test.h"

static const char *find(char *const *environment, const char *name)
{
    for (; *environment != NULL; environment++)
        if (strncmp(*environment, name, strlen(name)) == 0 && (*environment)[strlen(name)] == '=')
            return *environment + strlen(name) + 1;
    return NULL;
}

/* Else the daemons would join the cluster of the user. */
TEST(daemons_get_no_variable_that_names_a_cluster)
{
    char more[] = "MORE=1", pid[24];
    char **found;

    CHECK(setenv("DDP_SERVER", "unix:/elsewhere", 1) == 0 &&
          setenv("DDP_LOG_LEVEL", "debug", 1) == 0 && setenv("OWN", "a b", 1) == 0);
    found = private_environ(more);
    CHECK(found != NULL);
    CHECK(find(found, "DDP_SERVER") == NULL);
    CHECK_STR(find(found, "DDP_LOG_LEVEL"), "debug");
    CHECK_STR(find(found, "OWN"), "a b");
    CHECK_STR(find(found, "MORE"), "1");
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    CHECK_STR(find(found, SERVICE_STARTER_VARIABLE), pid);
    free(found);
}

/* Its socket, as that of a shim that outlives its ddpctl. */
static int listen_in(const char *dir)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[2 * PATH_MAX];
    const char *const folders[] = {"node0", "node0/run", "node0/run/c-1-g1"};
    int fd;

    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
        CHECK_EQ(mkdir(path, 0700), 0);
    }
    CHECK(snprintf(address.sun_path, sizeof address.sun_path, "%s/node0/run/c-1-g1/shim.sock",
                   dir) < (int)sizeof address.sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
          listen(fd, 1) == 0);
    return fd;
}

TEST(a_folder_in_which_a_shim_still_runs_is_not_removed)
{
    struct scratch scratch;
    struct scratch_swept swept;
    struct err err = {.text = ""};
    char dir[PATH_MAX];
    int fd;

    CHECK_EQ(setenv("TMPDIR", test_dir(), 1), 0);
    CHECK_EQ(scratch_make(&scratch, &err), STATUS_OK);
    (void)snprintf(dir, sizeof dir, "%s", scratch.dir);
    fd = listen_in(dir);
    CHECK_EQ(close(scratch.lock_fd), 0); /* its ddpctl was killed */
    scratch_sweep(&swept);
    CHECK_EQ(swept.removed_count, 0);
    CHECK_EQ(access(dir, F_OK), 0);
    CHECK_EQ(close(fd), 0);
    scratch_sweep(&swept);
    CHECK_EQ(swept.removed_count, 1);
    CHECK(access(dir, F_OK) != 0);
}

static bool is_of_nobody(void *owner, pid_t pid)
{
    (void)owner;
    (void)pid;
    return false;
}

TEST(what_a_run_has_left_behind_is_ended)
{
    struct leftover leftover = {.is_ours = NULL};
    uv_loop_t loop;
    pid_t child;

    CHECK_EQ(uv_loop_init(&loop), 0);
    leftover_open(&leftover, &loop, is_of_nobody, NULL);
    child = fork();
    if (child == 0)
        for (;;)
            (void)pause();
    CHECK(child > 0);
    leftover_stop(&leftover);
    CHECK_EQ(leftover_close(&leftover), 1);
    CHECK(kill(child, 0) != 0); /* ended, and reaped */
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_EQ(uv_loop_close(&loop), 0);
}

/* As systemd-tmpfiles looks at it, and as a cleaner that looks at times. */
TEST(a_cleaner_of_temporary_folders_sees_that_the_folder_is_in_use)
{
    char dir[] = "/tmp/ddp-fresh-XXXXXX", quiet[64], recent[64], below[64];
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    const time_t now = time(NULL);
    struct stat info;
    int fd;

    CHECK(mkdtemp(dir) != NULL);
    (void)snprintf(below, sizeof below, "%s/node0", dir);
    (void)snprintf(quiet, sizeof quiet, "%s/node0/quiet", dir);
    (void)snprintf(recent, sizeof recent, "%s/recent", dir);
    CHECK(mkdir(below, 0700) == 0 && symlink("nowhere", quiet) == 0 && mkdir(recent, 0700) == 0);
    CHECK(utimensat(AT_FDCWD, quiet, old, AT_SYMLINK_NOFOLLOW) == 0 &&
          utimensat(AT_FDCWD, below, old, 0) == 0);
    keep_fresh_begin(dir, true);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK);
    (void)close(fd);
    CHECK(stat(recent, &info) == 0);
    keep_fresh_touch(dir, 3600);
    CHECK(lstat(quiet, &info) == 0 && info.st_mtime >= now && info.st_atime >= now);
    CHECK(stat(below, &info) == 0 && info.st_mtime >= now);
    CHECK(unlink(quiet) == 0 && rmdir(below) == 0 && rmdir(recent) == 0 && rmdir(dir) == 0);
}

TEST_MAIN
