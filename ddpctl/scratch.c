#include "ddpctl/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/own_tree.h"
#include "common/io/write_all.h"

#define NAME "ddp-XXXXXX"
#define PREFIX "ddp-"
#define LOCK "standalone.lock"
#define HOST_BYTES 320
#define ID_BYTES 64

static const char *temp_dir(void)
{
    const char *temp = getenv("TMPDIR");

    return temp && *temp ? temp : "/tmp";
}

/* This machine as in the lock file: its name, and its id in a second line, since a name may be that of two machines. */
static void own_name(char name[HOST_BYTES])
{
    const int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
    char id[ID_BYTES] = "";
    size_t length;

    if (fd >= 0 && read(fd, id, sizeof id - 1) < 0)
        id[0] = '\0';
    if (fd >= 0)
        (void)close(fd);
    id[strcspn(id, "\n")] = '\0';
    if (gethostname(name, HOST_BYTES - ID_BYTES) != 0)
        name[0] = '\0';
    name[HOST_BYTES - ID_BYTES - 1] = '\0';
    length = strlen(name);
    (void)snprintf(name + length, HOST_BYTES - length, "\n%s", id);
}

/* We lock the file before we give it its final name. So if a file of that name is not locked, its
 * owner is gone. */
static int make_lock(const char *dir)
{
    char made[PATH_MAX], path[PATH_MAX], host[HOST_BYTES];
    int fd;

    (void)snprintf(made, sizeof made, "%s/" LOCK ".new", dir);
    (void)snprintf(path, sizeof path, "%s/" LOCK, dir);
    fd = open(made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    own_name(host);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && write_all(fd, host, strlen(host)) &&
        rename(made, path) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

enum status scratch_make(struct scratch *scratch, struct err *err)
{
    char dir[SCRATCH_PATH_BYTES];

    *scratch = (struct scratch){.lock_fd = -1};
    if (snprintf(dir, sizeof dir, "%s/" NAME, temp_dir()) >= (int)sizeof dir || !mkdtemp(dir))
        return err_set(err, STATUS_IO, errno,
                       "make a directory under %.100s: %s; TMPDIR names another place", temp_dir(),
                       strerror(errno));
    (void)snprintf(scratch->dir, sizeof scratch->dir, "%s", dir);
    scratch->lock_fd = make_lock(dir);
    if (scratch->lock_fd >= 0)
        return STATUS_OK;
    return err_set(err, STATUS_IO, errno, "make a lock in %.180s: %s", dir, strerror(errno));
}

/* Whether nothing but the lock file is in the folder; else `other` is the name of something. */
static bool is_emptied(int fd, char other[NAME_MAX + 1])
{
    DIR *dir = own_folder_list(fd);
    const struct dirent *entry;
    bool is_empty = true;

    (void)snprintf(other, NAME_MAX + 1, "?");
    if (dir == NULL)
        return false;
    errno = 0;
    while (is_empty && (entry = readdir(dir)) != NULL) {
        is_empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                   strcmp(entry->d_name, LOCK) == 0;
        if (!is_empty)
            (void)snprintf(other, NAME_MAX + 1, "%s", entry->d_name);
    }
    is_empty = is_empty && errno == 0;
    (void)closedir(dir);
    return is_empty;
}

/* Removes the folder `name` of `parent_fd`, if it is ours. False: it stays, and `other` is the name of
 * something in it that does. The lock file is removed last, and only when all else is gone: the free
 * lock tells the next run that the folder's owner is gone. */
static bool remove_tree(int parent_fd, const char *name, char other[NAME_MAX + 1])
{
    char deeper[NAME_MAX + 1];
    bool is_gone = false;
    struct err none;
    int fd;

    (void)snprintf(other, NAME_MAX + 1, "?");
    if (own_folder_open_at(parent_fd, name, &fd, &none) != STATUS_OK)
        return false;
    own_tree_empty(fd, LOCK);
    if (is_emptied(fd, other)) {
        (void)unlinkat(fd, LOCK, 0);
        is_gone = unlinkat(parent_fd, name, AT_REMOVEDIR) == 0;
    } else if (!own_tree_is_ours(parent_fd, name, deeper)) {
        (void)snprintf(other, NAME_MAX + 1, "%s", deeper); /* what holds the rest */
    }
    (void)close(fd);
    return is_gone;
}

void scratch_remove(struct scratch *scratch)
{
    const char *slash = strrchr(scratch->dir, '/');
    char parent[PATH_MAX], other[NAME_MAX + 1];
    int parent_fd;

    if (slash == NULL)
        return;
    (void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - scratch->dir) + 1, scratch->dir);
    parent_fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent_fd >= 0) {
        (void)remove_tree(parent_fd, slash + 1, other); /* the next run tells what stays */
        (void)close(parent_fd);
    }
    if (scratch->lock_fd >= 0)
        (void)close(scratch->lock_fd);
    *scratch = (struct scratch){.lock_fd = -1};
}

/* -- folders that other runs have left --------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void keeps(struct scratch_swept *swept,
                                                        const char *format, ...)
{
    va_list args;

    if (swept->kept_count++ > 0)
        return;
    va_start(args, format);
    (void)vsnprintf(swept->kept, sizeof swept->kept, format, args);
    va_end(args);
}

/* On a file system that nodes share, a lock may exist only on its own node (NFS with local_lock,
 * Lustre with localflock), and a socket always does. So a folder in use on another node looks
 * unused from here. A lock that names no machine does not say that it is of this one. */
static bool is_of_this_machine(int lock_fd, const char *name, struct scratch_swept *swept)
{
    char host[HOST_BYTES], own[HOST_BYTES];
    const ssize_t bytes = pread(lock_fd, host, sizeof host - 1, 0);

    own_name(own);
    host[bytes > 0 ? bytes : 0] = '\0';
    if (host[0] == '\0')
        keeps(swept,
              "%.120s/%s stays: its " LOCK " %s, so a run on another machine may use it; remove it "
              "by hand if none does",
              temp_dir(), name, bytes < 0 ? strerror(errno) : "names no machine");
    if (strchr(host, '\n') == NULL)
        own[strcspn(own, "\n")] = '\0'; /* of a release that wrote the name only */
    return host[0] != '\0' && strcmp(host, own) == 0;
}

/* Takes the lock of a folder that may be one of ours; -1: it is not, or it is in use. */
static int take_lock(int parent_fd, const char *name, struct scratch_swept *swept)
{
    struct stat of_lock;
    struct err none;
    int dir_fd, fd;

    if (own_folder_open_at(parent_fd, name, &dir_fd, &none) != STATUS_OK)
        return -1;
    fd = openat(dir_fd, LOCK, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    (void)close(dir_fd);
    if (fd >= 0 && fstat(fd, &of_lock) == 0 && S_ISREG(of_lock.st_mode) &&
        of_lock.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        is_of_this_machine(fd, name, swept))
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* Whether a process listens on this socket, or may: also true if we cannot find out. */
static bool is_listened_on(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    bool is_free;
    int fd;

    if (strlen(path) >= sizeof address.sun_path)
        return true;
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    is_free =
        connect(fd, (struct sockaddr *)&address, sizeof address) != 0 && errno == ECONNREFUSED;
    (void)close(fd);
    return !is_free;
}

/* Daemons end with their ddpctl. Shims end with their launcherd, or a little later when their lease
 * is over. As long as one of these runs, the folder is in use. */
static bool is_in_use(const char *dir)
{
    char pattern[PATH_MAX + 64];
    glob_t found = {0};
    bool is_used = false;

    (void)snprintf(pattern, sizeof pattern, "%s/{rendezvous.sock,node*/run/*/shim.sock}", dir);
    if (glob(pattern, GLOB_BRACE | GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !is_used; i++)
            is_used = is_listened_on(found.gl_pathv[i]);
    globfree(&found);
    return is_used;
}

/* Removes a folder whose lock we hold. */
static void sweep_one(int parent_fd, const char *name, struct scratch_swept *swept)
{
    char path[PATH_MAX], other[NAME_MAX + 1];

    if (snprintf(path, sizeof path, "%s/%s", temp_dir(), name) >= (int)sizeof path ||
        is_in_use(path))
        return;
    if (remove_tree(parent_fd, name, other))
        swept->removed_count++;
    else
        keeps(
            swept,
            "%.120s/%s, of an earlier run that was killed, cannot be removed as a whole: \"%.60s\" "
            "in it stays; look at it, and remove the folder by hand",
            temp_dir(), name, other);
}

void scratch_sweep(struct scratch_swept *swept)
{
    DIR *dir = opendir(temp_dir());

    *swept = (struct scratch_swept){.removed_count = 0};
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        int lock_fd;

        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0 ||
            strlen(entry->d_name) != sizeof NAME - 1)
            continue;
        lock_fd = take_lock(dirfd(dir), entry->d_name, swept);
        if (lock_fd < 0)
            continue;
        sweep_one(dirfd(dir), entry->d_name, swept);
        (void)close(lock_fd);
    }
    if (dir)
        (void)closedir(dir);
}
