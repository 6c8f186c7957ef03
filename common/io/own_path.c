#include "common/io/own_path.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define DAMAGED ".damaged"
#define DAMAGED_MAX 99 /* kept side by side */
#define LINKS_MAX 40u  /* as the kernel's */
#define RESERVED_MAX 3 /* of a walk: a folder, the next one, and one that its caller holds */
#define ACL_USER 0x02u
#define ACL_GROUP 0x08u
#define ACL_WRITE 0x02u
#define ACL_ENTRIES_MAX 64u

/* -- descriptors ------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    bool is_kept;
    int fds[RESERVED_MAX]; /* -1: in use by a call, or by others */
} reserve = {.mutex = PTHREAD_MUTEX_INITIALIZER, .fds = {-1, -1, -1}};

static void fill_reserve(void)
{
    for (int i = 0; i < RESERVED_MAX; i++)
        if (reserve.fds[i] < 0)
            reserve.fds[i] = open("/", O_PATH | O_CLOEXEC);
}

void own_reserve(void)
{
    (void)pthread_mutex_lock(&reserve.mutex);
    reserve.is_kept = true;
    fill_reserve();
    (void)pthread_mutex_unlock(&reserve.mutex);
}

static bool take_reserved(void)
{
    bool is_taken = false;

    (void)pthread_mutex_lock(&reserve.mutex);
    for (int i = 0; i < RESERVED_MAX && !is_taken; i++) {
        is_taken = reserve.fds[i] >= 0;
        if (is_taken)
            (void)close(reserve.fds[i]);
        if (is_taken)
            reserve.fds[i] = -1;
    }
    (void)pthread_mutex_unlock(&reserve.mutex);
    return is_taken;
}

/* Fills the reserve again as far as that is possible. Keeps errno. */
static void restore_reserve(void)
{
    const int code = errno;

    (void)pthread_mutex_lock(&reserve.mutex);
    if (reserve.is_kept)
        fill_reserve();
    (void)pthread_mutex_unlock(&reserve.mutex);
    errno = code;
}

/* openat, with a descriptor of the reserve when there is no other. */
static int open_at(int parent_fd, const char *name, int flags, mode_t mode)
{
    int fd = openat(parent_fd, name, flags | O_CLOEXEC, mode);

    while (fd < 0 && (errno == EMFILE || errno == ENFILE) && take_reserved())
        fd = openat(parent_fd, name, flags | O_CLOEXEC, mode);
    return fd;
}

/* Closes, unless it is -1. Keeps errno. */
static void close_it(int fd)
{
    const int code = errno;

    if (fd >= 0)
        (void)close(fd);
    errno = code;
}

/* -- whose is it ------------------------------------------------------------------------------- */

bool own_is_trusted(uid_t uid)
{
    struct stat root;

    /* In a user namespace what is root's outside may belong to "nobody", "/" as well. */
    return uid == 0 || uid == geteuid() || (stat("/", &root) == 0 && uid == root.st_uid);
}

/* As the attribute has them, acl(5). */
struct acl {
    uint32_t version;
    struct acl_entry {
        uint16_t tag, permissions;
        uint32_t id;
    } entries[ACL_ENTRIES_MAX];
};

/* Whether an access list lets others write. Only the mask of one stands in the group's bits, and chmod go-w clears it.
 * A list that is too long to be looked at counts as one that does. */
static bool is_listed(int fd)
{
    struct acl acl;
    char path[48];
    ssize_t bytes;
    bool is_found;

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd); /* `fd` may be one of O_PATH */
    bytes = getxattr(path, "system.posix_acl_access", &acl, sizeof acl);
    is_found = bytes < 0 && errno == ERANGE;
    for (size_t i = 0;
         bytes > 0 && sizeof acl.version + (i + 1) * sizeof acl.entries[0] <= (size_t)bytes; i++) {
        const struct acl_entry *entry = &acl.entries[i];
        const bool is_other = (entry->tag == ACL_USER && !own_is_trusted(entry->id)) ||
                              (entry->tag == ACL_GROUP && entry->id != getegid());

        is_found = is_found || (is_other && (entry->permissions & ACL_WRITE) != 0);
    }
    return is_found;
}

bool own_folder_is_private(const struct stat *info, int fd)
{
    if (!S_ISDIR(info->st_mode) || (info->st_mode & S_IWOTH) != 0)
        return false;
    return (info->st_mode & S_IWGRP) == 0 || (info->st_gid == getegid() && !is_listed(fd));
}

bool own_folder_is_ours(const struct stat *info, int fd)
{
    return info->st_uid == geteuid() && own_folder_is_private(info, fd);
}

static enum status refuse_folder(const char *path, const struct stat *info, struct err *err)
{
    if (S_ISLNK(info->st_mode))
        return err_set(err, STATUS_REFUSED, 0,
                       "%.140s is a symbolic link (of user %u), where a folder of ours belongs: it "
                       "is not followed",
                       path, (unsigned)info->st_uid);
    if (!S_ISDIR(info->st_mode))
        return err_set(err, STATUS_REFUSED, 0, "%.180s is no folder", path);
    if (info->st_uid != geteuid())
        return err_set(err, STATUS_REFUSED, 0, "the folder %.140s belongs to user %u and not to us",
                       path, (unsigned)info->st_uid);
    return err_set(err, STATUS_REFUSED, 0,
                   "other users may write in the folder %.140s (mode %04o): make it private, with "
                   "chmod go-w",
                   path, (unsigned)(info->st_mode & 07777));
}

static enum status failed(const char *doing, const char *path, struct err *err)
{
    return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                   "cannot %s %.180s: %s", doing, path, strerror(errno));
}

/* -- the way ----------------------------------------------------------------------------------- */

struct way {
    const char *path; /* for messages */
    uint32_t ours;
    bool makes;
    mode_t mode;
    int fd;
    uint32_t links;
    char rest[PATH_MAX]; /* what is still to be followed */
    char name[NAME_MAX + 1];
};

/* The first name in `text`, and its length; 0: there is none. "." is no name. */
static size_t first_name(const char **text)
{
    size_t length;

    for (;;) {
        *text += strspn(*text, "/");
        length = strcspn(*text, "/");
        if (length != 1 || (*text)[0] != '.')
            return length;
        *text += 1;
    }
}

static uint32_t count_names(const char *text)
{
    uint32_t count = 0;
    size_t length;

    while ((length = first_name(&text)) > 0) {
        text += length;
        count++;
    }
    return count;
}

static enum status begin(struct way *way, const char *path, struct err *err)
{
    if (snprintf(way->rest, sizeof way->rest, "%s", path) >= (int)sizeof way->rest)
        return err_set(err, STATUS_TOO_BIG, 0, "the path %.120s... is too long", path);
    close_it(way->fd);
    way->fd = open_at(AT_FDCWD, path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY, 0);
    return way->fd >= 0 ? STATUS_OK : failed("open", path, err);
}

/* Moves the first name of the rest to `name`. False: there is none. */
static bool next_name(struct way *way, struct err *err, enum status *status)
{
    const char *at = way->rest;
    const size_t length = first_name(&at);

    *status = STATUS_OK;
    if (length == 0)
        return false;
    if (length > NAME_MAX) {
        *status = err_set(err, STATUS_TOO_BIG, 0, "%.120s...: a name is too long", way->path);
        return false;
    }
    memcpy(way->name, at, length);
    way->name[length] = '\0';
    memmove(way->rest, at + length, strlen(at + length) + 1);
    return true;
}

/* Puts what the link `fd` says before the rest. */
static enum status follow(struct way *way, int fd, const struct stat *info, struct err *err)
{
    char target[PATH_MAX], whole[PATH_MAX];
    ssize_t length;

    if (!own_is_trusted(info->st_uid))
        return err_set(err, STATUS_REFUSED, 0,
                       "%.120s: \"%.40s\" is a symbolic link of user %u: it is not followed",
                       way->path, way->name, (unsigned)info->st_uid);
    length = readlinkat(fd, "", target, sizeof target - 1);
    if (length <= 0 || ++way->links > LINKS_MAX) {
        errno = length <= 0 ? errno : ELOOP;
        return failed("follow", way->path, err);
    }
    target[length] = '\0';
    if (snprintf(whole, sizeof whole, "%s/%s", target, way->rest) >= (int)sizeof whole)
        return err_set(err, STATUS_TOO_BIG, 0, "the path %.120s... is too long", way->path);
    if (target[0] == '/')
        return begin(way, whole, err);
    memcpy(way->rest, whole, strlen(whole) + 1);
    return STATUS_OK;
}

/* Takes the step to `way->name`. */
static enum status step(struct way *way, struct err *err)
{
    const int flags = O_PATH | O_NOFOLLOW;
    const bool must_be_ours = count_names(way->rest) < way->ours;
    enum status status = STATUS_OK;
    struct stat info = {0};
    int fd = open_at(way->fd, way->name, flags, 0);

    if (fd < 0 && errno == ENOENT && way->makes &&
        (mkdirat(way->fd, way->name, way->mode) == 0 || errno == EEXIST))
        fd = open_at(way->fd, way->name, flags, 0);
    if (fd < 0 || fstat(fd, &info) != 0)
        status = failed(way->makes ? "make the folder" : "open", way->path, err);
    else if (S_ISLNK(info.st_mode) && !must_be_ours)
        status = follow(way, fd, &info, err);
    else if (must_be_ours && !own_folder_is_ours(&info, fd))
        status = refuse_folder(way->path, &info, err);
    else if (!S_ISLNK(info.st_mode) && !S_ISDIR(info.st_mode))
        status = err_set(err, STATUS_IO, ENOTDIR, "cannot open %.120s: \"%.40s\" is no folder",
                         way->path, way->name);
    if (status != STATUS_OK || S_ISLNK(info.st_mode)) {
        close_it(fd);
        return status;
    }
    close_it(way->fd);
    way->fd = fd;
    return STATUS_OK;
}

/* The steps to the folders that must be ours, as one call, which the kernel refuses if there is a link: most ways have none,
 * and each step would take three calls. False: nothing was done, and the steps find out why. */
static bool leap(struct way *way)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_NO_SYMLINKS};
    const char *rest = way->path;
    char before[PATH_MAX];

    for (uint32_t left = count_names(rest); left > way->ours; left--) {
        const size_t length = first_name(&rest);

        rest += length;
    }
    if (rest == way->path || strlen(way->path) >= sizeof before)
        return false;
    (void)snprintf(before, sizeof before, "%.*s", (int)(rest - way->path), way->path);
    way->fd = (int)syscall(SYS_openat2, AT_FDCWD, before, &how, sizeof how);
    if (way->fd < 0)
        return false;
    (void)snprintf(way->rest, sizeof way->rest, "%s", rest);
    return true;
}

static enum status walk(struct way *way, int *fd, struct err *err)
{
    enum status status = leap(way) ? STATUS_OK : begin(way, way->path, err);

    while (status == STATUS_OK && next_name(way, err, &status))
        status = step(way, err);
    if (status != STATUS_OK)
        close_it(way->fd);
    *fd = status == STATUS_OK ? way->fd : -1;
    restore_reserve();
    return status;
}

enum status own_folder_open(const char *path, uint32_t ours, int *fd, struct err *err)
{
    struct way way = {.path = path, .ours = ours, .fd = -1};

    return walk(&way, fd, err);
}

enum status own_folder_make(const char *path, uint32_t ours, mode_t mode, int *fd, struct err *err)
{
    struct way way = {.path = path, .ours = ours, .makes = true, .mode = mode, .fd = -1};

    return walk(&way, fd, err);
}

bool own_is_mount(int dir_fd, const char *name)
{
    struct statx info;

    return statx(dir_fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &info) ==
               0 &&
           (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

enum status own_folder_open_at(int parent_fd, const char *name, int *fd, struct err *err)
{
    struct stat info = {0};
    enum status status;

    *fd = open_at(parent_fd, name, O_PATH | O_NOFOLLOW, 0);
    if (*fd < 0)
        return failed("open", name, err);
    if (fstat(*fd, &info) != 0 || !own_folder_is_ours(&info, *fd))
        status = refuse_folder(name, &info, err);
    else if (own_is_mount(*fd, ""))
        status = err_set(err, STATUS_REFUSED, 0,
                         "%.180s is a mount point: what is mounted there is not ours", name);
    else
        return STATUS_OK;
    close_it(*fd);
    *fd = -1;
    return status;
}

DIR *own_folder_list(int fd)
{
    const int list_fd = open_at(fd, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *dir = list_fd < 0 ? NULL : fdopendir(list_fd);

    if (dir == NULL)
        close_it(list_fd);
    return dir;
}

/* -- files ------------------------------------------------------------------------------------- */

/* Opens the folder of `path`; `*name` is the rest. */
static enum status open_parent(const char *path, uint32_t ours, int *fd, const char **name,
                               struct err *err)
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_MAX] = ".";

    *name = slash == NULL ? path : slash + 1;
    if ((*name)[0] == '\0')
        return err_set(err, STATUS_BAD_INPUT, 0, "\"%.180s\" is no path of a file", path);
    if (slash != NULL && snprintf(parent, sizeof parent, "%.*s", (int)(slash - path) + 1, path) >=
                             (int)sizeof parent)
        return err_set(err, STATUS_TOO_BIG, 0, "the path %.120s... is too long", path);
    return own_folder_open(parent, ours, fd, err);
}

static enum status check_file(const char *path, uint32_t ours, const struct stat *info,
                              struct err *err)
{
    if (!S_ISREG(info->st_mode))
        return err_set(err, STATUS_REFUSED, 0, "%.180s is no plain file", path);
    if (info->st_uid != geteuid())
        return err_set(err, STATUS_REFUSED, 0, "%.160s belongs to user %u and not to us", path,
                       (unsigned)info->st_uid);
    if (ours == 0 && info->st_nlink > 1)
        return err_set(err, STATUS_REFUSED, 0,
                       "%.90s has a second name (a hard link, as after cp -al): it may be another "
                       "file of ours. Remove that copy, or make it anew with cp -a",
                       path);
    return STATUS_OK;
}

enum status own_file_open(const char *path, uint32_t ours, int flags, mode_t mode, int *fd,
                          struct err *err)
{
    const char *name;
    struct stat info;
    int parent_fd;
    enum status status = open_parent(path, ours, &parent_fd, &name, err);

    assert((flags & O_TRUNC) == 0); /* it would act before the checks */
    *fd = -1;
    if (status != STATUS_OK)
        return status;
    /* O_NONBLOCK: a pipe is refused, and not waited for. */
    *fd = open_at(parent_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode);
    if (*fd < 0 && errno == ELOOP)
        status = err_set(err, STATUS_REFUSED, ELOOP,
                         "%.160s is a symbolic link: it is not followed", path);
    else if (*fd < 0 || fstat(*fd, &info) != 0)
        status = failed("open", path, err);
    else
        status = check_file(path, ours, &info, err);
    close_it(parent_fd);
    if (status != STATUS_OK) {
        close_it(*fd);
        *fd = -1;
    }
    restore_reserve();
    return status;
}

enum status own_file_make(const char *path, uint32_t ours, mode_t mode, int *fd, struct err *err)
{
    const char *name;
    int parent_fd;
    enum status status = open_parent(path, ours, &parent_fd, &name, err);

    *fd = -1;
    if (status != STATUS_OK)
        return status;
    (void)unlinkat(parent_fd, name, 0); /* left by a process that was killed */
    *fd = open_at(parent_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    if (*fd < 0)
        status = err_set(err, STATUS_IO, errno, "cannot make %.180s: %s", path, strerror(errno));
    close_it(parent_fd);
    restore_reserve();
    return status;
}

enum status own_file_rename(const char *from, const char *to, uint32_t ours, struct err *err)
{
    const char *from_name, *to_name;
    int from_fd, to_fd = -1;
    enum status status = open_parent(from, ours, &from_fd, &from_name, err);

    if (status != STATUS_OK)
        return status;
    status = open_parent(to, ours, &to_fd, &to_name, err);
    if (status == STATUS_OK && renameat(from_fd, from_name, to_fd, to_name) != 0)
        status = err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                         "cannot rename %.90s to %.90s: %s", from, to, strerror(errno));
    close_it(from_fd);
    close_it(to_fd);
    restore_reserve();
    return status;
}

enum status own_file_put_aside(const char *path, const char *end, uint32_t ours, struct err *err)
{
    char to[PATH_MAX];
    const char *name;
    int parent_fd;
    enum status status = open_parent(path, ours, &parent_fd, &name, err);

    if (status != STATUS_OK)
        return status;
    (void)snprintf(to, sizeof to, "%.4000s%s", name, end);
    if (renameat2(parent_fd, name, parent_fd, to, RENAME_NOREPLACE) != 0)
        status =
            errno == EEXIST
                ? err_set(err, STATUS_CONFLICT, EEXIST,
                          "%.180s cannot be kept as %.80s, which is there already: look at both, "
                          "and move one away",
                          path, to)
                : failed("rename", path, err);
    close_it(parent_fd);
    restore_reserve();
    return status;
}

enum status own_file_keep_damaged(const char *path, uint32_t ours, struct err *err)
{
    char end[sizeof DAMAGED + 8] = DAMAGED;
    struct err why;
    enum status status = own_file_put_aside(path, end, ours, &why);

    for (int i = 2; status == STATUS_CONFLICT && i <= DAMAGED_MAX; i++) {
        (void)snprintf(end, sizeof end, DAMAGED "-%d", i);
        status = own_file_put_aside(path, end, ours, &why);
    }
    return status == STATUS_OK ? STATUS_OK : err_set(err, status, why.code, "%s", why.text);
}

enum status own_file_remove(const char *path, uint32_t ours, struct err *err)
{
    const char *name;
    int parent_fd;
    enum status status = open_parent(path, ours, &parent_fd, &name, err);

    if (status != STATUS_OK)
        return status;
    if (unlinkat(parent_fd, name, 0) != 0)
        status = failed("remove", path, err);
    close_it(parent_fd);
    restore_reserve();
    return status;
}
