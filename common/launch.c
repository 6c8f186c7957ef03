#include "common/launch.h"

#include <stdlib.h>
#include <assert.h>
#include <string.h>

#include "common/job_limits.h"

#define NAME_BYTES_MAX 64u

#define LAUNCH_NAME(suffix, name, values) name,
static const char *const names[] = {LAUNCH_TABLE(LAUNCH_NAME)};
#define LAUNCH_VALUES(suffix, name, values) values,
static const char *const values[] = {LAUNCH_TABLE(LAUNCH_VALUES)};

const char *launch_name(enum launch_option option)
{
    return names[option];
}

bool launch_find(const char *name, enum launch_option *option)
{
    for (uint32_t i = 0; i < LAUNCH_COUNT; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        *option = (enum launch_option)i;
        return true;
    }
    return false;
}

const char *launch_value(const struct msg_pair_list *launch, enum launch_option option)
{
    for (uint32_t i = 0; i < launch->count; i++)
        if (strcmp(launch->items[i].name, names[option]) == 0)
            return launch->items[i].value;
    return NULL;
}

bool launch_has_word(const char *words, const char *word)
{
    size_t bytes = strlen(word);

    for (;;) {
        size_t length = strcspn(words, ",");
        if (length == bytes && memcmp(words, word, bytes) == 0)
            return true;
        if (words[length] == '\0')
            return false;
        words += length + 1;
    }
}

static bool are_styles(const char *value)
{
    for (;;) {
        char word[16];
        size_t length = strcspn(value, ",");
        if (length >= sizeof word)
            return false;
        memcpy(word, value, length);
        word[length] = '\0';
        if (!launch_has_word("torch,slurm,horovod,mpi", word))
            return false;
        if (value[length] == '\0')
            return true;
        value += length + 1;
    }
}

static bool is_name(const char *value)
{
    size_t bytes = strlen(value);

    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)value[i] < ' ' || value[i] == 0x7f)
            return false;
    return bytes > 0 && bytes <= NAME_BYTES_MAX;
}

/* Parses a decimal number of at most `max` and moves `*text` past it. */
static bool take_number(const char **text, uint32_t max, uint32_t *number)
{
    const char *at = *text;
    uint32_t value = 0;

    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint32_t)(*at - '0');
        if (value > max || at - *text > 8)
            return false;
    }
    if (at == *text)
        return false;
    *text = at;
    *number = value;
    return true;
}

/* "2:local_rank" */
static bool take_argument(const char *value, uint32_t *before, const char **name)
{
    *name = value;
    if (strcspn(value, ":") > 4 || !take_number(name, 9999, before) || *(*name)++ != ':' ||
        **name == '-')
        return false;
    size_t bytes = strlen(*name);
    return bytes > 0 && bytes < NAME_BYTES_MAX &&
           (*name)[strspn(
               *name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")] == '\0';
}

const char *launch_local_rank_arg(const struct msg_pair_list *launch, uint32_t argv_count,
                                  uint32_t *before)
{
    const char *value = launch_value(launch, LAUNCH_LOCAL_RANK_ARG), *name;
    uint32_t at;

    if (value == NULL || !take_argument(value, &at, &name))
        return NULL;
    *before = at < argv_count ? at : argv_count;
    return name;
}

bool launch_rank(const char *value, uint32_t *rank)
{
    return take_number(&value, RANKS_PER_JOB_MAX - 1, rank) && *value == '\0';
}

bool launch_size(const char *value, uint32_t *rows, uint32_t *columns)
{
    return take_number(&value, 65535, rows) && *value++ == 'x' &&
           take_number(&value, 65535, columns) && *value == '\0';
}

bool launch_mask(const char *value, uint32_t *mask)
{
    const size_t digits = strspn(value, "01234567");

    *mask = digits > 0 && digits <= 4 ? (uint32_t)strtoul(value, NULL, 8) : UINT32_MAX;
    return value[digits] == '\0' && *mask <= 0777;
}

static bool is_valid(enum launch_option option, const char *value)
{
    struct job_limits limits;
    const char *name;
    uint32_t before;

    uint32_t first, second;

    switch (option) {
    case LAUNCH_ENV_STYLE:
        return are_styles(value);
    case LAUNCH_LOCAL_RANK_ARG:
        return take_argument(value, &before, &name);
    case LAUNCH_ROLE:
    case LAUNCH_RUN_ID:
        return is_name(value);
    case LAUNCH_STORE:
        return strcmp(value, "on") == 0 || strcmp(value, "off") == 0;
    case LAUNCH_VIRTUAL_LOCAL_RANK:
        return strcmp(value, "on") == 0;
    case LAUNCH_STDIN:
        return launch_rank(value, &first);
    case LAUNCH_TTY:
        return launch_size(value, &first, &second);
    case LAUNCH_STREAMS:
        return strcmp(value, "one") == 0;
    case LAUNCH_UMASK:
        return launch_mask(value, &first);
    case LAUNCH_LIMITS:
        return job_limits_parse(value, &limits);
    case LAUNCH_COUNT:
        break;
    }
    return false;
}

enum status launch_check(enum launch_option option, const char *value, struct err *err)
{
    assert(option < LAUNCH_COUNT);
    if (is_valid(option, value))
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, 0, "--%s %.60s: %s is expected", names[option], value,
                   values[option]);
}

enum status launch_check_all(const struct msg_pair_list *launch, struct err *err)
{
    for (uint32_t i = 0; i < launch->count; i++) {
        enum launch_option option;
        if (!launch_find(launch->items[i].name, &option))
            return err_set(err, STATUS_BAD_INPUT, 0,
                           "there is no launch option '%.60s' in this version",
                           launch->items[i].name);
        enum status status = launch_check(option, launch->items[i].value, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}
