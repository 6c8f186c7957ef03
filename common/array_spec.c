#include "common/array_spec.h"

#include <stdlib.h>
#include <string.h>

/* Parses a decimal number and moves `*at` past it. */
static bool take_number(const char **at, uint64_t max, uint64_t *number)
{
    size_t digits = strspn(*at, "0123456789");

    if (digits == 0 || digits > 16)
        return false;
    *number = strtoull(*at, NULL, 10);
    *at += digits;
    return *number <= max;
}

static bool take_one(const char **at, char mark, uint64_t max, uint64_t *number)
{
    if (**at != mark)
        return true;
    ++*at;
    return take_number(at, max, number) && *number > 0;
}

/* Parses "3", "7-20" or "7-20:2". False: malformed, or too many indices. */
static bool take_range(const char **at, struct array_spec *spec)
{
    uint64_t first, last, by = 1;

    if (!take_number(at, ARRAY_INDEX_MAX, &first))
        return false;
    last = first;
    if (**at == '-') {
        ++*at;
        if (!take_number(at, ARRAY_INDEX_MAX, &last) || last < first ||
            !take_one(at, ':', ARRAY_INDEX_MAX, &by))
            return false;
    }
    for (uint64_t index = first; index <= last; index += by) {
        if (spec->count < ARRAY_JOBS_MAX)
            spec->indices[spec->count] = (uint32_t)index;
        spec->count++;
    }
    return true;
}

static int compare(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

enum status array_spec_parse(const char *text, struct array_spec *spec, struct err *err)
{
    const char *at = text;
    uint64_t at_most = 0;
    bool is_good;

    *spec = (struct array_spec){0};
    is_good = take_range(&at, spec);
    while (is_good && *at == ',' && spec->count <= ARRAY_JOBS_MAX) {
        at++;
        is_good = take_range(&at, spec);
    }
    if (is_good && spec->count > ARRAY_JOBS_MAX)
        return err_set(
            err, STATUS_TOO_BIG, 0,
            "--array %.40s: an array has %u jobs at most: submit several, as --array 0-%u "
            "and --array %u-%u",
            text, ARRAY_JOBS_MAX, ARRAY_JOBS_MAX - 1, ARRAY_JOBS_MAX, 2 * ARRAY_JOBS_MAX - 1);
    if (!is_good || !take_one(&at, '%', ARRAY_JOBS_MAX, &at_most) || *at != '\0')
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--array %.60s: indices from 0 to %u are expected, as 0-9 or 1,3,7-20:2, "
                       "and %%4 behind them for at most 4 jobs at a time",
                       text, ARRAY_INDEX_MAX);
    spec->at_most = (uint32_t)at_most;
    qsort(spec->indices, spec->count, sizeof spec->indices[0], compare);
    for (uint32_t i = 1; i < spec->count; i++)
        if (spec->indices[i] == spec->indices[i - 1])
            return err_set(err, STATUS_BAD_INPUT, 0, "--array %.60s: index %u is there twice", text,
                           spec->indices[i]);
    return STATUS_OK;
}

bool array_spec_job(const char *text, uint64_t *array, uint32_t *index)
{
    const char *at = text;
    uint64_t number;

    if (!take_number(&at, UINT64_MAX, array) || *at != '_')
        return false;
    at++;
    if (!take_number(&at, ARRAY_INDEX_MAX, &number) || *at != '\0')
        return false;
    *index = (uint32_t)number;
    return true;
}

bool array_spec_is_whole(const char *word, uint64_t array_job)
{
    const bool is_number = strspn(word, "0123456789") == strlen(word);
    uint64_t array;
    uint32_t index;

    return array_job != 0 && !array_spec_job(word, &array, &index) &&
           (!is_number || strtoull(word, NULL, 10) == array_job);
}
