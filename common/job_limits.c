#include "common/job_limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define NUMBER_BYTES 24

static const struct {
    const char *name;
    int resource;
    uint64_t usual;
} table[JOB_LIMIT_COUNT] = {
#define ROW(suffix, name, usual) {name, RLIMIT_##suffix, usual},
    JOB_LIMITS_TABLE(ROW)
#undef ROW
};

int job_limit_resource(enum job_limit limit)
{
    return table[limit].resource;
}

bool job_limit_is_chosen(enum job_limit limit, uint64_t soft)
{
    return limit == JOB_LIMIT_MEMLOCK ? soft > table[limit].usual : soft != table[limit].usual;
}

static const char *show(uint64_t value, char text[NUMBER_BYTES])
{
    if (value == JOB_LIMIT_NONE)
        return "unlimited";
    (void)snprintf(text, NUMBER_BYTES, "%" PRIu64, value);
    return text;
}

void job_limits_format(const struct job_limits *limits, char text[JOB_LIMITS_TEXT_BYTES])
{
    char number[NUMBER_BYTES];
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < JOB_LIMIT_COUNT; i++)
        if (limits->is_set[i])
            used +=
                (size_t)snprintf(text + used, JOB_LIMITS_TEXT_BYTES - used, "%s%s=%s",
                                 used > 0 ? "," : "", table[i].name, show(limits->soft[i], number));
}

static bool parse_value(const char *text, size_t length, uint64_t *value)
{
    if (length == strlen("unlimited") && memcmp(text, "unlimited", length) == 0) {
        *value = JOB_LIMIT_NONE;
        return true;
    }
    *value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || i == 18)
            return false;
        *value = *value * 10 + (uint64_t)(text[i] - '0');
    }
    return length > 0;
}

/* "nofile=4096" */
static bool parse_one(const char *text, size_t length, struct job_limits *limits)
{
    for (int i = 0; i < JOB_LIMIT_COUNT; i++) {
        const size_t bytes = strlen(table[i].name);

        if (length <= bytes || memcmp(text, table[i].name, bytes) != 0 || text[bytes] != '=' ||
            limits->is_set[i])
            continue;
        limits->is_set[i] = true;
        return parse_value(text + bytes + 1, length - bytes - 1, &limits->soft[i]);
    }
    return false;
}

bool job_limits_parse(const char *text, struct job_limits *limits)
{
    *limits = (struct job_limits){.is_set = {false}};
    for (;; text++) {
        const size_t length = strcspn(text, ",");

        if (!parse_one(text, length, limits))
            return false;
        text += length;
        if (*text == '\0')
            return true;
    }
}

void job_limits_fit(struct job_limits *limits, const uint64_t hard[JOB_LIMIT_COUNT],
                    const uint64_t soft[JOB_LIMIT_COUNT], char *cut, size_t cut_bytes)
{
    char wanted[NUMBER_BYTES], most[NUMBER_BYTES];
    size_t used = 0;

    cut[0] = '\0';
    for (int i = 0; i < JOB_LIMIT_COUNT; i++) {
        if (!limits->is_set[i])
            continue;
        if (limits->soft[i] > hard[i] && used < cut_bytes)
            used += (size_t)snprintf(cut + used, cut_bytes - used, "%s%s %s (here %s)",
                                     used > 0 ? ", " : "", table[i].name,
                                     show(limits->soft[i], wanted), show(hard[i], most));
        if (limits->soft[i] > hard[i])
            limits->soft[i] = hard[i];
        if (i == JOB_LIMIT_MEMLOCK && limits->soft[i] < soft[i])
            limits->soft[i] = soft[i];
    }
}
