#include "ddpctl/private_daemons.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/service.h"
#include "common/io/standard_open.h"

#define ROOM_BYTES_MIN (1u << 20)

extern char **environ;

enum status private_program(const char *bindir, const char *name, char path[PATH_MAX],
                            struct err *err)
{
    char own[PATH_MAX - 64];
    const char *base = bindir, *missing = standard_missing();
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);

    if (missing != NULL)
        return err_set(err, STATUS_SYSTEM, 0, "%s", missing);
    own[length > 0 ? length : 0] = '\0';
    if (strrchr(own, '/'))
        *strrchr(own, '/') = '\0';
    if (!base)
        base = own;
    for (int i = 0; i < 5; i++) {
        int bytes = i == 0   ? snprintf(path, PATH_MAX, "%s/%s", base, name)
                    : i == 1 ? snprintf(path, PATH_MAX, "%s/%s/%s", base, name, name)
                    : i == 2 ? snprintf(path, PATH_MAX, "%s/../%s/%s", base, name, name)
                    : i == 3 ? snprintf(path, PATH_MAX, "%s/../libexec/ddp/%s", base, name)
                             : snprintf(path, PATH_MAX, "%s/../sbin/%s", base, name);
        struct stat stat_of;

        if (bytes < PATH_MAX && stat(path, &stat_of) == 0 && S_ISREG(stat_of.st_mode) &&
            access(path, X_OK) == 0)
            return STATUS_OK;
    }
    return err_set(err, STATUS_NOT_FOUND, 0,
                   "%s is not to be found beside %.160s; name its folder with --bindir", name,
                   base);
}

enum status private_folder(const char *wanted, const char *option, char *whole, size_t whole_bytes,
                           struct err *err)
{
    char link[64];
    struct err why;
    ssize_t length;
    int fd;
    enum status status = own_folder_make(wanted, 0, 0700, &fd, &why);

    if (status != STATUS_OK)
        return err_set(err, status, why.code, "%s: %.200s", option, why.text);
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, whole, whole_bytes);
    (void)close(fd);
    if (length < 0)
        return err_set(err, STATUS_IO, errno, "%s: %.180s: %s", option, wanted, strerror(errno));
    if ((size_t)length == whole_bytes)
        return err_set(err, STATUS_TOO_BIG, 0, "%s: the path is too long", option);
    whole[length] = '\0';
    return STATUS_OK;
}

char **private_environ(char *more)
{
    static char starter[sizeof SERVICE_STARTER_VARIABLE + 16];
    size_t count = 0, kept = 0;
    char **ours;

    while (environ[count])
        count++;
    (void)snprintf(starter, sizeof starter, SERVICE_STARTER_VARIABLE "=%ld", (long)getpid());
    ours = calloc(count + 3, sizeof *ours);
    for (size_t i = 0; ours && i < count; i++)
        if (strncmp(environ[i], "DDP_", 4) != 0 || strncmp(environ[i], "DDP_LOG_", 8) == 0)
            ours[kept++] = environ[i];
    if (ours) {
        ours[kept++] = starter;
        ours[kept] = more;
    }
    return ours;
}

/* On a full disk the log lacks its last line, too. */
static void add_full_disk(const char *path, char *text, size_t text_bytes)
{
    const char *slash = strrchr(path, '/');
    const size_t used = strlen(text);
    char dir[PATH_MAX];
    struct statvfs room;
    unsigned long long free_bytes;

    (void)snprintf(dir, sizeof dir, "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
    if (statvfs(dir, &room) != 0)
        return;
    free_bytes = (unsigned long long)room.f_bavail * room.f_frsize;
    if (free_bytes < ROOM_BYTES_MIN)
        (void)snprintf(
            text + used, text_bytes - used,
            "%sthe disk of %.150s is full (%llu KiB are free): make room, or give another "
            "folder with TMPDIR or --state-dir",
            used > 0 ? "\n  " : "", dir, free_bytes / 1024);
}

static void last_line(const char *path, char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "re");
    char bytes[512];
    size_t length = 0, from;

    text[0] = '\0';
    if (!file)
        return;
    if (fseek(file, -(long)(sizeof bytes - 1), SEEK_END) < 0)
        (void)fseek(file, 0, SEEK_SET);
    length = fread(bytes, 1, sizeof bytes - 1, file);
    (void)fclose(file);
    while (length > 0 && bytes[length - 1] == '\n')
        length--;
    bytes[length] = '\0';
    for (from = length; from > 0 && bytes[from - 1] != '\n'; from--)
        ;
    (void)snprintf(text, text_bytes, "%s", bytes + from);
}

void private_last_line(const char *path, char *text, size_t text_bytes)
{
    last_line(path, text, text_bytes);
    add_full_disk(path, text, text_bytes);
}

void private_node_args(struct daemon *daemon, uint32_t slots, const char *gpus, const char *log_dir)
{
    daemon_arg(daemon, "--allow-root"); /* this launcherd runs only jobs of its own user */
    daemon_arg(daemon, "--slots");
    daemon_arg(daemon, "%u", slots);
    if (gpus[0]) {
        daemon_arg(daemon, "--gpus");
        daemon_arg(daemon, "%s", gpus);
    }
    if (log_dir[0]) {
        daemon_arg(daemon, "--log-dir");
        daemon_arg(daemon, "%s", log_dir);
        daemon_arg(daemon, "--keep-logs"); /* they are the user's: do not delete them */
        daemon_arg(daemon, "3660d");
    }
}
