#include "ddpctl/duplicate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io/write_all.h"

enum status duplicate_parse(struct duplicate_filter *filter, const char *words, struct err *err)
{
    size_t begin = 0;

    for (const char *at = words;; at++) {
        const bool is_comma = at[0] == ',' && at[1] == ',';

        if (*at != '\0' && (*at != ',' || is_comma)) {
            buf_add(&filter->text, at, 1);
            at += is_comma;
            continue;
        }
        if (filter->text.byte_count > begin) {
            if (filter->count == DUPLICATE_WORDS_MAX)
                return err_set(err, STATUS_TOO_BIG, 0, "more than %u words to look for",
                               DUPLICATE_WORDS_MAX);
            filter->offsets[filter->count] = (uint32_t)begin;
            filter->lengths[filter->count++] = (uint32_t)(filter->text.byte_count - begin);
            begin = filter->text.byte_count;
        }
        if (*at == '\0')
            return filter->text.failed ? err_set(err, STATUS_MEMORY, 0, "out of memory")
                                       : STATUS_OK;
    }
}

bool duplicate_matches(const struct duplicate_filter *filter, const char *line, size_t byte_count)
{
    for (uint32_t i = 0; i < filter->count; i++)
        if (memmem(line, byte_count, filter->text.bytes + filter->offsets[i], filter->lengths[i]) !=
            NULL)
            return true;
    return false;
}

enum status duplicate_open(struct duplicate *duplicate, const char *folder,
                           const char *const words[2], uint32_t rank_count, struct err *err)
{
    static const char *const names[] = {"filtered_stdout.log", "filtered_stderr.log"};
    enum status status = STATUS_OK;

    duplicate->rank_count = rank_count;
    duplicate->filters[0].fd = duplicate->filters[1].fd = -1;
    duplicate->lines = calloc(2 * (size_t)rank_count, sizeof *duplicate->lines);
    if (duplicate->lines == NULL)
        return err_set(err, STATUS_MEMORY, 0, "out of memory");
    for (int k = 0; k < 2 && status == STATUS_OK; k++) {
        char path[PATH_MAX];

        if (words[k] == NULL)
            continue;
        status = duplicate_parse(&duplicate->filters[k], words[k], err);
        (void)snprintf(path, sizeof path, "%.4000s/%s", folder, names[k]);
        duplicate->filters[k].fd =
            open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (status == STATUS_OK && duplicate->filters[k].fd < 0)
            status = err_set(err, STATUS_IO, errno, "%.180s: %s", path, strerror(errno));
    }
    return status;
}

static void end_line(struct duplicate *duplicate, bool is_error, const char *prefix,
                     struct buf *line)
{
    const struct duplicate_filter *filter = &duplicate->filters[is_error];
    struct buf out = {0};

    if (duplicate_matches(filter, line->bytes, line->byte_count)) {
        buf_add_text(&out, prefix);
        buf_add(&out, line->bytes, line->byte_count);
        buf_add(&out, "\n", 1);
        if (!out.failed)
            (void)write_all(filter->fd, out.bytes, out.byte_count); /* a full disk ends no job */
        buf_free(&out);
    }
    buf_drop(line, line->byte_count);
}

void duplicate_bytes(struct duplicate *duplicate, uint32_t rank, bool is_error, const char *prefix,
                     const void *bytes, size_t byte_count)
{
    const char *at = bytes, *end = at + byte_count;

    if (duplicate->filters[is_error].count == 0 || rank >= duplicate->rank_count)
        return;
    while (at < end) {
        struct buf *line = &duplicate->lines[2 * rank + is_error];
        const char *stop = memchr(at, '\n', (size_t)(end - at));

        buf_add(line, at, (size_t)((stop != NULL ? stop : end) - at));
        if (stop != NULL || line->byte_count > DUPLICATE_LINE_BYTES_MAX)
            end_line(duplicate, is_error, prefix, line);
        at = stop != NULL ? stop + 1 : end;
    }
}

void duplicate_end(struct duplicate *duplicate, uint32_t rank, bool is_error, const char *prefix)
{
    if (duplicate->filters[is_error].count == 0 || rank >= duplicate->rank_count)
        return;
    if (duplicate->lines[2 * rank + is_error].byte_count > 0)
        end_line(duplicate, is_error, prefix, &duplicate->lines[2 * rank + is_error]);
}

void duplicate_close(struct duplicate *duplicate)
{
    for (uint32_t i = 0; duplicate->lines != NULL && i < 2 * duplicate->rank_count; i++)
        buf_free(&duplicate->lines[i]);
    free(duplicate->lines);
    for (int k = 0; k < 2; k++) {
        if (duplicate->lines != NULL && duplicate->filters[k].fd >= 0)
            (void)close(duplicate->filters[k].fd);
        buf_free(&duplicate->filters[k].text);
    }
    duplicate->lines = NULL;
}
