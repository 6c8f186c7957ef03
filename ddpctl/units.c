#include "ddpctl/units.h"

#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "common/msg.h"

struct unit {
    const char *name;
    double us;
};

static const struct unit units[] = {
    {"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"m", 60e6}, {"h", 3600e6}, {"d", 86400e6},
};

/* The unit that `text` begins with, as a whole word of letters; "" is seconds. NULL: none. */
static const struct unit *find_unit(const char *text, size_t *byte_count)
{
    size_t letters = 0;

    while (isalpha((unsigned char)text[letters]))
        letters++;
    *byte_count = letters;
    if (letters == 0)
        return text[0] == '\0' ? &units[2] : NULL;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strlen(units[i].name) == letters && memcmp(units[i].name, text, letters) == 0)
            return &units[i];
    return NULL;
}

enum status duration_parse(const char *text, uint64_t *duration_us, struct err *err)
{
    const char *at = text;
    double sum_us = 0;

    if (*at == '\0')
        goto bad;
    while (*at != '\0') {
        const struct unit *unit;
        size_t digits = strspn(at, "0123456789."), letters;
        char number[32], *end;

        if (digits == 0 || digits >= sizeof number)
            goto bad;
        memcpy(number, at, digits);
        number[digits] = '\0';
        unit = find_unit(at + digits, &letters);
        if (!unit)
            goto bad;
        sum_us += strtod(number, &end) * unit->us;
        if (*end != '\0')
            goto bad;
        at += digits + letters;
    }
    if (!(sum_us <= (double)DURATION_US_MAX))
        return err_set(err, STATUS_TOO_BIG, 0, "%.40s is longer than 366 days", text);
    *duration_us = (uint64_t)(sum_us + 0.5);
    return STATUS_OK;

bad:
    return err_set(err, STATUS_BAD_INPUT, 0, "'%.40s' is no duration; examples: 30s, 5m, 1h30m",
                   text);
}

void duration_words(uint64_t duration_us, char words[WORDS_BYTES])
{
    unsigned long long s = duration_us / 1000000u, m = s / 60, h = m / 60, d = h / 24;

    if (d > 0)
        (void)snprintf(words, WORDS_BYTES, "%llud%02lluh", d, h % 24);
    else if (h > 0)
        (void)snprintf(words, WORDS_BYTES, "%lluh%02llum", h, m % 60);
    else if (m >= 10 || (m > 0 && s % 60 == 0))
        (void)snprintf(words, WORDS_BYTES, "%llum", m);
    else if (m > 0)
        (void)snprintf(words, WORDS_BYTES, "%llum%02llus", m, s % 60);
    else
        (void)snprintf(words, WORDS_BYTES, "%llus", s);
}

void count_words(double value, char words[WORDS_BYTES])
{
    static const char suffixes[] = " kMGTPE";
    size_t thousands = 0;

    if (!isfinite(value) || value < 0) {
        (void)snprintf(words, WORDS_BYTES, "-");
        return;
    }
    if (value < 999.5) {
        (void)snprintf(words, WORDS_BYTES, value < 9.95 && value != floor(value) ? "%.1f" : "%.0f",
                       value);
        return;
    }
    while (value >= 999.5 && thousands < sizeof suffixes - 2) {
        value /= 1000;
        thousands++;
    }
    (void)snprintf(words, WORDS_BYTES, "%.1f", value);
    if (value >= 99.95 || strstr(words, ".0"))
        (void)snprintf(words, WORDS_BYTES, "%.0f", value);
    (void)snprintf(words + strlen(words), WORDS_BYTES - strlen(words), "%c", suffixes[thousands]);
}

void time_words(int64_t wall_ms, char words[WORDS_BYTES])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    size_t used;

    if (!gmtime_r(&seconds, &tm) || tm.tm_year > 9999 - 1900) {
        (void)snprintf(words, WORDS_BYTES, "9999-12-31T23:59:59.999Z");
        return;
    }
    used = strftime(words, WORDS_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(words + used, WORDS_BYTES - used, ".%03uZ", (unsigned)(wall_ms % 1000));
}

void signal_words(uint32_t signal, char words[WORDS_BYTES])
{
    const char *name = sigabbrev_np((int)signal);

    if (name)
        (void)snprintf(words, WORDS_BYTES, "SIG%s", name);
    else
        (void)snprintf(words, WORDS_BYTES, "signal %u", signal);
}

enum status signal_parse(const char *text, uint32_t *signal, struct err *err)
{
    const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
    uint64_t number = 0;

    if (number_parse("signal", text, 1, 64, &number, NULL) == STATUS_OK) {
        *signal = (uint32_t)number;
        return STATUS_OK;
    }
    for (int i = 1; i < NSIG; i++) {
        const char *known = sigabbrev_np(i);

        if (known && strcasecmp(known, name) == 0) {
            *signal = (uint32_t)i;
            return STATUS_OK;
        }
    }
    return err_set(err, STATUS_BAD_INPUT, 0, "'%.40s' is no signal; examples: TERM, USR1, 9", text);
}

enum status number_parse(const char *what, const char *text, uint64_t min, uint64_t max,
                         uint64_t *value, struct err *err)
{
    uint64_t sum = 0;

    if (*text == '\0')
        return err_set(err, STATUS_BAD_INPUT, 0, "%s: a number is missing", what);
    for (const char *at = text; *at; at++) {
        if (!isdigit((unsigned char)*at))
            return err_set(err, STATUS_BAD_INPUT, 0, "%s: '%.40s' is no whole number", what, text);
        if (sum > (UINT64_MAX - 9) / 10)
            return err_set(err, STATUS_TOO_BIG, 0, "%s: %.40s is too big", what, text);
        sum = sum * 10 + (uint64_t)(*at - '0');
    }
    if (sum < min || sum > max)
        return err_set(err, STATUS_TOO_BIG, 0, "%s: %.40s is not in %llu..%llu", what, text,
                       (unsigned long long)min, (unsigned long long)max);
    *value = sum;
    return STATUS_OK;
}

/* Edits (insert, delete, replace, swap of neighbours) between two words of less than 32 bytes.
 * Damerau-Levenshtein, optimal string alignment. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned rows[3][33] = {{0}};
    size_t a_length = strlen(a), b_length = strlen(b);

    if (a_length > 31 || b_length > 31)
        return 99;
    for (unsigned j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        unsigned *now = rows[i % 3], *before = rows[(i + 2) % 3], *before2 = rows[(i + 1) % 3];

        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned best = before[j - 1] + (a[i - 1] != b[j - 1]);

            if (before[j] + 1 < best)
                best = before[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before2[j - 2] + 1 < best)
                best = before2[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[a_length % 3][b_length];
}

const char *guess_word(const char *typed, const char *const *words, size_t count)
{
    const char *best = NULL;
    size_t length = strlen(typed);
    unsigned best_distance = length <= 3 ? 2 : length <= 7 ? 3 : 4; /* below this is near */

    for (size_t i = 0; i < count; i++) {
        unsigned distance = edit_distance(typed, words[i]);

        if (length >= 3 && strncmp(typed, words[i], length) == 0 && distance > 1)
            distance = 1; /* an abbreviation */
        if (distance < best_distance) {
            best_distance = distance;
            best = words[i];
        }
    }
    return best;
}
