#include "launcherd/process/log_index.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/own_path.h"
#include "common/io/read_all.h"
#include "common/log.h"

static const char log_end[] = ".log", index_end[] = ".index";

static struct log_index_record make_record(uint64_t offset, bool is_error, int64_t at_ms)
{
    return (struct log_index_record){.offset_and_stream = offset * 2 + (is_error ? 1 : 0),
                                     .at_ms = at_ms};
}

static uint64_t offset_of(const struct log_index_record *record)
{
    return record->offset_and_stream / 2;
}

static bool is_error_of(const struct log_index_record *record)
{
    return record->offset_and_stream % 2 != 0;
}

static void make_path(const char *log_path, char path[PATH_MAX])
{
    size_t length = strlen(log_path);

    if (length > sizeof log_end - 1 &&
        strcmp(log_path + length - (sizeof log_end - 1), log_end) == 0)
        length -= sizeof log_end - 1;
    if (snprintf(path, PATH_MAX, "%.*s%s", (int)length, log_path, index_end) >= PATH_MAX)
        path[0] = '\0'; /* an empty path: it is never found */
}

/* -- the writer -------------------------------------------------------------------------------- */

void log_index_open(struct log_index *index, const char *log_path)
{
    *index = (struct log_index){.fd = -1};
    make_path(log_path, index->path);
}

void log_index_close(struct log_index *index)
{
    if (index->fd >= 0)
        (void)close(index->fd);
    index->fd = -1;
}

static void fail(struct log_index *index)
{
    if (!index->has_failed)
        log_line(LOG_WARNING, LOG_ABOUT_NONE,
                 "%s cannot be written, so stderr and times of a log are not known: %s",
                 index->path, strerror(errno));
    index->has_failed = true;
}

/* Whether the file still is the one that was opened: it may have been deleted. */
static bool is_writable(struct log_index *index)
{
    struct stat stat;
    struct err none;

    if (index->fd >= 0 && fstat(index->fd, &stat) == 0 && stat.st_nlink > 0)
        return true;
    log_index_close(index);
    (void)own_file_open(index->path, 1, O_WRONLY | O_CREAT, 0600, &index->fd, &none);
    index->count = 0;
    if (index->fd >= 0 && fstat(index->fd, &stat) == 0)
        index->count = (uint64_t)stat.st_size / sizeof index->last;
    return index->fd >= 0;
}

static bool append(struct log_index *index, const struct log_index_record *record)
{
    return pwrite_all(index->fd, record, sizeof *record, (off_t)(index->count * sizeof *record));
}

void log_index_note(struct log_index *index, uint64_t offset, bool is_error, int64_t at_ms)
{
    const struct log_index_record record = make_record(offset, is_error, at_ms);

    if (index->count > 0 && is_error == is_error_of(&index->last) && at_ms >= index->last.at_ms &&
        at_ms - index->last.at_ms < LOG_INDEX_STEP_MS)
        return;
    if (!is_writable(index) || !append(index, &record)) {
        fail(index);
        return;
    }
    index->count++;
    index->last = record;
    index->has_failed = false;
}

static bool write_records(const char *path, const struct log_index_record *records, size_t count)
{
    char made[PATH_MAX];
    struct err none;
    size_t bytes = count * sizeof *records;
    int fd;
    bool is_written;

    if (snprintf(made, sizeof made, "%s.new", path) >= (int)sizeof made)
        return false;
    if (own_file_make(made, 1, 0600, &fd, &none) != STATUS_OK)
        return false;
    is_written = pwrite_all(fd, records, bytes, 0);
    (void)close(fd);
    if (is_written && own_file_rename(made, path, 1, &none) == STATUS_OK)
        return true;
    (void)own_file_remove(made, 1, &none);
    return false;
}

/* Keeps the records before `mark` and after `end`, and puts one at `mark` (stderr) and one at `end`
 * between them. Returns their number. `records` has room for `count` + 2. */
static size_t filter(struct log_index_record *records, size_t count, uint64_t mark, uint64_t begin,
                     uint64_t end)
{
    struct log_index_record at_end = records[0];
    size_t kept = 0, from = 0;

    while (kept < count && offset_of(&records[kept]) < mark)
        kept++;
    for (from = kept; from < count && offset_of(&records[from]) <= end; from++)
        at_end = records[from];
    if (from == kept && kept > 0)
        at_end = records[kept - 1];
    memmove(records + kept + 2, records + from, (count - from) * sizeof *records);
    records[kept] = make_record(mark, true, at_end.at_ms);
    records[kept + 1] = make_record(end, is_error_of(&at_end), at_end.at_ms);
    assert(mark <= begin && begin <= end);
    return kept + 2 + (count - from);
}

/* Writes a new file and renames it: readers have either the old or the new one. */
void log_index_cut(struct log_index *index, uint64_t mark, uint64_t begin, uint64_t end)
{
    size_t count = (size_t)index->count;
    struct log_index_record *records = NULL;
    struct err none;
    int fd;

    (void)own_file_open(index->path, 1, O_RDONLY, 0, &fd, &none);

    if (count > 0 && fd >= 0)
        records = calloc(count + 2, sizeof *records);
    if (records != NULL &&
        pread_all(fd, records, count * sizeof *records, 0) == (ssize_t)(count * sizeof *records)) {
        count = filter(records, count, mark, begin, end);
        if (write_records(index->path, records, count)) {
            log_index_close(index);
            (void)own_file_open(index->path, 1, O_WRONLY, 0, &index->fd, &none);
            index->count = count;
        } else {
            fail(index); /* the old one is longer than needed, and still right */
        }
    }
    free(records);
    if (fd >= 0)
        (void)close(fd);
}

/* -- the reader -------------------------------------------------------------------------------- */

static bool read_record(int fd, uint64_t i, struct log_index_record *record)
{
    return pread_all(fd, record, sizeof *record, (off_t)(i * sizeof *record)) ==
           (ssize_t)sizeof *record;
}

/* The number of records with an offset of at most `offset`: the last of them is about it. */
static uint64_t find(int fd, uint64_t count, uint64_t offset)
{
    uint64_t low = 0, high = count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct log_index_record record;

        if (read_record(fd, middle, &record) && offset_of(&record) <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* False: no room for another. */
static bool add_run(struct part_log_run *runs, uint32_t *run_count,
                    const struct log_index_record *record, uint64_t byte_count)
{
    if (*run_count == LOG_RUNS_MAX)
        return false;
    runs[(*run_count)++] = (struct part_log_run){.bytes = (uint32_t)byte_count,
                                                 .is_error = is_error_of(record),
                                                 .at_ms = record->at_ms > 0 ? record->at_ms : 0};
    return true;
}

uint32_t log_index_read(const char *log_path, uint64_t offset, uint32_t byte_count,
                        struct part_log_run runs[LOG_RUNS_MAX], uint32_t *run_count)
{
    struct log_index_record record = {0}, next;
    char path[PATH_MAX];
    struct stat stat;
    struct err none;
    uint64_t at = offset, end = offset + byte_count, count, i;
    int fd;

    *run_count = 0;
    make_path(log_path, path);
    if (own_file_open(path, 1, O_RDONLY, 0, &fd, &none) != STATUS_OK)
        return 0;
    count = fstat(fd, &stat) == 0 ? (uint64_t)stat.st_size / sizeof record : 0;
    i = find(fd, count, offset);
    if (i > 0 && !read_record(fd, i - 1, &record))
        end = at;
    while (at < end) {
        bool has_next = i < count && read_record(fd, i, &next);
        uint64_t stop = has_next && offset_of(&next) < end ? offset_of(&next) : end;

        if (stop > at && !add_run(runs, run_count, &record, stop - at))
            break;
        at = stop > at ? stop : at;
        record = has_next ? next : record;
        i++;
    }
    (void)close(fd);
    return (uint32_t)(at - offset);
}
