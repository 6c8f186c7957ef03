/* The cgroups of jobs: with files like the kernel's, as its documentation describes them, and, if
 * this machine allows a group, with the kernel itself. */
#include "launcherd/process/cgroup.h"
#include "tests/lib/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[32];

static void put(const char *name, const char *text)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static const char *get(const char *name)
{
    static char text[256];
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return "(none)";
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

static void begin(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/ddp-cgroup-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
}

static void end(void)
{
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    (void)closedir(dir);
    CHECK_EQ(rmdir(folder), 0);
}

#define OTHER "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n"
#define UNIFIED "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define HYBRID                                                                                     \
    "31 22 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"                            \
    "41 22 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"

static const char *locate(const char *mountinfo, const char *self, bool is_root)
{
    static char text[PATH_MAX];
    char info[PATH_MAX], own[PATH_MAX];
    struct err err;
    (void)snprintf(info, sizeof info, "%s/mountinfo", folder);
    (void)snprintf(own, sizeof own, "%s/self", folder);
    put("mountinfo", mountinfo);
    put("self", self);
    if (cgroup_locate(info, own, is_root, text, &err) != STATUS_OK)
        (void)snprintf(text, sizeof text, "%s", err.text);
    return text;
}

TEST(the_hierarchy_is_found_by_its_mount)
{
    begin();
    CHECK_STR(locate(OTHER UNIFIED, "0::/a.slice/b.scope\n", false),
              "/sys/fs/cgroup/a.slice/b.scope");
    CHECK_STR(locate(OTHER UNIFIED, "0::/a.slice/b.scope\n", true), "/sys/fs/cgroup");
    CHECK_STR(locate(OTHER HYBRID, "4:memory:/x\n0::/\n", false), "/sys/fs/cgroup/unified");
    CHECK_STR(locate(OTHER, "0::/\n", true), "no cgroup v2 is mounted");
    CHECK_STR(locate(OTHER UNIFIED, "4:memory:/x\n", false), "this process is in no cgroup v2");
    CHECK_STR(locate(OTHER UNIFIED, "0::/../other\n", false), "this process is in no cgroup v2");
    end();
}

TEST(limits_are_written_as_the_kernel_wants_them)
{
    const struct cgroup_limits both = {.memory_bytes = 8ull << 30, .pids = 100};
    const struct cgroup_limits pids = {.pids = 100};
    struct err err;

    begin(); /* a group with both controllers; a write to a file of the kernel replaces its value */
    put("memory.max", "");
    put("memory.oom.group", "");
    put("pids.max", "");
    CHECK_EQ(cgroup_limit(folder, &both, &err), STATUS_OK);
    CHECK_STR(get("memory.max"), "8589934592");
    CHECK_STR(get("pids.max"), "100");
    CHECK_STR(get("memory.oom.group"), "1");
    CHECK_STR(get("memory.swap.max"), "(none)"); /* no such file without swap: none is made */
    end();

    begin(); /* without controllers */
    CHECK_EQ(cgroup_limit(folder, &pids, &err), STATUS_OK);
    CHECK_STR(get("pids.max"), "(none)");
    CHECK_EQ(cgroup_limit(folder, &both, &err), STATUS_SYSTEM);
    CHECK(strstr(err.text, "memory.max") != NULL);
    end();
}

TEST(events_are_read_by_their_names)
{
    begin();
    put("cgroup.events", "populated 1\nfrozen 0\n");
    put("memory.events", "low 0\nhigh 0\nmax 31\noom 3\noom_kill 2\noom_group_kill 1\n");
    put("cgroup.subtree_control", "cpu memory pids\n");
    CHECK(cgroup_is_populated(folder));
    CHECK_EQ(cgroup_oom_kills(folder), 2);
    CHECK(cgroup_has(folder, "memory") && cgroup_has(folder, "pids") && !cgroup_has(folder, "mem"));
    put("cgroup.events", "populated 0\nfrozen 0\n");
    CHECK(!cgroup_is_populated(folder));
    CHECK(!cgroup_is_populated("/nowhere") && cgroup_oom_kills("/nowhere") == 0);
    CHECK(!cgroup_kill(folder)); /* no cgroup.kill: a kernel before 5.14 */
    end();
}

TEST(sizes)
{
    char text[32];
    uint64_t bytes = 0;
    CHECK(cgroup_parse_size("8G", &bytes) && bytes == 8ull << 30);
    CHECK(cgroup_parse_size("512MiB", &bytes) && bytes == 512ull << 20);
    CHECK(cgroup_parse_size("1.5T", &bytes) && bytes == 3ull << 39);
    CHECK(cgroup_parse_size("4096", &bytes) && bytes == 4096);
    static const char *const bad[] = {"",    "G",   "-1G", "0",   "0x10",
                                      "8 G", "8GG", "8X",  "nan", "1e99"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!cgroup_parse_size(bad[i], &bytes));
    cgroup_format_size(8ull << 30, text, sizeof text);
    CHECK_STR(text, "8 GiB");
    cgroup_format_size(3ull << 29, text, sizeof text);
    CHECK_STR(text, "1.5 GiB");
}

static void run_member(const char *dir, int ready_fd)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%.4000s/cgroup.procs", dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1)
        _exit(1);
    (void)!write(ready_fd, "", 1);
    for (;;)
        (void)pause();
}

/* The kernel may count a process as gone from its group a little after its parent has heard of its end. */
static void await_empty(const char *dir)
{
    for (int i = 0; i < 6000 && cgroup_is_populated(dir); i++)
        (void)usleep(10000);
    CHECK(!cgroup_is_populated(dir));
}

/* shim.json says which group to remove; it may be of another machine, or damaged. */
TEST(only_groups_are_removed)
{
    char dir[PATH_MAX], path[PATH_MAX];

    (void)snprintf(dir, sizeof dir, "%.3000s/ddp", test_dir());
    CHECK_EQ(mkdir(dir, 0700), 0);
    (void)snprintf(path, sizeof path, "%.4000s/c-1-g1", dir);
    CHECK_EQ(mkdir(path, 0700), 0);
    cgroup_remove(path);
    CHECK_EQ(access(path, F_OK), 0);
    CHECK(!cgroup_kill(path));
    CHECK(rmdir(path) == 0 && rmdir(dir) == 0);
}

/* A process in its own session, which is in none of our lists. */
/* A group as a process leaves it that is killed while it tries out whether it can make one; "": it cannot. */
static void leave_try(const char *base, char dir[PATH_MAX], pid_t pid, const char *rest,
                      bool is_old)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

    (void)snprintf(dir, PATH_MAX, "%.4000s/try-%d%s", base, (int)pid, rest);
    CHECK_EQ(mkdir(dir, 0755), 0);
    CHECK(!is_old || utimensat(AT_FDCWD, dir, times, 0) == 0);
}

TEST(what_a_killed_start_has_left_is_removed)
{
    char base[PATH_MAX], of_earlier[PATH_MAX], of_dead[PATH_MAX], of_live[PATH_MAX],
        fresh[PATH_MAX];
    struct err err;
    pid_t dead;

    if (cgroup_find_base(base, &err) != STATUS_OK)
        SKIP("no cgroups of ours");
    dead = fork();
    if (dead == 0)
        _exit(0);
    CHECK_EQ(waitpid(dead, NULL, 0), dead);
    leave_try(base, of_earlier, dead, "", true); /* of an earlier release */
    leave_try(base, of_dead, dead, "-1f", true);
    leave_try(base, fresh, dead, "-2f", false); /* another's, in a pid namespace of its own */
    leave_try(base, of_live, getpid(), "-1f", true);
    cgroup_sweep(base);
    CHECK(access(of_earlier, F_OK) != 0 && access(of_dead, F_OK) != 0);
    CHECK_EQ(rmdir(of_live), 0);
    CHECK_EQ(rmdir(fresh), 0);
}

TEST(the_kernel_kills_a_group)
{
    char base[PATH_MAX], dir[PATH_MAX];
    const struct cgroup_limits limits = {.pids = CGROUP_PIDS_MAX};
    struct err err;
    int how = 0, ready[2];
    char byte;

    if (cgroup_find_base(base, &err) != STATUS_OK) {
        (void)printf("skipped: %s\n", err.text);
        return;
    }
    (void)snprintf(dir, sizeof dir, "%.4000s/test-%d", base, (int)getpid());
    CHECK_EQ(cgroup_make(dir, &limits, &err), STATUS_OK);
    CHECK_EQ(cgroup_make(dir, &limits, &err), STATUS_SYSTEM); /* it is there */
    CHECK(!cgroup_is_populated(dir));
    CHECK_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0)
        run_member(dir, ready[1]);
    (void)close(ready[1]);
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    CHECK(cgroup_is_populated(dir));
    cgroup_remove(dir); /* refused by the kernel */
    CHECK(cgroup_is_populated(dir));
    if (!cgroup_kill(dir))
        (void)kill(pid, SIGKILL); /* a kernel before 5.14 */
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    await_empty(dir);
    CHECK_EQ(cgroup_oom_kills(dir), 0);
    cgroup_remove(dir);
    CHECK_EQ(access(dir, F_OK), -1);
}

TEST_MAIN
