/* What is ours, and what is not: links on the way, folders in which others may write, files with two
 * names, and trees with something of others in them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/own_tree.h"
#include "tests/lib/test.h"

#define NOBODY 65534

/* A path in the test's folder. */
static const char *in(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned next;

    (void)snprintf(paths[next % 4], PATH_MAX, "%.3000s/%s", test_dir(), name);
    return paths[next++ % 4];
}

static void put(const char *name)
{
    int fd = open(in(name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, "theirs", 6) == 6 && close(fd) == 0);
}

static enum status open_folder(const char *name, uint32_t ours, struct err *err)
{
    int fd;
    const enum status status = own_folder_open(in(name), ours, &fd, err);

    CHECK_EQ(fd >= 0, status == STATUS_OK);
    if (fd >= 0)
        (void)close(fd);
    return status;
}

static enum status open_file(const char *name, uint32_t ours, int flags, struct err *err)
{
    int fd;
    const enum status status = own_file_open(in(name), ours, flags, 0600, &fd, err);

    CHECK_EQ(fd >= 0, status == STATUS_OK);
    if (fd >= 0)
        (void)close(fd);
    return status;
}

static void clean(void)
{
    int fd;
    struct err err;

    CHECK_EQ(own_folder_open(test_dir(), 0, &fd, &err), STATUS_OK);
    own_tree_empty(fd, NULL);
    (void)close(fd);
}

TEST(a_link_of_ours_is_followed_on_the_way_and_not_at_its_end)
{
    struct err err = {.text = ""};

    CHECK(mkdir(in("real"), 0700) == 0 && mkdir(in("real/run"), 0700) == 0);
    CHECK(symlink("real", in("link")) == 0 && symlink("real/run", in("run")) == 0);
    CHECK_EQ(open_folder("link/run", 1, &err), STATUS_OK);
    CHECK_EQ(open_folder("link/./run//", 1, &err), STATUS_OK);
    CHECK_EQ(open_folder("run", 0, &err), STATUS_OK);
    CHECK_EQ(open_folder("run", 1, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "is a symbolic link") != NULL);
    CHECK_EQ(open_folder("link/run", 2, &err), STATUS_REFUSED);
    CHECK_EQ(open_folder("nowhere", 1, &err), STATUS_NOT_FOUND);
    CHECK(symlink("loop", in("loop")) == 0);
    CHECK_EQ(open_folder("loop", 0, &err), STATUS_IO);
    CHECK_EQ(err.code, ELOOP);
    clean();
}

TEST(a_link_of_another_user_is_not_followed)
{
    struct err err = {.text = ""};
    struct stat root;
    int fd;

    if (geteuid() != 0 || stat("/", &root) != 0 || root.st_uid == NOBODY)
        SKIP("needs root");
    CHECK(mkdir(in("real"), 0700) == 0 && symlink("real", in("link")) == 0);
    CHECK(lchown(in("link"), NOBODY, NOBODY) == 0);
    CHECK_EQ(open_folder("link", 0, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "\"link\" is a symbolic link of user 65534") != NULL);
    CHECK_EQ(own_folder_make(in("link/new"), 0, 0700, &fd, &err), STATUS_REFUSED);
    CHECK_EQ(own_file_make(in("link/file"), 0, 0600, &fd, &err), STATUS_REFUSED);
    CHECK(access(in("real/new"), F_OK) != 0 && access(in("real/file"), F_OK) != 0);
    clean();
}

TEST(a_private_folder_is_written_by_its_owner_only)
{
    const gid_t own = getegid(), other = own + 1;
    const struct {
        mode_t mode;
        gid_t gid;
        bool is_private;
    } cases[] = {
        {0700, other, true},  {0755, other, true},  {0770, own, true},
        {0770, other, false}, {0775, other, false}, {0702, own, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct stat info = {.st_mode = S_IFDIR | cases[i].mode, .st_gid = cases[i].gid};

        CHECK_EQ(own_folder_is_private(&info, -1), cases[i].is_private);
    }
}

/* The group's bits are only the mask of an access list. */
TEST(a_folder_whose_access_list_lets_others_write_is_not_ours)
{
    static const struct {
        uint32_t version;
        struct {
            uint16_t tag, permissions;
            uint32_t id;
        } entries[5];
    } list = {2,
              {{0x01, 7, UINT32_MAX},
               {0x02, 7, NOBODY},
               {0x04, 5, UINT32_MAX},
               {0x10, 7, UINT32_MAX},
               {0x20, 5, UINT32_MAX}}};
    struct err err = {.text = ""};

    CHECK_EQ(mkdir(in("shared"), 0700), 0);
    if (setxattr(in("shared"), "system.posix_acl_access", &list, sizeof list, 0) != 0) {
        clean();
        SKIP("the file system has no access lists");
    }
    CHECK_EQ(open_folder("shared", 1, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "other users may write") != NULL);
    CHECK_EQ(chmod(in("shared"), 0755), 0); /* takes it from all of them */
    CHECK_EQ(open_folder("shared", 1, &err), STATUS_OK);
    clean();
}

TEST(folders_that_are_not_ours)
{
    struct err err = {.text = ""};
    int fd;

    CHECK(mkdir(in("open"), 0700) == 0 && chmod(in("open"), 0707) == 0);
    CHECK_EQ(open_folder("open", 1, &err), STATUS_REFUSED);
    CHECK(strstr(err.text, "other users may write") != NULL);
    CHECK_EQ(own_folder_make(in("open"), 1, 0700, &fd, &err), STATUS_REFUSED);
    CHECK_EQ(own_folder_make(in("open/inner"), 1, 0700, &fd, &err), STATUS_OK);
    (void)close(fd);
    CHECK_EQ(own_folder_open(in("open/inner"), 2, &fd, &err), STATUS_REFUSED);
    put("file");
    CHECK_EQ(open_folder("file", 1, &err), STATUS_REFUSED);
    CHECK_EQ(open_folder("file", 0, &err), STATUS_IO);
    CHECK_EQ(open_folder("file/x", 0, &err), STATUS_IO);
    if (geteuid() == 0) {
        CHECK(mkdir(in("theirs"), 0700) == 0 && chown(in("theirs"), NOBODY, NOBODY) == 0);
        CHECK_EQ(open_folder("theirs", 1, &err), STATUS_REFUSED);
        CHECK(strstr(err.text, "belongs to user 65534") != NULL);
        CHECK_EQ(open_folder("theirs", 0, &err), STATUS_OK);
    }
    clean();
}

TEST(files_that_are_not_ours)
{
    struct err err = {.text = ""};
    int fd;

    put("secret");
    CHECK(symlink("secret", in("link")) == 0 && link(in("secret"), in("twin")) == 0 &&
          mkfifo(in("pipe"), 0600) == 0);
    CHECK_EQ(open_file("link", 0, O_WRONLY | O_CREAT | O_APPEND, &err), STATUS_REFUSED);
    CHECK_EQ(open_file("twin", 0, O_WRONLY | O_CREAT | O_APPEND, &err), STATUS_REFUSED);
    CHECK_EQ(open_file("twin", 1, O_RDONLY, &err), STATUS_OK);
    CHECK_EQ(open_file("pipe", 1, O_RDONLY, &err), STATUS_REFUSED);
    CHECK_EQ(open_file("pipe", 1, O_RDWR, &err), STATUS_REFUSED);
    CHECK_EQ(open_file("new", 0, O_WRONLY | O_CREAT, &err), STATUS_OK);
    CHECK_EQ(open_file("no", 0, O_RDONLY, &err), STATUS_NOT_FOUND);
    CHECK_EQ(own_file_make(in("twin"), 0, 0600, &fd, &err), STATUS_OK);
    CHECK(write(fd, "ours", 4) == 4 && close(fd) == 0);
    CHECK_EQ(own_file_make(in("link"), 0, 0600, &fd, &err), STATUS_OK);
    CHECK(write(fd, "ours", 4) == 4 && close(fd) == 0);
    fd = open(in("secret"), O_RDONLY | O_CLOEXEC);
    char text[8] = "";
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) == 6 && close(fd) == 0);
    CHECK_STR(text, "theirs");
    if (geteuid() == 0) {
        CHECK(chown(in("new"), NOBODY, NOBODY) == 0);
        CHECK_EQ(open_file("new", 1, O_RDWR, &err), STATUS_REFUSED);
    }
    clean();
}

TEST(a_tree_keeps_what_is_of_others)
{
    char other[NAME_MAX + 1];
    int fd;
    struct err err;

    if (geteuid() != 0)
        SKIP("needs root");
    CHECK(mkdir(in("tree"), 0700) == 0 && mkdir(in("tree/deep"), 0500) == 0);
    put("tree/deep/job");
    CHECK(chown(in("tree/deep/job"), 1000, 1000) == 0);
    CHECK(chown(in("tree"), 1000, 1000) == 0);
    CHECK_EQ(own_folder_open(test_dir(), 0, &fd, &err), STATUS_OK);
    CHECK(own_tree_is_ours(fd, "tree", other));
    put("tree/deep/theirs");
    CHECK(chown(in("tree/deep/theirs"), NOBODY, NOBODY) == 0);
    CHECK(!own_tree_is_ours(fd, "tree", other));
    CHECK_STR(other, "theirs");
    own_tree_remove(fd, "tree");
    CHECK(access(in("tree/deep/theirs"), F_OK) == 0 && access(in("tree/deep/job"), F_OK) != 0);
    CHECK(chown(in("tree/deep/theirs"), 0, 0) == 0);
    own_tree_remove(fd, "tree");
    CHECK(access(in("tree"), F_OK) != 0);
    (void)close(fd);
    clean();
}

/* A folder in a folder, and so on, with a file in each; the deepest may not be written. */
static void make_deep(const char *name, uint32_t depth)
{
    int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), below, file;

    for (uint32_t i = 0; i < depth; i++) {
        const char *next = i == 0 ? name : "deep-1";

        CHECK(fd >= 0 && mkdirat(fd, next, 0700) == 0);
        below = openat(fd, next, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(fd);
        fd = below;
        file = openat(fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        CHECK(file >= 0 && close(file) == 0);
    }
    CHECK(fchmod(fd, 0500) == 0);
    CHECK(close(fd) == 0);
}

/* With few descriptors. A job's user may make a tree deeper than there are descriptors or room on a stack. */
TEST(a_tree_of_any_depth_is_removed)
{
    const struct rlimit few = {256, 256};
    char other[NAME_MAX + 1];
    struct err err;
    int fd;

    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK_EQ(own_folder_open(test_dir(), 0, &fd, &err), STATUS_OK);
    make_deep("tree", 201);
    CHECK(!own_tree_is_ours(fd, "tree", other)); /* nobody looks so deep */
    CHECK_STR(other, "deep-1");
    own_tree_remove(fd, "tree");
    CHECK(access(in("tree"), F_OK) != 0);
    make_deep("tree", 2000);
    own_tree_remove(fd, "tree");
    CHECK(access(in("tree"), F_OK) != 0);
    make_deep("tree", 60);
    CHECK(own_tree_is_ours(fd, "tree", other));
    make_deep("kept", 70);
    own_tree_empty(fd, "kept");
    CHECK(access(in("tree"), F_OK) != 0 && access(in("kept"), F_OK) == 0);
    own_tree_remove(fd, "kept");
    (void)close(fd);
    clean();
}

/* Runs it in a child with mounts of its own, of `from` over `to`. It returns 0, or 1 for a failure. */
static void with_mount(const char *from, const char *to, int (*run)(int fd))
{
    const char *source = in(from), *target = in(to);
    int how = 0, fd;
    struct err err;
    pid_t pid = fork();

    if (pid == 0) {
        if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount(source, target, NULL, MS_BIND, NULL) != 0)
            _exit(77);
        if (own_folder_open(test_dir(), 0, &fd, &err) != STATUS_OK)
            _exit(1);
        _exit(run(fd));
    }
    CHECK(waitpid(pid, &how, 0) == pid && WIFEXITED(how));
    CHECK(access(in("outside/file"), F_OK) == 0);
    clean();
    if (WEXITSTATUS(how) == 77)
        SKIP("mounting is not allowed");
    CHECK_EQ(WEXITSTATUS(how), 0);
}

static bool is_other(int fd, const char *tree, const char *expected)
{
    char other[NAME_MAX + 1];

    return !own_tree_is_ours(fd, tree, other) && strcmp(other, expected) == 0;
}

static void make_tree(void)
{
    CHECK(mkdir(in("outside"), 0700) == 0 && mkdir(in("tree"), 0700) == 0 &&
          mkdir(in("tree/mounted"), 0700) == 0);
    put("outside/file");
    put("tree/file");
}

static int remove_over_mount(int fd)
{
    if (!is_other(fd, "tree", "mounted"))
        return 1;
    own_tree_remove(fd, "tree");
    return access(in("tree/mounted/file"), F_OK) == 0 && access(in("tree/file"), F_OK) != 0 ? 0 : 1;
}

TEST(a_tree_ends_at_a_mount)
{
    make_tree();
    with_mount("outside", "tree/mounted", remove_over_mount);
}

static int remove_mount(int fd)
{
    if (!is_other(fd, "tree", "tree"))
        return 1;
    own_tree_remove(fd, "tree");
    return access(in("tree/file"), F_OK) == 0 ? 0 : 1;
}

/* Its owner and its device are those of what is mounted. */
TEST(a_tree_is_not_ours_where_something_is_mounted_on_it)
{
    make_tree();
    with_mount("outside", "tree", remove_mount);
}

static int remove_over_file(int fd)
{
    if (!is_other(fd, "tree", "file"))
        return 1;
    own_tree_remove(fd, "tree");
    return access(in("tree/file"), F_OK) == 0 ? 0 : 1;
}

TEST(a_file_on_which_something_is_mounted_is_not_ours_either)
{
    make_tree();
    with_mount("outside/file", "tree/file", remove_over_file);
}

TEST_MAIN
