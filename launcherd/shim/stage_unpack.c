#include "launcherd/shim/stage_unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/archive_library.h"
#include "common/limits.h"
#include "launcherd/process/run_error.h"
#include "launcherd/process/rundir.h"

#define BLOCK_BYTES (64u * 1024u)
#define ENTRIES_MAX 200000u
#define DISK_FLAGS                                                                                 \
    (ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_SECURE_SYMLINKS |               \
     ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS)

struct unpacking {
    struct archive_library lib;
    struct archive *from, *to;
};

/* Whether the archive is bad, and not the disk: libarchive's own errors are EILSEQ, EINVAL and -1
 * (archive.h). */
static bool is_bad_archive(int code)
{
    return code <= 0 || code == EILSEQ || code == EEXIST || code == ENOTEMPTY ||
           run_error_is_final(code);
}

static enum status archive_failed(const struct unpacking *u, struct archive *archive,
                                  struct err *err)
{
    const char *why = u->lib.error_string(archive);
    const int code = u->lib.get_errno(archive);
    const bool is_bad = is_bad_archive(code);

    if (why == NULL)
        why = is_bad ? "not a tar archive" : "it cannot be unpacked";
    if (is_bad || strstr(why, strerror(code)) != NULL)
        return err_set(err, is_bad ? STATUS_BAD_INPUT : STATUS_IO, code,
                       "the staged directory: %.180s", why);
    return err_set(err, STATUS_IO, code, "the staged directory: %.140s: %.60s", why,
                   strerror(code));
}

/* libarchive gives ARCHIVE_WARN when a write fails (archive_write_disk_posix.c, write_data_block), and
 * when there is more content than the header says. So for content a warning is a failure. */
static enum status copy_content(const struct unpacking *u, uint64_t *left, struct err *err)
{
    const void *bytes;
    size_t byte_count;
    la_int64_t offset;
    int rc;

    while ((rc = u->lib.read_data_block(u->from, &bytes, &byte_count, &offset)) == ARCHIVE_OK) {
        if (byte_count > *left)
            return err_set(err, STATUS_TOO_BIG, 0, "the staged directory: more than %u MiB",
                           STAGE_BYTES_MAX >> 20);
        *left -= byte_count;
        if (u->lib.write_data_block(u->to, bytes, byte_count, offset) != ARCHIVE_OK)
            return archive_failed(u, u->to, err);
    }
    return rc == ARCHIVE_EOF ? STATUS_OK : archive_failed(u, u->from, err);
}

/* Unpacks all entries into the current directory. A warning about a header that is read is a name that
 * the locale does not have. A warning about one that is written is an entry that was not made as
 * the archive says. */
static enum status copy_entries(const struct unpacking *u, struct err *err)
{
    struct archive_entry *entry;
    uint64_t left = STAGE_BYTES_MAX;
    enum status status = STATUS_OK;
    int rc = ARCHIVE_OK;

    for (uint32_t i = 0; status == STATUS_OK; i++) {
        rc = u->lib.read_next_header(u->from, &entry);
        if (rc == ARCHIVE_EOF)
            break;
        if (rc < ARCHIVE_WARN)
            return archive_failed(u, u->from, err);
        if (i == ENTRIES_MAX)
            return err_set(err, STATUS_TOO_BIG, 0, "the staged directory: more than %u files",
                           ENTRIES_MAX);
        u->lib.entry_set_perm(entry, u->lib.entry_perm(entry) & 0777);
        if (u->lib.write_header(u->to, entry) != ARCHIVE_OK)
            status = archive_failed(u, u->to, err);
        if (status == STATUS_OK && u->lib.entry_size(entry) > 0)
            status = copy_content(u, &left, err);
        if (status == STATUS_OK && u->lib.write_finish_entry(u->to) != ARCHIVE_OK)
            status = archive_failed(u, u->to, err);
    }
    return status;
}

static enum status extract(int tar_fd, struct err *err)
{
    struct unpacking u = {.from = NULL};
    enum status status = archive_library_open(&u.lib, "a job with --stage needs", err);

    if (status != STATUS_OK)
        return status;
    u.from = u.lib.read_new();
    u.to = u.lib.write_disk_new();
    if (u.from == NULL || u.to == NULL)
        status = err_set(err, STATUS_MEMORY, ENOMEM, "no memory to unpack the staged directory");
    else if (u.lib.read_support_format_tar(u.from) != ARCHIVE_OK ||
             u.lib.read_open_fd(u.from, tar_fd, BLOCK_BYTES) != ARCHIVE_OK)
        status = archive_failed(&u, u.from, err);
    else if (u.lib.write_disk_set_options(u.to, DISK_FLAGS) != ARCHIVE_OK)
        status = archive_failed(&u, u.to, err);
    else
        status = copy_entries(&u, err);
    if (u.to != NULL && u.lib.write_close(u.to) != ARCHIVE_OK && status == STATUS_OK)
        status = archive_failed(&u, u.to, err);
    (void)u.lib.read_free(u.from);
    (void)u.lib.write_free(u.to);
    return status;
}

/* Unpacks into the current directory. What a disk or a file server refuses after write() has taken it
 * shows only when it is synced; libarchive does not look at what close() says. After a crash of the
 * machine, too, a folder with its last name has its content. */
static enum status extract_and_sync(int tar_fd, struct err *err)
{
    const int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum status status = extract(tar_fd, err);

    if (status == STATUS_OK && (fd < 0 || syncfs(fd) != 0))
        status = err_set(err, STATUS_IO, errno, "the staged directory cannot be written: %s",
                         strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    return status;
}

enum status stage_make_dir(const char *dir, const struct account *account, struct err *err)
{
    return rundir_make_for(dir, account != NULL ? &account->uid : NULL,
                           account != NULL ? &account->gid : NULL, err);
}

enum status stage_unpack(const struct stage_source *source, struct err *err)
{
    enum status status;

    if (source->tar_fd < 0 || lseek(source->tar_fd, 0, SEEK_SET) != 0)
        return err_set(err, STATUS_IO, errno, "the staged directory cannot be read: %s",
                       strerror(errno));
    if (chdir(source->dir) != 0)
        return err_set(err, STATUS_IO, errno, "cannot enter %.180s: %s", source->dir,
                       strerror(errno));
    if (access("files", F_OK) == 0)
        return STATUS_OK;
    rundir_remove_all(AT_FDCWD, "files.part"); /* left by a start that was killed */
    if (mkdir("files.part", 0700) != 0 || chdir("files.part") != 0)
        return err_set(err, STATUS_IO, errno, "cannot make a folder in %.160s: %s", source->dir,
                       strerror(errno));
    status = extract_and_sync(source->tar_fd, err);
    if (status == STATUS_OK && (chdir(source->dir) != 0 || rename("files.part", "files") != 0))
        status = err_set(err, STATUS_IO, errno, "cannot rename a folder in %.160s: %s", source->dir,
                         strerror(errno));
    if (status != STATUS_OK && chdir(source->dir) == 0)
        rundir_remove_all(AT_FDCWD, "files.part"); /* it may have filled the disk */
    return status;
}
