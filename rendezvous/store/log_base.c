/* Whether state.db and its log belong together. SQLite plays any log that is whole in itself into whatever file has the name, so
 * an older state.db beside a newer state.db-wal, or the other way round, would become a mixture of both. Each commit counts up
 * `commits` in the table meta. So the file has at least the count before the first commit of its log, and at most that of the last.
 * The pages are read here, before SQLite opens them (sqlite.org/fileformat2.html, sections 1.6, 2.1 and 4.1). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/internal.h"

#define PAGE_BYTES 4096u
#define META_PAGE 2u /* the first table of each version */
#define LEAF_OF_KEYS 0x0a
#define LOG_HEAD_BYTES 32u
#define FRAME_HEAD_BYTES 24u
#define NAME "commits"
#define PATH_BYTES 4200

static uint32_t number(const uint8_t *bytes, uint32_t count)
{
    uint32_t value = 0;

    for (uint32_t i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

/* A number of 7 bits a byte, of two bytes at most: all that short rows need. False: it is longer, or cut off. */
static bool take_short(const uint8_t **at, const uint8_t *end, uint32_t *value)
{
    *value = 0;
    for (uint32_t i = 0; i < 2 && *at < end; i++) {
        const uint8_t byte = *(*at)++;

        *value = *value << 7 | (byte & 0x7f);
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* The row (NAME, digits) in a cell. False: it is another row. */
static bool read_cell(const uint8_t *at, const uint8_t *end, uint64_t *commits)
{
    const uint32_t name_type = 13 + 2 * (uint32_t)strlen(NAME);
    uint32_t row_bytes, head_bytes, type, value_type;
    char digits[24];
    size_t count;

    if (!take_short(&at, end, &row_bytes) || !take_short(&at, end, &head_bytes) ||
        !take_short(&at, end, &type) || !take_short(&at, end, &value_type) || head_bytes != 3 ||
        type != name_type || value_type < 13 || value_type % 2 == 0)
        return false;
    count = (value_type - 13) / 2;
    if (count == 0 || count >= sizeof digits || (size_t)(end - at) < strlen(NAME) + count ||
        memcmp(at, NAME, strlen(NAME)) != 0)
        return false;
    memcpy(digits, at + strlen(NAME), count);
    digits[count] = '\0';
    if (strspn(digits, "0123456789") != count)
        return false;
    *commits = strtoull(digits, NULL, 10);
    return true;
}

/* `*commits` stays as it is if the page does not have it. False: it has another form. */
static bool read_commits(const uint8_t page[PAGE_BYTES], uint64_t *commits)
{
    const uint32_t cells = number(page + 3, 2);

    if (page[0] != LEAF_OF_KEYS || 8 + 2 * cells > PAGE_BYTES)
        return false;
    for (uint32_t i = 0; i < cells; i++) {
        const uint32_t at = number(page + 8 + (size_t)2 * i, 2);

        if (at < PAGE_BYTES && read_cell(page + at, page + PAGE_BYTES, commits))
            break;
    }
    return true;
}

/* What the log says: the count of its first and of its last commit that has one. False: it has none. */
static bool read_log(const struct store_disk *disk, const char *path, uint64_t *first,
                     uint64_t *last)
{
    uint8_t head[LOG_HEAD_BYTES], frame[FRAME_HEAD_BYTES], page[PAGE_BYTES];
    int64_t at = LOG_HEAD_BYTES;
    bool has_one = false;

    if (disk->read_at(path, head, sizeof head, 0) != (int64_t)sizeof head ||
        number(head + 8, 4) != PAGE_BYTES)
        return false;
    for (; disk->read_at(path, frame, sizeof frame, at) == (int64_t)sizeof frame &&
           memcmp(frame + 8, head + 16, 8) == 0; /* else the frame is of an earlier log */
         at += FRAME_HEAD_BYTES + PAGE_BYTES) {
        uint64_t commits = 0;

        if (number(frame, 4) != META_PAGE ||
            disk->read_at(path, page, sizeof page, at + FRAME_HEAD_BYTES) != (int64_t)sizeof page ||
            !read_commits(page, &commits) || commits == 0)
            continue;
        if (!has_one)
            *first = commits;
        *last = commits;
        has_one = true;
    }
    return has_one;
}

enum status store_check_log(const struct store *store, struct err *err)
{
    const struct store_disk *disk = store->disk;
    uint64_t has = 0 /* as before the first commit */, first = 0, last = 0;
    uint8_t page[PAGE_BYTES];
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof path, "%s-wal", store->path);
    if (store->is_new || disk->read_at == NULL ||
        disk->read_at(store->path, page, sizeof page, PAGE_BYTES) != (int64_t)sizeof page ||
        !read_commits(page, &has) || !read_log(disk, path, &first, &last) ||
        (has + 1 >= first && has <= last))
        return STATUS_OK;
    return err_set(err, STATUS_REFUSED, 0,
                   "%.60s and its -wal do not belong together (commit %" PRIu64 "; %" PRIu64
                   " to %" PRIu64
                   "): one was put back alone. Nothing was changed. Put both back, or move -wal "
                   "and -shm away to use state.db alone",
                   store->path, has, first, last);
}
