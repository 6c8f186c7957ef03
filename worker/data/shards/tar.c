/* Members of a tar. See tar.h. */
#include "worker/data/shards/tar.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/archive_library.h"
#include "worker/data/fileio.h"

enum { BLOCK_BYTES = 512, READ_BYTES = 65536 };

void tar_refuse(struct tar_refusals *refusals, const char *where, const char *name, const char *why)
{
    if (refusals->count++ == 0)
        (void)snprintf(refusals->first, sizeof refusals->first, "%.80s: %.70s: %s", where, name,
                       why);
}

/* -- what is refused -- */

static enum status check_compression(int fd, const char *path, uint64_t byte_count, struct err *err)
{
    static const struct {
        const char *magic;
        size_t magic_bytes;
        const char *name, *unpack;
    } known[] = {
        {"\x1f\x8b", 2, "gzip", "gunzip"},       {"\x28\xb5\x2f\xfd", 4, "zstd", "unzstd"},
        {"\xfd\x37zXZ", 5, "xz", "unxz"},        {"BZh", 3, "bzip2", "bunzip2"},
        {"\x04\x22\x4d\x18", 4, "lz4", "unlz4"},
    };
    char head[5] = {0};
    enum status status =
        fileio_read_at(fd, path, head, byte_count < sizeof head ? byte_count : sizeof head, 0, err);

    for (size_t i = 0; status == STATUS_OK && i < sizeof known / sizeof known[0]; i++)
        if (memcmp(head, known[i].magic, known[i].magic_bytes) == 0)
            return err_set(err, STATUS_UNSUPPORTED, 0,
                           "%.120s is compressed (%s): samples are read at their place, so unpack "
                           "it first: %s (pictures are compressed already)",
                           path, known[i].name, known[i].unpack);
    return status;
}

/* Why a member with this name is left out; NULL: it is not left out. */
static const char *name_refusal(const char *name)
{
    if (name == NULL)
        return "its name cannot be read";
    if (name[0] == '/')
        return "an absolute name";
    if (strlen(name) > TAR_NAME_BYTES_MAX)
        return "its name is too long";
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return "\"..\" in its name";
    }
    return NULL;
}

static const char *entry_refusal(const struct archive_library *lib, struct archive_entry *entry)
{
    if (lib->entry_hardlink(entry) != NULL || lib->entry_filetype(entry) == AE_IFLNK)
        return "a link";
    if (lib->entry_filetype(entry) != AE_IFREG)
        return "not a regular file";
    if (lib->entry_sparse_count(entry) > 0)
        return "a sparse file, which does not lie in one piece: make the tar without --sparse";
    if (lib->entry_size(entry) <= 0)
        return "it is empty";
    if ((uint64_t)lib->entry_size(entry) > TAR_MEMBER_BYTES_MAX)
        return "it is over 1 GiB";
    return NULL;
}

/* -- the walk -- */

struct walk {
    struct archive_library lib;
    struct archive *archive;
    const char *path;
    uint64_t tar_bytes;
    uint64_t end; /* of the last member, padding included */
    tar_take take;
    void *user;
    struct tar_refusals *refusals;
};

static enum status failed(struct walk *walk, struct err *err)
{
    const char *why = walk->lib.error_string(walk->archive);
    int64_t at = walk->lib.filter_bytes(walk->archive, 0);

    return err_set(err, STATUS_BAD_INPUT, 0, "%.110s: not a whole tar: %.60s at byte %lld",
                   walk->path, why != NULL ? why : "damaged", (long long)at);
}

static enum status take_entry(struct walk *walk, struct archive_entry *entry, struct err *err)
{
    const char *name = walk->lib.entry_pathname(entry);
    const int64_t size = walk->lib.entry_size(entry);
    struct tar_member member = {.offset = (uint64_t)walk->lib.filter_bytes(walk->archive, 0)};
    const char *why;

    if (name == NULL)
        name = walk->lib.entry_pathname_utf8(entry);
    /* Only the data of a regular file takes room in the tar. */
    if (walk->lib.entry_filetype(entry) == AE_IFREG && walk->lib.entry_hardlink(entry) == NULL &&
        size > 0) {
        member.byte_count = (uint64_t)size;
        if (walk->lib.entry_sparse_count(entry) == 0 &&
            (member.offset > walk->tar_bytes ||
             member.byte_count > walk->tar_bytes - member.offset))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "%.110s is cut off: %.60s should end at byte %llu, the file has %llu",
                           walk->path, name != NULL ? name : "a file",
                           (unsigned long long)(member.offset + member.byte_count),
                           (unsigned long long)walk->tar_bytes);
    }
    /* The bytes that a sparse file takes in the tar are not known here; they are fewer than its
     * size. */
    walk->end = member.offset;
    if (walk->lib.entry_sparse_count(entry) == 0)
        walk->end += (member.byte_count + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    if (walk->lib.entry_filetype(entry) == AE_IFDIR)
        return STATUS_OK;
    why = name_refusal(name);
    if (why == NULL)
        why = entry_refusal(&walk->lib, entry);
    if (why != NULL) {
        tar_refuse(walk->refusals, walk->path, name != NULL ? name : "?", why);
        return STATUS_OK;
    }
    while (strncmp(name, "./", 2) == 0)
        name += 2;
    member.name = name;
    return walk->take(walk->user, &member, err);
}

static enum status walk_entries(struct walk *walk, struct err *err)
{
    struct archive_entry *entry;
    int rc;

    while ((rc = walk->lib.read_next_header(walk->archive, &entry)) != ARCHIVE_EOF) {
        enum status status;

        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return failed(walk, err);
        status = take_entry(walk, entry, err);
        if (status != STATUS_OK)
            return status;
    }
    /* libarchive takes the end of the file for the end of the tar, so check here. */
    if (walk->end + BLOCK_BYTES > walk->tar_bytes)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%.120s is cut off: the tar's end mark is missing after byte %llu",
                       walk->path, (unsigned long long)walk->end);
    return STATUS_OK;
}

enum status tar_walk(int fd, const char *path, tar_take take, void *user,
                     struct tar_refusals *refusals, struct err *err)
{
    struct walk walk = {.path = path, .take = take, .user = user, .refusals = refusals};
    enum status status = fileio_size(fd, path, &walk.tar_bytes, err);

    if (status == STATUS_OK)
        status = check_compression(fd, path, walk.tar_bytes, err);
    if (status != STATUS_OK)
        return status;
    if (lseek(fd, 0, SEEK_SET) != 0)
        return err_set(err, STATUS_IO, errno, "%.120s: cannot read it from its start: %s", path,
                       strerror(errno));
    status = archive_library_open(&walk.lib, "tar shards need", err);
    if (status != STATUS_OK)
        return status;
    walk.archive = walk.lib.read_new();
    if (walk.archive == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%.120s: no memory to read it", path);
    if (walk.lib.read_support_format_tar(walk.archive) != ARCHIVE_OK ||
        walk.lib.read_open_fd(walk.archive, fd, READ_BYTES) != ARCHIVE_OK)
        status = failed(&walk, err);
    else
        status = walk_entries(&walk, err);
    (void)walk.lib.read_free(walk.archive);
    return status;
}
