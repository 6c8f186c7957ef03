#include "ddpctl/flags.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ddpctl/units.h"

#define NAME_BYTES 64

static bool takes_value(const struct flag *flag)
{
    return flag->kind != FLAG_SWITCH;
}

static enum status set_switch(const struct flag *flag, const char *text, bool *out, struct err *err)
{
    static const char *const yes[] = {"1", "true", "yes", "on"}, *const no[] = {"0", "false", "no",
                                                                                "off"};

    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *out = strcasecmp(text, yes[i]) == 0;
            return STATUS_OK;
        }
    }
    return err_set(err, STATUS_BAD_INPUT, 0, "--%s is a switch: '%.40s' should be 1 or 0",
                   flag->name, text);
}

static enum status set_number(const struct flag *flag, const char *text, void *field,
                              struct err *err)
{
    char what[NAME_BYTES + 2];
    uint64_t number = 0;
    enum status status;

    (void)snprintf(what, sizeof what, "--%s", flag->name);
    status = number_parse(what, text, flag->min, flag->max, &number, err);
    if (status == STATUS_OK)
        *(uint32_t *)field = (uint32_t)number;
    return status;
}

static enum status set_duration(const struct flag *flag, const char *text, void *field,
                                struct err *err)
{
    struct err why = {0};
    enum status status = duration_parse(text, field, &why);

    return status == STATUS_OK ? status
                               : err_set(err, status, 0, "--%s: %.200s", flag->name, why.text);
}

static enum status set_flag(const struct flag_table *table, const struct flag *flag,
                            const char *text, void *target, struct err *err)
{
    void *field = (char *)target + flag->offset;
    struct flag_list *list;

    switch (flag->kind) {
    case FLAG_SWITCH:
        return set_switch(flag, text, field, err);
    case FLAG_TEXT:
        if (*text == '\0')
            return err_set(err, STATUS_BAD_INPUT, 0, "--%s: the value is empty", flag->name);
        *(const char **)field = text;
        return STATUS_OK;
    case FLAG_NUMBER:
        return set_number(flag, text, field, err);
    case FLAG_DURATION:
        return set_duration(flag, text, field, err);
    case FLAG_LIST:
        list = field;
        if (list->count == FLAG_LIST_MAX)
            return err_set(err, STATUS_TOO_BIG, 0, "--%s is given more than %u times", flag->name,
                           FLAG_LIST_MAX);
        list->items[list->count++] = text;
        return STATUS_OK;
    case FLAG_IGNORED:
        if (table->on_ignored)
            table->on_ignored(target, flag->name);
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* `typed` without dashes and value, '_' as '-', into `name`. */
static void plain_name(const char *typed, size_t length, char name[NAME_BYTES])
{
    size_t i;

    for (i = 0; i < length && i < NAME_BYTES - 1; i++)
        name[i] = typed[i];
    name[i] = '\0';
    for (i = 0; name[i]; i++)
        if (name[i] == '_')
            name[i] = '-';
}

static const struct flag *find_name(const struct flag_table *table, uint32_t verb, const char *name)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct flag *flag = &table->flags[i];

        if ((flag->verbs & verb) &&
            (strcmp(flag->name, name) == 0 || (flag->synonym && strcmp(flag->synonym, name) == 0)))
            return flag;
    }
    return NULL;
}

static const struct flag *find_letter(const struct flag_table *table, uint32_t verb, char letter)
{
    for (size_t i = 0; i < table->count; i++)
        if ((table->flags[i].verbs & verb) && table->flags[i].letter == letter)
            return &table->flags[i];
    return NULL;
}

static enum status unknown_name(const struct flag_table *table, uint32_t verb,
                                const char *verb_name, const char *name, struct err *err)
{
    const char *words[256], *guess;
    size_t count = 0;

    if (find_name(table, UINT32_MAX, name))
        return err_set(err, STATUS_NOT_FOUND, 0, "--%s is not an option of %s; see ddpctl help %s",
                       name, verb_name, verb_name);
    for (size_t i = 0; i < table->count && count + 2 <= 256; i++) {
        if (!(table->flags[i].verbs & verb))
            continue;
        words[count++] = table->flags[i].name;
        if (table->flags[i].synonym)
            words[count++] = table->flags[i].synonym;
    }
    guess = guess_word(name, words, count);
    if (guess)
        return err_set(err, STATUS_NOT_FOUND, 0, "no option --%s; did you mean --%s?", name, guess);
    return err_set(err, STATUS_NOT_FOUND, 0, "no option --%s; see ddpctl help %s", name, verb_name);
}

/* One call's view of the command line. */
struct scan {
    const struct flag_table *table;
    uint32_t verb;
    const char *verb_name;
    int argc;
    char *const *argv;
    int *index;
    void *target;
};

static enum status take_long(const struct scan *scan, struct err *err)
{
    const char *typed = scan->argv[*scan->index] + 2, *equals = strchr(typed, '='), *value;
    size_t length = equals ? (size_t)(equals - typed) : strlen(typed);
    const struct flag *flag;
    char name[NAME_BYTES];

    plain_name(typed, length, name);
    flag = find_name(scan->table, scan->verb, name);
    if (!flag)
        return unknown_name(scan->table, scan->verb, scan->verb_name, name, err);
    ++*scan->index;
    if (!takes_value(flag))
        return set_flag(scan->table, flag, equals ? equals + 1 : "1", scan->target, err);
    value = equals ? equals + 1 : *scan->index < scan->argc ? scan->argv[(*scan->index)++] : NULL;
    if (!value)
        return err_set(err, STATUS_BAD_INPUT, 0, "--%s wants a value: %s", flag->name, flag->value);
    return set_flag(scan->table, flag, value, scan->target, err);
}

/* "-f", "-fw", "-n4", "-n 4" */
static enum status take_letters(const struct scan *scan, struct err *err)
{
    const char *at = scan->argv[*scan->index] + 1;

    ++*scan->index;
    for (; *at; at++) {
        const struct flag *flag = find_letter(scan->table, scan->verb, *at);
        const char *value = at + 1;
        enum status status;

        if (!flag)
            return err_set(err, STATUS_NOT_FOUND, 0, "no option -%c; see ddpctl help %s",
                           isprint((unsigned char)*at) ? *at : '?', scan->verb_name);
        if (takes_value(flag)) {
            if (*value == '\0')
                value = *scan->index < scan->argc ? scan->argv[(*scan->index)++] : NULL;
            if (!value)
                return err_set(err, STATUS_BAD_INPUT, 0, "-%c wants a value: %s", *at, flag->value);
            return set_flag(scan->table, flag, value, scan->target, err);
        }
        status = set_flag(scan->table, flag, "1", scan->target, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status flags_parse(const struct flag_table *table, uint32_t verb, const char *verb_name,
                        int argc, char *const *argv, int *index, bool *dashes, void *target,
                        struct err *err)
{
    struct scan scan = {.table = table,
                        .verb = verb,
                        .verb_name = verb_name,
                        .argc = argc,
                        .argv = argv,
                        .index = index,
                        .target = target};

    *dashes = false;
    while (*index < argc) {
        const char *word = argv[*index];
        enum status status;

        if (word[0] != '-' || word[1] == '\0')
            return STATUS_OK;
        if (strcmp(word, "--") == 0) {
            *dashes = true;
            ++*index;
            return STATUS_OK;
        }
        status = word[1] == '-' ? take_long(&scan, err) : take_letters(&scan, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

void flag_variable(const struct flag *flag, char name[64])
{
    size_t length = (size_t)snprintf(name, 64, "DDP_%s", flag->name);

    assert(length < 64);
    for (size_t i = 4; i < length; i++)
        name[i] = name[i] == '-' ? '_' : (char)toupper((unsigned char)name[i]);
}

enum status flags_env(const struct flag_table *table, uint32_t verb, void *target, struct err *err)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct flag *flag = &table->flags[i];
        char name[64];
        const char *value;
        struct err why = {0};
        enum status status;

        if (!(flag->verbs & verb) || flag->kind == FLAG_IGNORED)
            continue;
        flag_variable(flag, name);
        value = getenv(name);
        if (!value || *value == '\0')
            continue;
        status = set_flag(table, flag, value, target, &why);
        if (status != STATUS_OK)
            return err_set(err, status, 0, "%s in the environment: %.180s", name, why.text);
    }
    return STATUS_OK;
}
