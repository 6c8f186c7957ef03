#include "launcherd/process/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launcherd/process/clone_child.h"

#define FILE_BYTES_MAX 65536u
#define BASE "ddp" /* the folder of all groups */
#define TRY "try-" /* "try-PID-TIME"; earlier releases left the time out */
#define TRY_S 60   /* no try takes that long */

static bool is_group(const char *dir)
{
    const int fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool is_cgroup = false;
    struct statfs info;

    if (fd < 0)
        return false;
    is_cgroup = fstatfs(fd, &info) == 0 && info.f_type == CGROUP2_SUPER_MAGIC;
    close(fd);
    return is_cgroup;
}

static bool make_path(char path[PATH_MAX], const char *dir, const char *name)
{
    return snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

/* False: errno says why. */
static bool write_file(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX];
    if (!make_path(path, dir, name)) {
        errno = ENAMETOOLONG;
        return false;
    }
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    int code = errno;
    close(fd);
    errno = code;
    return done;
}

/* Reads the whole file. Files of /proc have no size, so they are read to the end. */
static bool read_path(const char *path, char *out, size_t out_bytes)
{
    size_t used = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    for (;;) {
        ssize_t got = read(fd, out + used, out_bytes - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(fd);
    out[used] = '\0';
    return true;
}

static bool read_file(const char *dir, const char *name, char *out, size_t out_bytes)
{
    char path[PATH_MAX];
    return make_path(path, dir, name) && read_path(path, out, out_bytes);
}

/* The number in the line "KEY NUMBER" of a flat keyed file. */
static uint64_t read_key(const char *dir, const char *name, const char *key)
{
    char text[4096], *rest = NULL;
    size_t bytes = strlen(key);
    if (!read_file(dir, name, text, sizeof text))
        return 0;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, key, bytes) == 0 && line[bytes] == ' ')
            return strtoull(line + bytes, NULL, 10);
    return 0;
}

static bool has_word(char *text, const char *word)
{
    char *rest = NULL;
    for (char *at = strtok_r(text, " \n", &rest); at != NULL; at = strtok_r(NULL, " \n", &rest))
        if (strcmp(at, word) == 0)
            return true;
    return false;
}

/* Whether the file, a list of controllers, names this one. */
static bool names(const char *dir, const char *file, const char *controller)
{
    char text[4096];
    return read_file(dir, file, text, sizeof text) && has_word(text, controller);
}

bool cgroup_has(const char *base, const char *controller)
{
    return names(base, "cgroup.subtree_control", controller);
}

/* Only where it changes something: for a write the kernel visits all groups below, also if it then refuses it. */
static void pass_on(const char *dir, const char *controller)
{
    char text[32];

    if (!names(dir, "cgroup.controllers", controller) || cgroup_has(dir, controller))
        return;
    (void)snprintf(text, sizeof text, "+%s", controller);
    (void)write_file(dir, "cgroup.subtree_control", text);
}

/* proc_pid_mountinfo(5): ID PARENT MAJ:MIN ROOT MOUNTPOINT OPTIONS [OPTIONAL...] - TYPE SOURCE ... */
static bool find_mount(char *text, char mount[PATH_MAX])
{
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char point[PATH_MAX];
        const char *dash = strstr(line, " - ");
        if (dash == NULL || strncmp(dash + 3, "cgroup2 ", 8) != 0)
            continue;
        if (sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1)
            continue;
        (void)snprintf(mount, PATH_MAX, "%s", point);
        return true;
    }
    return false;
}

/* The line "0::PATH" of /proc/self/cgroup. */
static bool find_own(char *text, char own[PATH_MAX])
{
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "0::/", 4) != 0 || strstr(line, "/../") != NULL)
            continue;
        (void)snprintf(own, PATH_MAX, "%s", strcmp(line + 3, "/") == 0 ? "" : line + 3);
        return true;
    }
    return false;
}

enum status cgroup_locate(const char *mountinfo, const char *self, bool is_root,
                          char parent[PATH_MAX], struct err *err)
{
    char *text = malloc(FILE_BYTES_MAX), mount[PATH_MAX], own[PATH_MAX] = "";
    enum status status = STATUS_OK;

    if (text == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory");
    if (!read_path(mountinfo, text, FILE_BYTES_MAX) || !find_mount(text, mount))
        status = err_set(err, STATUS_NOT_FOUND, 0, "no cgroup v2 is mounted");
    else if (!is_root && (!read_path(self, text, FILE_BYTES_MAX) || !find_own(text, own)))
        status = err_set(err, STATUS_NOT_FOUND, 0, "this process is in no cgroup v2");
    else if (snprintf(parent, PATH_MAX, "%s%s", mount, own) >= PATH_MAX)
        status = err_set(err, STATUS_TOO_BIG, 0, "the path of the own cgroup is too long");
    free(text);
    return status;
}

IN_CHILD static int be_there(void *nothing)
{
    (void)nothing;
    return 0;
}

/* 0, or the errno of a child that could neither be born in `dir` nor move there. */
static int try_child(const char *dir)
{
    int how = 0, fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    pid_t pid = fd >= 0 ? clone_child(fd, be_there, NULL, NULL) : -1;

    if (fd >= 0)
        close(fd);
    if (pid < 0)
        pid = fork();
    if (pid == 0)
        _exit(write_file(dir, "cgroup.procs", "0") ? 0 : errno);
    if (pid < 0)
        return errno;
    while (waitpid(pid, &how, 0) < 0)
        if (errno != EINTR)
            return errno;
    return WIFEXITED(how) ? WEXITSTATUS(how) : EIO;
}

/* Whether a group is one that a process of that name was killed in while it tried it out. It may be of another pid namespace,
 * but trying takes a moment only. */
static bool is_left(int base_fd, const char *name)
{
    struct stat info;
    char *end;
    long pid;

    if (strncmp(name, TRY, sizeof TRY - 1) != 0 || name[sizeof TRY - 1] < '1' ||
        name[sizeof TRY - 1] > '9')
        return false;
    pid = strtol(name + sizeof TRY - 1, &end, 10);
    return (end[0] == '\0' || end[0] == '-') && pid <= INT_MAX && kill((pid_t)pid, 0) != 0 &&
           errno == ESRCH && fstatat(base_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           time(NULL) - info.st_mtim.tv_sec > TRY_S;
}

void cgroup_sweep(const char *base)
{
    DIR *dir = is_group(base) ? opendir(base) : NULL;
    const struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (is_left(dirfd(dir), entry->d_name))
            (void)unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    if (dir != NULL)
        (void)closedir(dir);
}

/* Tries it out, because permissions, delegation, group types and the namespace all matter. */
static enum status try_base(const char *base, struct err *err)
{
    char dir[PATH_MAX], name[48];
    const struct cgroup_limits none = {0};
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME,
                        &now); /* a pid is used again, and other pid namespaces have the same */
    (void)snprintf(name, sizeof name, TRY "%d-%llx%08lx", (int)getpid(),
                   (unsigned long long)now.tv_sec, (unsigned long)now.tv_nsec);
    if (!make_path(dir, base, name))
        return err_set(err, STATUS_TOO_BIG, 0, "the path of the own cgroup is too long");
    enum status status = cgroup_make(dir, &none, err);
    if (status != STATUS_OK)
        return status;
    int code = try_child(dir);
    if (code != 0)
        status = err_set(err, STATUS_REFUSED, code, "no process can be moved to %.150s: %s", dir,
                         strerror(code));
    cgroup_remove(dir);
    return status;
}

enum status cgroup_find_base(char base[PATH_MAX], struct err *err)
{
    char parent[PATH_MAX];
    enum status status =
        cgroup_locate("/proc/self/mountinfo", "/proc/self/cgroup", geteuid() == 0, parent, err);
    if (status != STATUS_OK)
        return status;
    if (!make_path(base, parent, BASE))
        return err_set(err, STATUS_TOO_BIG, 0, "the path of the own cgroup is too long");
    if (mkdir(base, 0755) != 0 && errno != EEXIST)
        return err_set(err, STATUS_REFUSED, errno, "%.150s cannot be made: %s", base,
                       strerror(errno));
    static const char *const controllers[] = {"memory", "pids"};
    for (int i = 0; i < 2;
         i++) { /* one by one: one that cannot be passed on refuses the whole line */
        pass_on(parent, controllers[i]);
        pass_on(base, controllers[i]);
    }
    return try_base(base, err);
}

enum status cgroup_limit(const char *dir, const struct cgroup_limits *limits, struct err *err)
{
    char text[32];
    if (limits->memory_bytes > 0) {
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)limits->memory_bytes);
        if (!write_file(dir, "memory.max", text))
            return err_set(err, STATUS_SYSTEM, errno, "memory.max of %.150s cannot be set: %s", dir,
                           strerror(errno));
        (void)write_file(dir, "memory.swap.max", "0"); /* the file is missing without swap */
    }
    (void)write_file(dir, "memory.oom.group", "1"); /* a rank alone cannot go on */
    (void)snprintf(text, sizeof text, "%u", limits->pids);
    if (limits->pids > 0 && !write_file(dir, "pids.max", text) && errno != ENOENT)
        return err_set(err, STATUS_SYSTEM, errno, "pids.max of %.150s cannot be set: %s", dir,
                       strerror(errno));
    return STATUS_OK;
}

enum status cgroup_make(const char *dir, const struct cgroup_limits *limits, struct err *err)
{
    if (mkdir(dir, 0755) != 0)
        return err_set(err, STATUS_SYSTEM, errno, "the cgroup %.150s cannot be made: %s", dir,
                       strerror(errno));
    enum status status = cgroup_limit(dir, limits, err);
    if (status != STATUS_OK)
        cgroup_remove(dir);
    return status;
}

/* Whether the folder is a cgroup, and in one with the name of ours. Its path may come from a file of
 * another boot or another machine. */
static bool is_ours(const char *dir)
{
    return is_group(dir) && strstr(dir, "/" BASE "/") != NULL;
}

bool cgroup_kill(const char *dir)
{
    return is_ours(dir) && write_file(dir, "cgroup.kill", "1");
}

bool cgroup_is_populated(const char *dir)
{
    return read_key(dir, "cgroup.events", "populated") != 0;
}

uint64_t cgroup_oom_kills(const char *dir)
{
    return read_key(dir, "memory.events", "oom_kill");
}

void cgroup_remove(const char *dir)
{
    char ranks[PATH_MAX];
    if (!is_ours(dir))
        return;
    if (make_path(ranks, dir, CGROUP_RANKS))
        (void)rmdir(ranks);
    (void)rmdir(dir);
}

bool cgroup_parse_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGTP";
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9' || text[1] == 'x' || text[1] == 'X')
        return false;
    double value = strtod(text, &end);
    if (*end != '\0') {
        const char *unit = strchr(units, *end);
        if (unit == NULL)
            return false;
        value *= (double)(1ull << 10 * (unit - units + 1));
        end++;
        if (strcmp(end, "") != 0 && strcmp(end, "B") != 0 && strcmp(end, "iB") != 0)
            return false;
    }
    if (!(value >= 1 && value < 0x1p62))
        return false;
    *bytes = (uint64_t)value;
    return true;
}

void cgroup_format_size(uint64_t bytes, char *out, uint32_t out_bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    uint32_t unit = 0;
    for (; value >= 1024 && unit < 5; unit++)
        value /= 1024;
    (void)snprintf(out, out_bytes, "%.4g %s", value, units[unit]);
}
