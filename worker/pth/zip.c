/* Reader and writer of zip archives with stored entries. See zip.h. */
#include "worker/pth/zip.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "worker/data/fileio.h"
#include "worker/pth/little.h"

/* APPNOTE, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16, 4.5.3 */
enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    COMMENT_BYTES_MAX = 65535,
    EXTRA_ZIP64 = 1,
    FLAG_ENCRYPTED = 1,
    FLAG_UTF8 = 0x800,
    ALIGN_BYTES = 64,
    EXTRA_HEAD_BYTES = 4,
    ENTRIES_MAX = 65535, /* of the writer */
};
#define SIGNATURE_LOCAL 0x04034b50U
#define SIGNATURE_CENTRAL 0x02014b50U
#define SIGNATURE_END 0x06054b50U
#define SIGNATURE_END64 0x06064b50U
#define SIGNATURE_LOCATOR 0x07064b50U

static uint32_t take16(const char *bytes, size_t at)
{
    return (uint32_t)little_take(bytes + at, 2);
}

static uint32_t take32(const char *bytes, size_t at)
{
    return (uint32_t)little_take(bytes + at, 4);
}

static enum status damaged(const struct zip *zip, struct err *err, const char *why)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "%s: a damaged zip archive: %s", zip->what, why);
}

/* -- the end, which says where the directory is -- */

struct place {
    uint64_t begin, byte_count, entry_count;
};

/* The record that ends the archive, found from the back: a comment may follow it. */
static enum status find_end(const struct zip *zip, uint64_t file_bytes, uint64_t *end,
                            struct err *err)
{
    const uint64_t most = END_BYTES + COMMENT_BYTES_MAX;
    const size_t count = (size_t)(file_bytes < most ? file_bytes : most);
    char *tail = malloc(count + 1);
    enum status status;
    bool found = false;

    if (tail == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory to read its end", zip->what);
    status = fileio_read_at(zip->fd, zip->what, tail, count, file_bytes - count, err);
    for (size_t i = count; status == STATUS_OK && !found && i >= END_BYTES; i--) {
        const size_t at = i - END_BYTES;

        if (take32(tail, at) != SIGNATURE_END || take16(tail, at + 20) != count - at - END_BYTES)
            continue;
        found = true;
        *end = file_bytes - count + at;
    }
    free(tail);
    if (status == STATUS_OK && !found)
        return damaged(zip, err, "its end is missing, so the file was cut or never finished");
    return status;
}

static enum status read_end64(const struct zip *zip, const char *locator, uint64_t end,
                              struct place *place, struct err *err)
{
    const uint64_t at = little_take(locator + 8, 8);
    char bytes[END64_BYTES];
    enum status status;

    if (end < LOCATOR_BYTES + END64_BYTES || at > end - LOCATOR_BYTES - END64_BYTES)
        return damaged(zip, err, "its zip64 end lies outside the file");
    status = fileio_read_at(zip->fd, zip->what, bytes, sizeof bytes, at, err);
    if (status != STATUS_OK)
        return status;
    if (take32(bytes, 0) != SIGNATURE_END64)
        return damaged(zip, err, "its zip64 end is not where it should be");
    *place = (struct place){little_take(bytes + 48, 8), little_take(bytes + 40, 8),
                            little_take(bytes + 32, 8)};
    return STATUS_OK;
}

static enum status find_directory(const struct zip *zip, uint64_t file_bytes, struct place *place,
                                  struct err *err)
{
    char bytes[END_BYTES], locator[LOCATOR_BYTES];
    uint64_t end;
    enum status status = find_end(zip, file_bytes, &end, err);

    if (status == STATUS_OK)
        status = fileio_read_at(zip->fd, zip->what, bytes, sizeof bytes, end, err);
    if (status != STATUS_OK)
        return status;
    if (take16(bytes, 4) != 0 || take16(bytes, 6) != 0)
        return err_set(err, STATUS_UNSUPPORTED, 0, "%s: a zip archive over several disks",
                       zip->what);
    *place = (struct place){take32(bytes, 16), take32(bytes, 12), take16(bytes, 10)};
    if (end >= LOCATOR_BYTES) {
        status =
            fileio_read_at(zip->fd, zip->what, locator, sizeof locator, end - LOCATOR_BYTES, err);
        if (status == STATUS_OK && take32(locator, 0) == SIGNATURE_LOCATOR)
            status = read_end64(zip, locator, end, place, err);
    }
    if (status == STATUS_OK && (place->begin > end || place->byte_count > end - place->begin))
        return damaged(zip, err, "its directory lies outside the file");
    return status;
}

/* -- the directory -- */

/* Sizes and offset of an entry that do not fit in 32 bits are in an extra field, in this order. */
static bool read_zip64(const char *extra, size_t extra_bytes, uint64_t *stored, uint64_t *plain,
                       uint64_t *header)
{
    uint64_t *const wide[] = {plain, stored, header};
    size_t at = 0;

    while (extra_bytes - at >= EXTRA_HEAD_BYTES) {
        const size_t bytes = take16(extra, at + 2), from = at + EXTRA_HEAD_BYTES;
        size_t used = 0;

        if (bytes > extra_bytes - from)
            return false;
        at = from + bytes;
        if (take16(extra, from - EXTRA_HEAD_BYTES) != EXTRA_ZIP64)
            continue;
        for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
            if (*wide[i] != 0xffffffffU)
                continue;
            if (bytes - used < 8)
                return false;
            *wide[i] = little_take(extra + from + used, 8);
            used += 8;
        }
    }
    return true;
}

/* Takes the entry at `at` of the directory and moves `at` behind it. */
static enum status take_entry(struct zip *zip, size_t directory_bytes, size_t *at, struct err *err)
{
    const char *head = zip->directory + *at;
    struct zip_entry *entry = &zip->entries[zip->entry_count];
    uint64_t stored;
    size_t extra_bytes, all;

    if (directory_bytes - *at < CENTRAL_BYTES || take32(head, 0) != SIGNATURE_CENTRAL)
        return damaged(zip, err, "its directory has fewer entries than it says");
    extra_bytes = take16(head, 30);
    all = CENTRAL_BYTES + take16(head, 28) + extra_bytes + take16(head, 32);
    if (all > directory_bytes - *at)
        return damaged(zip, err, "an entry of its directory is cut");
    stored = take32(head, 20);
    *entry = (struct zip_entry){.name = head + CENTRAL_BYTES,
                                .name_bytes = take16(head, 28),
                                .crc = take32(head, 16),
                                .byte_count = take32(head, 24),
                                .header_begin = take32(head, 42)};
    if (!read_zip64(entry->name + entry->name_bytes, extra_bytes, &stored, &entry->byte_count,
                    &entry->header_begin))
        return damaged(zip, err, "the zip64 field of an entry is cut");
    if (take16(head, 10) != 0)
        entry->refusal = "compressed";
    if ((take16(head, 8) & FLAG_ENCRYPTED) != 0)
        entry->refusal = "encrypted";
    if (entry->refusal == NULL && stored != entry->byte_count)
        return damaged(zip, err, "a stored entry has two sizes");
    if (stored > zip->directory_begin || entry->header_begin > zip->directory_begin - stored)
        return damaged(zip, err, "an entry lies outside the file");
    *at += all;
    zip->entry_count++;
    return STATUS_OK;
}

static int compare_names(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    const int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

    return order != 0 ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int by_name(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;

    return compare_names(x->name, x->name_bytes, y->name, y->name_bytes);
}

static enum status take_entries(struct zip *zip, const struct place *place, struct err *err)
{
    const size_t count = (size_t)place->entry_count;
    enum status status = STATUS_OK;
    size_t at = 0;

    zip->entries = calloc(count + 1, sizeof *zip->entries);
    if (zip->entries == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its directory", zip->what);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = take_entry(zip, (size_t)place->byte_count, &at, err);
    if (status != STATUS_OK)
        return status;
    if (count > 0)
        qsort(zip->entries, count, sizeof *zip->entries, by_name);
    for (size_t i = 1; i < count; i++)
        if (by_name(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return damaged(zip, err, "an entry is there twice");
    return STATUS_OK;
}

static enum status read_directory(struct zip *zip, const struct place *place, struct err *err)
{
    enum status status;

    if (place->byte_count > ZIP_DIRECTORY_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "%s: a zip directory of %llu bytes, over the limit of %u", zip->what,
                       (unsigned long long)place->byte_count, ZIP_DIRECTORY_BYTES_MAX);
    if (place->entry_count > place->byte_count / CENTRAL_BYTES)
        return damaged(zip, err, "its directory has fewer entries than it says");
    zip->directory_begin = place->begin;
    zip->directory = malloc((size_t)place->byte_count + 1);
    if (zip->directory == NULL)
        return err_set(err, STATUS_MEMORY, 0, "%s: no memory for its directory", zip->what);
    status =
        fileio_read_at(zip->fd, zip->what, zip->directory, place->byte_count, place->begin, err);
    return status == STATUS_OK ? take_entries(zip, place, err) : status;
}

enum status zip_open(struct zip *zip, int fd, const char *what, struct err *err)
{
    struct place place = {0};
    uint64_t file_bytes = 0;
    enum status status;

    *zip = (struct zip){.fd = fd, .what = what};
    status = fileio_size(fd, what, &file_bytes, err);
    if (status == STATUS_OK)
        status = find_directory(zip, file_bytes, &place, err);
    if (status == STATUS_OK)
        status = read_directory(zip, &place, err);
    if (status != STATUS_OK)
        zip_close(zip);
    return status;
}

void zip_close(struct zip *zip)
{
    free(zip->directory);
    free(zip->entries);
    *zip = (struct zip){.fd = -1};
}

const struct zip_entry *zip_find(const struct zip *zip, const char *name)
{
    const struct zip_entry key = {.name = name, .name_bytes = (uint32_t)strlen(name)};

    return zip->entry_count == 0
               ? NULL
               : bsearch(&key, zip->entries, zip->entry_count, sizeof key, by_name);
}

/* -- values -- */

static uint32_t sum_of(const void *bytes, uint64_t byte_count)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), bytes, (z_size_t)byte_count);
}

enum status zip_check(const struct zip *zip, const struct zip_entry *entry, struct err *err)
{
    if (entry->refusal == NULL)
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, 0, "%s: its entry %.*s is %s; torch.save only stores",
                   zip->what, (int)(entry->name_bytes < 80 ? entry->name_bytes : 80), entry->name,
                   entry->refusal);
}

enum status zip_read(const struct zip *zip, const struct zip_entry *entry, void *bytes,
                     struct err *err)
{
    char head[LOCAL_BYTES];
    uint64_t begin;
    enum status status = zip_check(zip, entry, err);

    if (status == STATUS_OK)
        status = fileio_read_at(zip->fd, zip->what, head, sizeof head, entry->header_begin, err);
    if (status != STATUS_OK)
        return status;
    begin = entry->header_begin + LOCAL_BYTES + take16(head, 26) + take16(head, 28);
    if (take32(head, 0) != SIGNATURE_LOCAL || begin > zip->directory_begin ||
        entry->byte_count > zip->directory_begin - begin)
        return damaged(zip, err, "an entry is not where its directory says");
    status = fileio_read_at(zip->fd, zip->what, bytes, entry->byte_count, begin, err);
    if (status != STATUS_OK || entry->crc == 0 || sum_of(bytes, entry->byte_count) == entry->crc)
        return status;
    return err_set(err, STATUS_BAD_INPUT, 0,
                   "%s: its entry %.*s is damaged: its bytes do not have the sum (CRC-32) in the "
                   "archive's directory",
                   zip->what, (int)(entry->name_bytes < 80 ? entry->name_bytes : 80), entry->name);
}

/* -- writing -- */

/* What the local header and the directory's entry have in common, from the version on. */
static void put_common(struct buf *buf, size_t name_bytes, uint32_t crc, uint64_t byte_count,
                       size_t extra_bytes)
{
    little_put(buf, 20, 2); /* needs version 2.0 */
    little_put(buf, FLAG_UTF8, 2);
    little_put(buf, 0, 2);    /* stored */
    little_put(buf, 0, 2);    /* time */
    little_put(buf, 0x21, 2); /* 1 January 1980, so that equal weights give equal files */
    little_put(buf, crc, 4);
    little_put(buf, byte_count, 4);
    little_put(buf, byte_count, 4);
    little_put(buf, name_bytes, 2);
    little_put(buf, extra_bytes, 2);
}

/* The padding of torch: an extra field "FB". */
static void put_padding(struct buf *buf, size_t extra_bytes)
{
    buf_add(buf, "FB", 2);
    little_put(buf, extra_bytes - EXTRA_HEAD_BYTES, 2);
    for (size_t i = EXTRA_HEAD_BYTES; i < extra_bytes; i++)
        buf_add(buf, "Z", 1);
}

static enum status no_room(struct err *err)
{
    return err_set(err, STATUS_TOO_BIG, 0,
                   "over 4 GiB or 65535 tensors, which this writer of .pth files cannot do: use "
                   "the .safetensors");
}

static enum status write_head(struct zip_writer *writer, struct buf *head, struct err *err)
{
    enum status status = head->failed
                             ? err_set(err, STATUS_MEMORY, 0, "no memory for a zip header")
                             : fileio_write(writer->fd, head->bytes, head->byte_count, err);

    writer->at += head->byte_count;
    buf_free(head);
    return status;
}

enum status zip_add(struct zip_writer *writer, const char *name, const void *bytes,
                    uint64_t byte_count, struct err *err)
{
    const size_t name_bytes = strlen(name);
    const uint64_t begin = writer->at;
    const uint32_t crc = sum_of(bytes, byte_count);
    const size_t before =
        (size_t)((begin + LOCAL_BYTES + name_bytes + EXTRA_HEAD_BYTES) % ALIGN_BYTES);
    const size_t extra_bytes = EXTRA_HEAD_BYTES + (ALIGN_BYTES - before) % ALIGN_BYTES;
    struct buf head = {0};
    enum status status;

    assert(name_bytes > 0 && name_bytes <= ZIP_NAME_BYTES_MAX);
    if (byte_count > ZIP_BYTES_MAX ||
        begin + byte_count > ZIP_BYTES_MAX - (LOCAL_BYTES + ZIP_NAME_BYTES_MAX + 2 * ALIGN_BYTES) ||
        writer->entry_count == ENTRIES_MAX)
        return no_room(err);
    little_put(&head, SIGNATURE_LOCAL, 4);
    put_common(&head, name_bytes, crc, byte_count, extra_bytes);
    buf_add(&head, name, name_bytes);
    put_padding(&head, extra_bytes);
    assert(head.failed || (begin + head.byte_count) % ALIGN_BYTES == 0);
    little_put(writer->directory, SIGNATURE_CENTRAL, 4);
    little_put(writer->directory, 20, 2); /* made by version 2.0 */
    put_common(writer->directory, name_bytes, crc, byte_count, 0);
    little_put(writer->directory, 0, 2 + 2 + 2); /* comment, disk, internal attributes */
    little_put(writer->directory, 0, 4);         /* external attributes */
    little_put(writer->directory, begin, 4);
    buf_add(writer->directory, name, name_bytes);
    writer->entry_count++;
    status = write_head(writer, &head, err);
    if (status == STATUS_OK)
        status = fileio_write(writer->fd, bytes, byte_count, err);
    writer->at += byte_count;
    return status;
}

enum status zip_finish(struct zip_writer *writer, struct err *err)
{
    const uint64_t begin = writer->at, byte_count = writer->directory->byte_count;
    struct buf *directory = writer->directory;

    if (begin + byte_count > ZIP_BYTES_MAX)
        return no_room(err);
    little_put(directory, SIGNATURE_END, 4);
    little_put(directory, 0, 2 + 2); /* disks */
    little_put(directory, writer->entry_count, 2);
    little_put(directory, writer->entry_count, 2);
    little_put(directory, byte_count, 4);
    little_put(directory, begin, 4);
    little_put(directory, 0, 2); /* comment */
    return write_head(writer, directory, err);
}
