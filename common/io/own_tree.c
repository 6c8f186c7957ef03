#include "common/io/own_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/io/own_path.h"

#define DEPTH_MAX 64u /* of folders in folders: each needs two descriptors */
#define ROUNDS_MAX 100000u
#define NAMES_TRIED_MAX 64u

/* A folder that is too deep is moved to the top, and its turn comes in the next round. So any depth is removed with
 * few descriptors, and without "..", which may lead elsewhere while the owner moves folders. */
struct tree {
    uid_t owner; /* of the folder at the top; what is ours goes too */
    dev_t device;
    uint32_t depth;
    bool removes;
    char *other;     /* if it only looks: [NAME_MAX + 1] */
    int top_fd;      /* if it removes */
    uint32_t *moved; /* folders that came to the top, in all rounds */
};

static bool may_go(const struct tree *tree, uid_t uid)
{
    return uid == tree->owner || uid == geteuid();
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Opens the folder `name`, but no link and nothing on another mount. */
static int open_below(const struct tree *tree, int parent_fd, const char *name, int flags)
{
    const struct open_how how = {.flags = (unsigned)(flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                                 .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS};
    struct stat info;
    int fd = (int)syscall(SYS_openat2, parent_fd, name, &how, sizeof how);

    if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
        return fd;
    /* Before Linux 5.6, or forbidden by a container. Before 5.8 bind mounts of the same device are not seen. */
    fd = openat(parent_fd, name, flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &info) != 0 || info.st_dev != tree->device || own_is_mount(fd, ""))) {
        (void)close(fd);
        errno = EXDEV;
        return -1;
    }
    return fd;
}

/* Opens a folder that may go, whatever its permissions are, and lets us remove what is in it. */
static int open_folder(const struct tree *tree, int parent_fd, const char *name)
{
    int fd = open_below(tree, parent_fd, name, O_RDONLY), path_fd;
    struct stat info;
    char path[64];

    if (fd < 0 && errno == EACCES && tree->removes &&
        (path_fd = open_below(tree, parent_fd, name, O_PATH)) >= 0) {
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", path_fd);
        if (fstat(path_fd, &info) == 0 && may_go(tree, info.st_uid) && chmod(path, 0700) == 0)
            fd = open_below(tree, parent_fd, name, O_RDONLY);
        (void)close(path_fd);
    }
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) != 0 || !may_go(tree, info.st_uid)) {
        (void)close(fd);
        errno = EPERM;
        return -1;
    }
    if (tree->removes && (info.st_mode & 0700) != 0700)
        (void)fchmod(fd, 0700);
    return fd;
}

static void look_at(const struct tree *tree, int fd, const char *kept);

/* `name`: a folder that may go. Nothing in it is changed; what may not go stays in it. */
static void bring_up(const struct tree *tree, int parent_fd, const char *name)
{
    char moved[32];
    struct stat info;
    int fd = open_folder(tree, parent_fd, name); /* so that it may be moved */

    if (fd < 0)
        return;
    (void)close(fd);
    for (uint32_t i = 0; i < NAMES_TRIED_MAX; i++) {
        (void)snprintf(moved, sizeof moved, "deep-%u", ++*tree->moved);
        if (fstatat(tree->top_fd, moved, &info, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
            continue;
        if (renameat(parent_fd, name, tree->top_fd, moved) != 0)
            --*tree->moved;
        return;
    }
}

/* Nobody has looked into it: it is not known to be ours. */
static void leave_deep(const struct tree *tree, const char *name)
{
    if (tree->other != NULL)
        (void)snprintf(tree->other, NAME_MAX + 1, "%s", name);
}

static void look_below(const struct tree *tree, int parent_fd, const char *name)
{
    struct tree below = *tree;
    int fd;

    if (tree->depth == 0 && tree->removes)
        bring_up(tree, parent_fd, name);
    else if (tree->depth == 0)
        leave_deep(tree, name);
    if (tree->depth == 0)
        return;
    below.depth--;
    fd = open_folder(tree, parent_fd, name);
    if (fd < 0 && errno == EXDEV && tree->other != NULL)
        (void)snprintf(tree->other, NAME_MAX + 1, "%s", name);
    if (fd < 0)
        return;
    look_at(&below, fd, NULL);
    (void)close(fd);
    if (tree->removes)
        (void)unlinkat(parent_fd, name, AT_REMOVEDIR);
}

/* Removes what is in the folder, or looks for something that may not be removed. */
static void look_at(const struct tree *tree, int fd, const char *kept)
{
    const struct dirent *entry;
    struct stat info;
    DIR *dir = own_folder_list(fd);

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (is_dots(entry->d_name) || (kept != NULL && strcmp(entry->d_name, kept) == 0) ||
            fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (!may_go(tree, info.st_uid) ||
            (tree->other != NULL && own_is_mount(fd, entry->d_name))) {
            if (tree->other != NULL)
                (void)snprintf(tree->other, NAME_MAX + 1, "%s", entry->d_name);
        } else if (S_ISDIR(info.st_mode)) {
            look_below(tree, fd, entry->d_name);
        } else if (tree->removes) {
            (void)unlinkat(fd, entry->d_name, 0);
        }
    }
    if (dir != NULL)
        (void)closedir(dir);
}

/* Each round removes all that is not too deep. */
static void remove_at(struct tree *tree, int fd, const char *kept)
{
    uint32_t moved = 0, before = UINT32_MAX;

    tree->top_fd = fd;
    tree->moved = &moved;
    for (uint32_t i = 0; i < ROUNDS_MAX && moved != before; i++) {
        before = moved;
        look_at(tree, fd, kept);
    }
    tree->moved = NULL;
}

static bool fill(struct tree *tree, int fd, bool removes)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return false;
    *tree = (struct tree){
        .owner = info.st_uid, .device = info.st_dev, .depth = DEPTH_MAX, .removes = removes};
    return true;
}

/* Opens the top for what open_folder does with it, unless something is mounted there: its owner and its device say
 * nothing then. */
static int open_top(int parent_fd, const char *name)
{
    const int fd = openat(parent_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat above, info;

    if (fd < 0 ||
        (!own_is_mount(fd, "") &&
         (parent_fd == AT_FDCWD ||
          (fstat(parent_fd, &above) == 0 && fstat(fd, &info) == 0 && above.st_dev == info.st_dev))))
        return fd;
    (void)close(fd);
    return -1;
}

void own_tree_remove(int parent_fd, const char *name)
{
    const int top = open_top(parent_fd, name);
    struct tree tree;
    char path[64];

    if (top < 0)
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", top);
    if (fill(&tree, top, true)) {
        if (access(path, R_OK | W_OK | X_OK) != 0)
            (void)chmod(path, 0700); /* refused by the kernel if it is not ours */
        remove_at(&tree, top, NULL);
    }
    (void)close(top);
    (void)unlinkat(parent_fd, name, AT_REMOVEDIR);
}

void own_tree_empty(int fd, const char *kept)
{
    struct tree tree;

    if (fill(&tree, fd, true))
        remove_at(&tree, fd, kept);
}

bool own_tree_is_ours(int parent_fd, const char *name, char other[NAME_MAX + 1])
{
    const int top = open_top(parent_fd, name);
    struct tree tree;

    (void)snprintf(other, NAME_MAX + 1, "%s", name);
    if (top < 0)
        return false;
    other[0] = '\0';
    if (fill(&tree, top, false)) {
        tree.other = other;
        look_at(&tree, top, NULL);
    }
    (void)close(top);
    return other[0] == '\0';
}
