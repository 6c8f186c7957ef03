#include "common/io/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/write_all.h"

#define PATH_BYTES_MAX 4096
#define TEXT_BYTES (KEY_URL_BYTES_MAX + 64u) /* spaces and line ends around the key */

static void hide_memory(void)
{
    (void)prctl(PR_SET_DUMPABLE, 0);
}

/* Reads to the end of the file, or with `one_line` to the end of the line, for keys pasted at a
 * terminal. */
static enum status read_text(int fd, bool one_line, const char *shown, char text[TEXT_BYTES],
                             struct err *err)
{
    size_t used = 0;
    ssize_t n;

    do {
        n = read(fd, text + used, TEXT_BYTES - 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EISDIR)
            return err_set(
                err, STATUS_IO, errno,
                "%.100s is a folder, no file with a key. On Kubernetes: the Secret has no "
                "entry for this node; make one (keys node NAME), then delete the pod",
                shown);
        if (n < 0)
            return err_set(err, STATUS_IO, errno, "read the key from %.150s: %s", shown,
                           strerror(errno));
        used += (size_t)n;
        text[used] = '\0';
    } while (n != 0 && used < TEXT_BYTES - 1 && !(one_line && strchr(text, '\n') != NULL));
    if (used == TEXT_BYTES - 1)
        return err_set(err, STATUS_BAD_INPUT, 0, "%.150s has more than a key", shown);
    return STATUS_OK;
}

static enum status read_key(int fd, bool one_line, const char *shown, struct key *key,
                            struct err *err)
{
    char text[TEXT_BYTES] = "";
    enum status status = read_text(fd, one_line, shown, text, err);

    if (status == STATUS_OK)
        status = key_parse(text, key, err);
    explicit_bzero(text, sizeof text);
    return status;
}

/* A file that somebody has named, such as a Secret of Kubernetes, which is a link of root: links are
 * followed, and a pipe is waited for. */
static enum status open_given(const char *path, int *fd, struct err *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return err_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, errno,
                       "the key file %.180s: %s", path, strerror(errno));
    return STATUS_OK;
}

/* A file that we have made ourselves. */
static enum status open_own(const char *path, int *fd, struct err *err)
{
    enum status status;
    struct err why;

    status = own_file_open(path, 0, O_RDONLY, 0, fd, &why);
    if (status == STATUS_OK)
        return STATUS_OK;
    return err_set(err, status, why.code, "the key file cannot be used: %.220s", why.text);
}

enum status key_argument(char *argument, struct key *key, struct err *err)
{
    enum status status;
    int fd = -1;

    hide_memory();
    if (strcmp(argument, "-") == 0)
        return read_key(STDIN_FILENO, true, "stdin", key, err);
    if (argument[0] == '@') {
        status = open_given(argument + 1, &fd, err);
        if (status != STATUS_OK)
            return status;
        status = read_key(fd, false, argument + 1, key, err);
        (void)close(fd);
        return status;
    }
    status = key_parse(argument, key, err);
    explicit_bzero(argument, strlen(argument));
    return status;
}

enum status key_file_read(const char *path, struct key *key, struct err *err)
{
    struct stat info;
    enum status status;
    int fd;

    status = open_own(path, &fd, err);
    if (status != STATUS_OK)
        return status;
    hide_memory();
    if (fstat(fd, &info) < 0)
        status = err_set(err, STATUS_IO, errno, "the key file %.180s: %s", path, strerror(errno));
    else if ((info.st_mode & 077) != 0)
        status = err_set(err, STATUS_REFUSED, 0,
                         "other users may read the key file %.120s (mode %04o): chmod 600 it, and "
                         "have the key rotated if one of them did",
                         path, (unsigned)(info.st_mode & 07777));
    else
        status = read_key(fd, false, path, key, err);
    (void)close(fd);
    return status;
}

/* Syncs the folder, so that the new name is durable, too. */
static void sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_BYTES_MAX] = ".";
    int fd;

    if (slash != NULL)
        (void)snprintf(parent, sizeof parent, "%.*s", slash == path ? 1 : (int)(slash - path),
                       path);
    fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    (void)close(fd);
}

enum status key_file_write(const char *path, const struct key *key, struct err *err)
{
    char url[KEY_URL_BYTES_MAX], text[KEY_URL_BYTES_MAX + 1], temp[PATH_BYTES_MAX];
    enum status status;
    struct err none;
    int fd;

    if (snprintf(temp, sizeof temp, "%s.new", path) >= (int)sizeof temp)
        return err_set(err, STATUS_TOO_BIG, 0, "the path of the key file is too long: %.120s",
                       path);
    status = own_file_make(temp, 0, 0600, &fd, err);
    if (status == STATUS_NOT_FOUND)
        return err_set(err, STATUS_IO, ENOENT, "create %.180s: no such folder", temp);
    if (status != STATUS_OK)
        return status;
    key_format(key, url);
    (void)snprintf(text, sizeof text, "%s\n", url);
    status = write_all(fd, text, strlen(text)) ? STATUS_OK : STATUS_IO;
    explicit_bzero(url, sizeof url);
    explicit_bzero(text, sizeof text);
    if (status != STATUS_OK || fsync(fd) < 0)
        status = err_set(err, STATUS_IO, errno, "write %.180s: %s", temp, strerror(errno));
    if (close(fd) < 0 && status == STATUS_OK)
        status = err_set(err, STATUS_IO, errno, "close %.180s: %s", temp, strerror(errno));
    if (status == STATUS_OK)
        status = own_file_rename(temp, path, 0, err);
    if (status == STATUS_OK)
        sync_parent(path);
    else
        (void)own_file_remove(temp, 0, &none);
    return status;
}
