/* Files of a .tar.gz. See unpack.h. */
#include "worker/data/fetch/unpack.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/archive_library.h"
#include "worker/data/fileio.h"

enum { READ_BYTES = 65536, NAMES_MAX = 32 };

static const int64_t file_bytes_max = 1 << 30;

struct unpack {
    struct archive_library lib;
    struct archive *archive;
    const char *path, *dir, *folder;
    const char *const *names;
    bool is_there[NAMES_MAX];
};

static enum status path_of(const struct unpack *unpack, const char *before, const char *name,
                           const char *after, char *path, struct err *err)
{
    int n =
        snprintf(path, PATH_MAX, "%s/%s/%s%s%s", unpack->dir, unpack->folder, before, name, after);

    return n > 0 && n < PATH_MAX
               ? STATUS_OK
               : err_set(err, STATUS_TOO_BIG, 0, "%.100s: the path is too long", unpack->dir);
}

static enum status damaged(const struct unpack *unpack, struct err *err)
{
    const char *why = unpack->lib.error_string(unpack->archive);

    return err_set(err, STATUS_BAD_INPUT, 0, "%.150s cannot be unpacked: %.60s", unpack->path,
                   why != NULL ? why : "damaged");
}

/* The index of the file in the list of wanted files; -1: not wanted. */
static int wanted(const struct unpack *unpack, struct archive_entry *entry)
{
    const char *name = unpack->lib.entry_pathname(entry);
    const size_t folder_bytes = strlen(unpack->folder);

    if (name == NULL || unpack->lib.entry_filetype(entry) != AE_IFREG ||
        unpack->lib.entry_hardlink(entry) != NULL ||
        strncmp(name, unpack->folder, folder_bytes) != 0 || name[folder_bytes] != '/')
        return -1;
    for (int i = 0; unpack->names[i] != NULL; i++)
        if (strcmp(name + folder_bytes + 1, unpack->names[i]) == 0)
            return i;
    return -1;
}

static enum status copy_bytes(const struct unpack *unpack, int fd, const char *to, struct err *err)
{
    char bytes[READ_BYTES];
    la_ssize_t n;
    int64_t total = 0;

    while ((n = unpack->lib.read_data(unpack->archive, bytes, sizeof bytes)) > 0) {
        enum status status;

        total += n;
        if (total > file_bytes_max)
            return err_set(err, STATUS_TOO_BIG, 0, "%.180s: over 1 GiB", to);
        status = fileio_write(fd, bytes, (uint64_t)n, err);
        if (status != STATUS_OK) {
            int code = errno;
            return err_set(err, status, code, "%.180s: cannot write: %s", to, strerror(code));
        }
    }
    return n < 0 ? damaged(unpack, err) : STATUS_OK;
}

static enum status take_file(const struct unpack *unpack, const char *name, struct err *err)
{
    char part[PATH_MAX], whole[PATH_MAX], folder[PATH_MAX];
    int fd = -1;
    enum status status = path_of(unpack, ".", name, ".part", part, err);

    if (status == STATUS_OK)
        status = path_of(unpack, "", name, "", whole, err);
    if (status == STATUS_OK)
        status = path_of(unpack, "", "", "", folder, err);
    if (status != STATUS_OK || access(whole, F_OK) == 0) /* it is never replaced */
        return status;
    (void)unlink(part); /* left by an earlier run that was interrupted */
    status = fileio_create(part, &fd, err);
    if (status != STATUS_OK)
        return status;
    status = copy_bytes(unpack, fd, whole, err);
    if (status == STATUS_OK)
        status = fileio_finish(fd, part, err);
    else
        (void)close(fd);
    if (status == STATUS_OK)
        status = fileio_rename(part, whole, folder, err);
    if (status != STATUS_OK)
        (void)unlink(part);
    return status;
}

static enum status take_files(struct unpack *unpack, struct err *err)
{
    struct archive_entry *entry;
    enum status status = STATUS_OK;
    int rc;

    while ((rc = unpack->lib.read_next_header(unpack->archive, &entry)) != ARCHIVE_EOF) {
        int number;

        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return damaged(unpack, err);
        number = wanted(unpack, entry);
        if (number < 0)
            continue;
        status = take_file(unpack, unpack->names[number], err);
        if (status != STATUS_OK)
            return status;
        unpack->is_there[number] = true;
    }
    for (int i = 0; unpack->names[i] != NULL; i++)
        if (!unpack->is_there[i])
            return err_set(err, STATUS_BAD_INPUT, 0, "%.150s has no %s/%s", unpack->path,
                           unpack->folder, unpack->names[i]);
    return STATUS_OK;
}

enum status unpack_files(const char *archive_path, const char *dir, const char *folder,
                         const char *const *names, struct err *err)
{
    struct unpack unpack = {.path = archive_path, .dir = dir, .folder = folder, .names = names};
    char made[PATH_MAX];
    enum status status = path_of(&unpack, "", "", "", made, err);

    if (status == STATUS_OK)
        status = archive_library_open(&unpack.lib, "--fetch needs", err);
    if (status != STATUS_OK)
        return status;
    if (mkdir(made, 0777) != 0 && errno != EEXIST)
        return err_set(err, STATUS_IO, errno, "%.180s: cannot make the folder: %s", made,
                       strerror(errno));
    unpack.archive = unpack.lib.read_new();
    if (unpack.archive == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%.150s: no memory to unpack it", archive_path);
    if (unpack.lib.read_support_format_tar(unpack.archive) != ARCHIVE_OK ||
        unpack.lib.read_support_filter_gzip(unpack.archive) != ARCHIVE_OK ||
        unpack.lib.read_open_filename(unpack.archive, archive_path, READ_BYTES) != ARCHIVE_OK)
        status = damaged(&unpack, err);
    else
        status = take_files(&unpack, err);
    (void)unpack.lib.read_free(unpack.archive);
    return status;
}

bool unpack_is_done(const char *dir, const char *folder, const char *const *names)
{
    const struct unpack unpack = {.dir = dir, .folder = folder};
    char path[PATH_MAX];

    for (int i = 0; names[i] != NULL; i++)
        if (path_of(&unpack, "", names[i], "", path, NULL) != STATUS_OK || access(path, F_OK) != 0)
            return false;
    return true;
}
