#include "launcherd/shim/stage_unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/limits.h"
#include "launcherd/process/rundir.h"

#define BLOCK_BYTES (64u * 1024u)
#define ENTRIES_MAX 200000u
#define DISK_FLAGS                                                                                 \
    (ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_SECURE_SYMLINKS |               \
     ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS)

static enum status archive_failed(struct archive *archive, struct err *err)
{
    const char *why = archive_error_string(archive);

    return err_set(err, STATUS_BAD_INPUT, archive_errno(archive), "the staged directory: %.180s",
                   why != NULL ? why : "not a tar archive");
}

static enum status copy_content(struct archive *from, struct archive *to, uint64_t *left,
                                struct err *err)
{
    const void *bytes;
    size_t byte_count;
    la_int64_t offset;
    int rc;

    while ((rc = archive_read_data_block(from, &bytes, &byte_count, &offset)) == ARCHIVE_OK) {
        if (byte_count > *left)
            return err_set(err, STATUS_TOO_BIG, 0, "the staged directory: more than %u MiB",
                           STAGE_BYTES_MAX >> 20);
        *left -= byte_count;
        if (archive_write_data_block(to, bytes, byte_count, offset) < ARCHIVE_WARN)
            return archive_failed(to, err);
    }
    return rc == ARCHIVE_EOF ? STATUS_OK : archive_failed(from, err);
}

/* Into the current directory. */
static enum status copy_entries(struct archive *from, struct archive *to, struct err *err)
{
    struct archive_entry *entry;
    uint64_t left = STAGE_BYTES_MAX;
    enum status status = STATUS_OK;
    int rc = ARCHIVE_OK;

    for (uint32_t i = 0; status == STATUS_OK; i++) {
        rc = archive_read_next_header(from, &entry);
        if (rc == ARCHIVE_EOF)
            break;
        if (rc < ARCHIVE_WARN || i == ENTRIES_MAX)
            return archive_failed(from, err);
        archive_entry_set_perm(entry, archive_entry_perm(entry) & 0777);
        if (archive_write_header(to, entry) < ARCHIVE_WARN)
            status = archive_failed(to, err);
        if (status == STATUS_OK && archive_entry_size(entry) > 0)
            status = copy_content(from, to, &left, err);
        if (status == STATUS_OK && archive_write_finish_entry(to) < ARCHIVE_WARN)
            status = archive_failed(to, err);
    }
    return status;
}

static enum status extract(int tar_fd, struct err *err)
{
    struct archive *from = archive_read_new(), *to = archive_write_disk_new();
    enum status status = STATUS_OK;

    if (from == NULL || to == NULL)
        status = err_set(err, STATUS_MEMORY, ENOMEM, "no memory to unpack the staged directory");
    else if (archive_read_support_format_tar(from) != ARCHIVE_OK ||
             archive_read_open_fd(from, tar_fd, BLOCK_BYTES) != ARCHIVE_OK)
        status = archive_failed(from, err);
    else if (archive_write_disk_set_options(to, DISK_FLAGS) != ARCHIVE_OK)
        status = archive_failed(to, err);
    else
        status = copy_entries(from, to, err);
    if (to != NULL && archive_write_close(to) != ARCHIVE_OK && status == STATUS_OK)
        status = archive_failed(to, err);
    (void)archive_read_free(from);
    (void)archive_write_free(to);
    return status;
}

enum status stage_make_dir(const char *dir, const struct account *account, struct err *err)
{
    if ((mkdir(dir, 0700) != 0 && errno != EEXIST) ||
        (account != NULL && chown(dir, account->uid, account->gid) != 0))
        return err_set(err, STATUS_IO, errno, "cannot make %.180s: %s", dir, strerror(errno));
    return STATUS_OK;
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
    rundir_remove_all(AT_FDCWD, "files.part"); /* of a start that was killed */
    if (mkdir("files.part", 0700) != 0 || chdir("files.part") != 0)
        return err_set(err, STATUS_IO, errno, "cannot make a folder in %.160s: %s", source->dir,
                       strerror(errno));
    status = extract(source->tar_fd, err);
    if (status == STATUS_OK && (chdir(source->dir) != 0 || rename("files.part", "files") != 0))
        status = err_set(err, STATUS_IO, errno, "cannot rename a folder in %.160s: %s", source->dir,
                         strerror(errno));
    return status;
}
