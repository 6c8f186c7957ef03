#include "common/after_spec.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static_assert(AFTER_SPEC_BYTES_MAX >= AFTER_MAX * (JOB_NAME_BYTES_MAX + sizeof ":any,"),
              "the longest list fits");

/* Parses one job [byte_count], without the comma. Blanks around it are ignored; job names have
 * none. */
static bool parse_item(const char *text, size_t byte_count, struct after_spec_item *item)
{
    for (; byte_count > 0 && *text == ' '; byte_count--)
        text++;
    while (byte_count > 0 && text[byte_count - 1] == ' ')
        byte_count--;

    const char *colon = memchr(text, ':', byte_count);
    const size_t job_bytes = colon != NULL ? (size_t)(colon - text) : byte_count;
    const size_t how_bytes = byte_count - job_bytes;

    if (job_bytes == 0 || job_bytes >= sizeof item->job || memchr(text, ' ', job_bytes) != NULL)
        return false;
    (void)snprintf(item->job, sizeof item->job, "%.*s", (int)job_bytes, text);
    item->any = how_bytes == 4 && memcmp(colon, ":any", 4) == 0;
    return how_bytes == 0 || item->any || (how_bytes == 3 && memcmp(colon, ":ok", 3) == 0);
}

enum status after_spec_parse(const char *text, struct after_spec *spec, struct err *err)
{
    spec->count = 0;
    for (const char *at = text;; at++) {
        const size_t byte_count = strcspn(at, ",");

        if (spec->count == AFTER_MAX)
            return err_set(err, STATUS_TOO_BIG, 0,
                           "--after: a job can wait for %u others at most; an array counts as one",
                           AFTER_MAX);
        if (!parse_item(at, byte_count, &spec->items[spec->count++]))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "--after %.80s: a job is expected, as 12, 12:ok (it has succeeded) or "
                           "12:any (it has ended), or several with commas between them",
                           text);
        at += byte_count;
        if (*at == '\0')
            return STATUS_OK;
    }
}
