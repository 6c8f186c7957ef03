#include "ddpctl/stage_pack.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/archive_library.h"
#include "common/stage.h"

#define READ_BYTES (64u * 1024u)

struct packing {
    struct archive_library lib;
    struct archive *archive;
    size_t dir_chars; /* length of the top folder's path */
    uint64_t byte_count;
    uint32_t file_count;
    /* the largest entry of the top folder so far, and the current entry: name and size */
    char largest[NAME_MAX + 1], current[NAME_MAX + 1];
    uint64_t largest_bytes, current_bytes;
};

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static enum status archive_failed(struct packing *packing, const char *path, struct err *err)
{
    const char *why = packing->lib.error_string(packing->archive);

    return err_set(err, STATUS_IO, packing->lib.get_errno(packing->archive),
                   "staging %.150s: %.80s", path, why != NULL ? why : "libarchive gives no reason");
}

static bool is_left_out(const FTSENT *item)
{
    return item->fts_level > 0 && item->fts_info == FTS_D &&
           (strcmp(item->fts_name, ".git") == 0 || strcmp(item->fts_name, "__pycache__") == 0);
}

/* Adds up the sizes of the top folder's entries, one entry after the other. */
static void count_size(struct packing *packing, const FTSENT *item)
{
    if (item->fts_level == 1) {
        (void)snprintf(packing->current, sizeof packing->current, "%.*s", NAME_MAX, item->fts_name);
        packing->current_bytes = 0;
    }
    if (item->fts_info != FTS_F)
        return;
    packing->current_bytes += (uint64_t)item->fts_statp->st_size;
    packing->byte_count += (uint64_t)item->fts_statp->st_size;
    if (packing->current_bytes > packing->largest_bytes) {
        packing->largest_bytes = packing->current_bytes;
        memcpy(packing->largest, packing->current, sizeof packing->largest);
    }
}

static enum status put_content(struct packing *packing, const FTSENT *item, struct err *err)
{
    uint64_t left = (uint64_t)item->fts_statp->st_size;
    char bytes[READ_BYTES];
    enum status status = STATUS_OK;
    int fd = open(item->fts_accpath, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return err_set(err, STATUS_IO, errno, "staging %.150s: %s", item->fts_path,
                       strerror(errno));
    while (left > 0 && status == STATUS_OK) {
        ssize_t got = read(fd, bytes, left < sizeof bytes ? (size_t)left : sizeof bytes);

        if (got <= 0)
            status = err_set(err, STATUS_IO, got < 0 ? errno : 0, "staging %.150s: %s",
                             item->fts_path, got < 0 ? strerror(errno) : "it became shorter");
        else if (packing->lib.write_data(packing->archive, bytes, (size_t)got) != got)
            status = archive_failed(packing, item->fts_path, err);
        else
            left -= (uint64_t)got;
    }
    (void)close(fd);
    return status;
}

static enum status put_header(struct packing *packing, const FTSENT *item, struct err *err)
{
    struct archive_entry *entry = packing->lib.entry_new();
    char target[PATH_MAX];
    ssize_t length = 0;
    enum status status = STATUS_OK;

    if (entry == NULL)
        return err_set(err, STATUS_MEMORY, ENOMEM, "no memory");
    packing->lib.entry_set_pathname(entry, item->fts_path + packing->dir_chars + 1);
    packing->lib.entry_set_mode(entry, item->fts_statp->st_mode);
    packing->lib.entry_set_mtime(entry, item->fts_statp->st_mtime, 0);
    packing->lib.entry_set_size(entry, item->fts_info == FTS_F ? item->fts_statp->st_size : 0);
    if (item->fts_info == FTS_SL || item->fts_info == FTS_SLNONE) {
        length = readlink(item->fts_accpath, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        packing->lib.entry_set_symlink(entry, target);
    }
    if (length < 0)
        status =
            err_set(err, STATUS_IO, errno, "staging %.150s: %s", item->fts_path, strerror(errno));
    else if (packing->lib.write_header(packing->archive, entry) < ARCHIVE_WARN)
        status = archive_failed(packing, item->fts_path, err);
    packing->lib.entry_free(entry);
    return status;
}

static enum status put(struct packing *packing, const FTSENT *item, struct err *err)
{
    enum status status;

    switch (item->fts_info) {
    case FTS_D:
    case FTS_SL:
    case FTS_SLNONE:
    case FTS_F:
        break;
    case FTS_DP:
        return STATUS_OK;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        return err_set(err, STATUS_IO, item->fts_errno, "staging %.150s: %s", item->fts_path,
                       strerror(item->fts_errno));
    default:
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "staging %.150s: it is neither a file, a folder nor a symbolic link",
                       item->fts_path);
    }
    if (item->fts_level == 0)
        return STATUS_OK;
    count_size(packing, item);
    packing->file_count += item->fts_info == FTS_F;
    status = put_header(packing, item, err);
    if (status == STATUS_OK && item->fts_info == FTS_F && packing->byte_count <= STAGE_BYTES_MAX)
        status = put_content(packing, item, err);
    return status;
}

/* When it has become too big meanwhile, the rest is still counted, so that the message can name the largest entry. */
static enum status put_all(struct packing *packing, FTS *tree, struct err *err)
{
    enum status status = STATUS_OK;
    FTSENT *item;

    while (status == STATUS_OK && (item = fts_read(tree)) != NULL) {
        if (is_left_out(item))
            (void)fts_set(tree, item, FTS_SKIP);
        else if (packing->byte_count > STAGE_BYTES_MAX)
            count_size(packing, item);
        else
            status = put(packing, item, err);
    }
    return status;
}

static enum status check_size(const struct packing *packing, const char *dir,
                              uint64_t archive_bytes, struct err *err)
{
    uint64_t bytes = packing->byte_count > archive_bytes ? packing->byte_count : archive_bytes;

    if (bytes <= STAGE_BYTES_MAX)
        return STATUS_OK;
    return err_set(err, STATUS_TOO_BIG, 0,
                   "--stage %.100s: %.1f MiB, at most %u MiB can be staged; the largest in it is "
                   "%.60s (%.1f MiB). Keep data on a shared disk, or on every node",
                   dir, (double)bytes / (1 << 20), STAGE_BYTES_MAX >> 20, packing->largest,
                   (double)packing->largest_bytes / (1 << 20));
}

/* The tree of a folder, without slashes at the end of its path. NULL: no memory. */
static FTS *open_tree(const char *dir, char path[PATH_MAX])
{
    char *const paths[] = {path, NULL};

    (void)snprintf(path, PATH_MAX, "%s", dir);
    while (strlen(path) > 1 && path[strlen(path) - 1] == '/')
        path[strlen(path) - 1] = '\0';
    return fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
}

/* Before anything is read: data sets lie in such folders, too. */
static enum status check_sizes(const char *dir, struct err *err)
{
    struct packing packing = {.archive = NULL};
    char path[PATH_MAX];
    FTS *tree = open_tree(dir, path);
    FTSENT *item;

    while (tree != NULL && (item = fts_read(tree)) != NULL) {
        if (is_left_out(item))
            (void)fts_set(tree, item, FTS_SKIP);
        else
            count_size(&packing, item);
    }
    if (tree != NULL)
        (void)fts_close(tree);
    return check_size(&packing, dir, 0, err);
}

static enum status write_archive(struct packing *packing, const char *dir, int fd, struct err *err)
{
    char path[PATH_MAX];
    FTS *tree = open_tree(dir, path);
    enum status status;

    packing->dir_chars = strcmp(path, "/") == 0 ? 0 : strlen(path);
    packing->archive = packing->lib.write_new();
    if (packing->archive == NULL || tree == NULL)
        status = err_set(err, STATUS_MEMORY, ENOMEM, "no memory to stage %.150s", dir);
    else if (packing->lib.write_set_format_pax_restricted(packing->archive) != ARCHIVE_OK ||
             packing->lib.write_set_bytes_per_block(packing->archive, 0) != ARCHIVE_OK ||
             packing->lib.write_open_fd(packing->archive, fd) != ARCHIVE_OK)
        status = archive_failed(packing, dir, err);
    else
        status = put_all(packing, tree, err);
    if (status == STATUS_OK && packing->byte_count <= STAGE_BYTES_MAX &&
        packing->lib.write_close(packing->archive) != ARCHIVE_OK)
        status = archive_failed(packing, dir, err);
    if (tree != NULL)
        (void)fts_close(tree);
    (void)packing->lib.write_free(packing->archive);
    return status;
}

enum status stage_pack(const char *dir, struct stage_packed *packed, struct err *err)
{
    struct packing packing = {.archive = NULL};
    enum status status;
    struct stat info;

    *packed = (struct stage_packed){.fd = -1};
    if (stat(dir, &info) < 0 || !S_ISDIR(info.st_mode))
        return err_set(err, STATUS_NOT_FOUND, 0, "--stage %.150s: there is no such folder", dir);
    status = check_sizes(dir, err);
    if (status != STATUS_OK)
        return status;
    packed->fd = memfd_create("stage", MFD_CLOEXEC);
    if (packed->fd < 0)
        return err_set(err, STATUS_SYSTEM, errno, "no memory to stage %.150s: %s", dir,
                       strerror(errno));
    status = archive_library_open(&packing.lib, "--stage needs", err);
    if (status == STATUS_OK)
        status = write_archive(&packing, dir, packed->fd, err);
    packed->file_count = packing.file_count;
    if (status == STATUS_OK)
        status = check_size(&packing, dir, 0, err);
    if (status == STATUS_OK)
        status = stage_digest_file(packed->fd, packed->hash, &packed->byte_count, err);
    if (status == STATUS_OK)
        status = check_size(&packing, dir, packed->byte_count, err);
    if (status == STATUS_OK)
        return STATUS_OK;
    (void)close(packed->fd);
    packed->fd = -1;
    return status;
}
