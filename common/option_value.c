#include "common/option_value.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool parse_u64(const char *text, const char **end, uint64_t *value)
{
    uint64_t sum = 0;

    if (*text < '0' || *text > '9')
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');

        if (sum > (UINT64_MAX - digit) / 10)
            return false;
        sum = sum * 10 + digit;
    }
    *end = text;
    *value = sum;
    return true;
}

/* The digits after the dot of "0.25", as a fraction below 1. */
static double parse_fraction(const char *text, const char **end)
{
    double fraction = 0, place = 0.1;

    for (; *text >= '0' && *text <= '9'; text++) {
        fraction += (*text - '0') * place;
        place /= 10;
    }
    *end = text;
    return fraction;
}

/* The first part of "1h30m" in microseconds; `*text` then points after it. */
static bool take_part(const char **text, bool is_first, uint64_t *part_us)
{
    static const struct {
        const char *unit;
        uint64_t us;
    } units[] = {{"us", 1},         {"ms", 1000},      {"s", 1000000},     {"m", 60000000},
                 {"min", 60000000}, {"h", 3600000000}, {"d", 86400000000}, {"", 1000000}};
    const char *unit;
    uint64_t count, rest_us;
    size_t letters = 0;
    double fraction = 0;

    if (!parse_u64(*text, &unit, &count))
        return false;
    if (unit[0] == '.' && isdigit((unsigned char)unit[1]))
        fraction = parse_fraction(unit + 1, &unit);
    while (isalpha((unsigned char)unit[letters]))
        letters++;
    if (letters == 0 && (!is_first || unit[0] != '\0'))
        return false; /* "1h30" could be minutes or seconds */
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strlen(units[i].unit) != letters || strncmp(unit, units[i].unit, letters) != 0)
            continue;
        rest_us = (uint64_t)(fraction * (double)units[i].us + 0.5);
        if (count > (UINT64_MAX - rest_us) / units[i].us)
            return false;
        *part_us = count * units[i].us + rest_us;
        *text = unit + letters;
        return true;
    }
    return false;
}

bool options_parse_duration(const char *text, uint64_t *duration_us)
{
    uint64_t sum_us = 0, part_us = 0;
    bool is_first = true;

    do {
        if (!take_part(&text, is_first, &part_us) || part_us > UINT64_MAX - sum_us)
            return false;
        sum_us += part_us;
        is_first = false;
    } while (*text != '\0');
    *duration_us = sum_us;
    return true;
}

static enum status refuse(const char *shown, const char *text, const char *expected,
                          struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "%s: \"%.60s\" is not %s", shown, text, expected);
}

enum status options_parse_number(const char *shown, const char *text, uint64_t min, uint64_t max,
                                 uint64_t *value, struct err *err)
{
    const char *end;
    uint64_t number;

    assert(min <= max);
    if (!parse_u64(text, &end, &number) || *end != '\0')
        return refuse(shown, text, "a whole number", err);
    if (number < min || number > max)
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: %.60s is not in %" PRIu64 "..%" PRIu64, shown,
                       text, min, max);
    *value = number;
    return STATUS_OK;
}

static enum status set_integer(const struct option_row *row, const char *shown, const char *text,
                               void *into, struct err *err)
{
    uint64_t value, max = row->max;
    enum status status;

    if (max == 0)
        max = row->kind == OPTION_U32 ? UINT32_MAX : UINT64_MAX;
    status = options_parse_number(shown, text, row->min, max, &value, err);
    if (status != STATUS_OK)
        return status;
    if (row->kind == OPTION_U32)
        *(uint32_t *)into = (uint32_t)value;
    else
        *(uint64_t *)into = value;
    return STATUS_OK;
}

static enum status set_duration(const struct option_row *row, const char *shown, const char *text,
                                void *into, struct err *err)
{
    uint64_t value;

    if (!options_parse_duration(text, &value))
        return refuse(shown, text, "a duration as 250ms, 10s, 1h30m or 1d", err);
    if (value < row->min || (row->max != 0 && value > row->max))
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: %.60s is not in %.15g..%.15g seconds", shown,
                       text, (double)row->min / 1e6, (double)row->max / 1e6);
    *(uint64_t *)into = value;
    return STATUS_OK;
}

static bool parse_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    const char *end, *unit;
    uint64_t number;
    uint32_t shift = 0;

    if (!parse_u64(text, &end, &number))
        return false;
    unit = *end != '\0' ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit != NULL)
        shift = 10 * (uint32_t)(unit - units + 1);
    *bytes = number << shift;
    return *bytes >> shift == number && *(end + (unit != NULL)) == '\0';
}

static enum status set_size(const struct option_row *row, const char *shown, const char *text,
                            void *into, struct err *err)
{
    uint64_t value;

    if (!parse_size(text, &value))
        return refuse(shown, text, "a size as 500K, 100M or 1G", err);
    if (value < row->min || (row->max != 0 && value > row->max))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%s: %.60s is not in %" PRIu64 "..%" PRIu64 " bytes", shown, text, row->min,
                       row->max != 0 ? row->max : UINT64_MAX);
    *(uint64_t *)into = value;
    return STATUS_OK;
}

static enum status set_real(const struct option_row *row, const char *shown, const char *text,
                            void *into, struct err *err)
{
    bool has_range = row->real_min != 0 || row->real_max != 0;
    double value;
    char *end;

    errno = 0;
    value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || *text == ' ' || *text == '\t')
        return refuse(shown, text, "a number", err);
    if (has_range && !(value >= row->real_min && value <= row->real_max))
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: %.60s is not in %g..%g", shown, text,
                       row->real_min, row->real_max);
    if (row->kind == OPTION_F32)
        *(float *)into = (float)value;
    else
        *(double *)into = value;
    return STATUS_OK;
}

static enum status set_flag(const char *shown, const char *text, void *into, struct err *err)
{
    static const char *const yes[] = {"1", "true", "yes", "on"}, *const no[] = {"0", "false", "no",
                                                                                "off"};

    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *(bool *)into = strcasecmp(text, yes[i]) == 0;
            return STATUS_OK;
        }
    }
    return refuse(shown, text, "true or false", err);
}

static enum status set_choice(const struct option_row *row, const char *shown, const char *text,
                              void *into, struct err *err)
{
    const char *at = row->words;

    for (uint32_t i = 0;; i++) {
        size_t count = strcspn(at, "|");

        if (strlen(text) == count && strncmp(at, text, count) == 0) {
            *(uint32_t *)into = i;
            return STATUS_OK;
        }
        if (at[count] == '\0')
            break;
        at += count + 1;
    }
    return err_set(err, STATUS_BAD_INPUT, 0, "%s: \"%.60s\" is none of %s", shown, text,
                   row->words);
}

static enum status add_text(const char *shown, const char *text, struct option_texts *texts,
                            struct err *err)
{
    if (texts->count >= OPTION_TEXTS_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "%s: given more than %u times", shown,
                       OPTION_TEXTS_MAX);
    texts->items[texts->count++] = text;
    return STATUS_OK;
}

static void check_size(const struct option_row *row, size_t byte_count)
{
    assert(row->byte_count == byte_count); /* fails where the type of the member does not match the
                                            * kind */
    (void)row;
    (void)byte_count;
}

enum status option_value_set(const struct option_row *row, const char *shown, const char *text,
                             void *into, struct err *err)
{
    switch (row->kind) {
    case OPTION_FLAG:
        check_size(row, sizeof(bool));
        return set_flag(shown, text, into, err);
    case OPTION_U32:
        check_size(row, sizeof(uint32_t));
        assert(row->max <= UINT32_MAX);
        return set_integer(row, shown, text, into, err);
    case OPTION_U64:
        check_size(row, sizeof(uint64_t));
        return set_integer(row, shown, text, into, err);
    case OPTION_F32:
        check_size(row, sizeof(float));
        return set_real(row, shown, text, into, err);
    case OPTION_F64:
        check_size(row, sizeof(double));
        return set_real(row, shown, text, into, err);
    case OPTION_DURATION:
        check_size(row, sizeof(uint64_t));
        return set_duration(row, shown, text, into, err);
    case OPTION_SIZE:
        check_size(row, sizeof(uint64_t));
        return set_size(row, shown, text, into, err);
    case OPTION_TEXT:
        check_size(row, sizeof(const char *));
        assert(row->min <= 1);
        if (row->min == 1 && text[0] == '\0')
            return err_set(err, STATUS_BAD_INPUT, 0, "%s: the value is empty", shown);
        *(const char **)into = text;
        return STATUS_OK;
    case OPTION_TEXTS:
        check_size(row, sizeof(struct option_texts));
        return add_text(shown, text, into, err);
    case OPTION_WORD:
        check_size(row, sizeof(uint32_t));
        return set_choice(row, shown, text, into, err);
    case OPTION_IGNORED:
        return STATUS_OK;
    }
    assert(row->kind <= OPTION_IGNORED);
    return STATUS_BAD_INPUT;
}
