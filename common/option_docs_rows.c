#include "common/option_docs_rows.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool option_row_takes_value(const struct option_row *row)
{
    return row->kind != OPTION_FLAG;
}

const char *option_row_value(const struct option_row *row)
{
    if (row->kind == OPTION_FLAG)
        return NULL;
    if (row->value != NULL)
        return row->value;
    return row->words != NULL ? row->words : "VALUE";
}

bool option_row_is_shown(const struct option_row *row, uint32_t bit)
{
    if (row->help == NULL)
        return false;
    return bit == 0 ? row->verbs == 0 : (row->verbs & bit) != 0;
}

void option_words(const char *choices, char words[OPTION_WORDS_BYTES])
{
    size_t used = 0;

    words[0] = '\0';
    while (*choices != '\0') {
        size_t count = strcspn(choices, "|"), letters = 0;

        while (letters < count && (islower((unsigned char)choices[letters]) ||
                                   (letters > 0 && choices[letters] == '-')))
            letters++;
        if (letters == count && count > 0 && used + count + 2 < OPTION_WORDS_BYTES)
            used += (size_t)snprintf(words + used, OPTION_WORDS_BYTES - used, "%s%.*s",
                                     used > 0 ? " " : "", (int)count, choices);
        choices += count + (choices[count] == '|');
    }
}

static enum option_hint hint_of_name(const char *name)
{
    static const struct {
        const char *name;
        enum option_hint hint;
    } hints[] = {
        {"DIR", OPTION_HINT_FOLDER},      {"FILE", OPTION_HINT_FILE},
        {"PATH", OPTION_HINT_FILE},       {"JOB", OPTION_HINT_JOB},
        {"SIGNAL", OPTION_HINT_SIGNAL},   {"NODE", OPTION_HINT_NODE},
        {"JOB...", OPTION_HINT_JOB},      {"[JOB]", OPTION_HINT_JOB},
        {"[JOB...]", OPTION_HINT_JOB},    {"CMD...", OPTION_HINT_FILE},
        {"[JOB.json]", OPTION_HINT_FILE}, {"[DATA]", OPTION_HINT_FOLDER},
    };

    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (strcmp(hints[i].name, name) == 0)
            return hints[i].hint;
    return OPTION_HINT_NONE;
}

enum option_hint option_row_hint(const struct option_row *row)
{
    char words[OPTION_WORDS_BYTES];

    if (row->kind == OPTION_FLAG)
        return OPTION_HINT_NONE;
    option_words(row->words != NULL ? row->words : "", words);
    if (words[0] != '\0')
        return OPTION_HINT_WORDS;
    if (row->value == NULL)
        return OPTION_HINT_NONE;
    if (strchr(row->value, '|') != NULL)
        return OPTION_HINT_WORDS;
    return hint_of_name(row->value);
}

void option_verb_actions(const struct option_verb *verb, char words[OPTION_WORDS_BYTES])
{
    char choices[OPTION_WORDS_BYTES] = "";
    const char *usage = verb->usage;
    size_t used = 0;

    while (usage != NULL) { /* "node show|drain NAME, node list" */
        const char *second = strchr(usage, ' '), *comma = strstr(usage, ", ");

        if (second == NULL)
            break;
        second += 1 + (second[1] == '[');
        if (strncmp(second, "options", 7) != 0 && used < sizeof choices)
            used += (size_t)snprintf(choices + used, sizeof choices - used, "%s%.*s",
                                     used > 0 ? "|" : "", (int)strcspn(second, ", ]"), second);
        usage = comma != NULL ? comma + 2 : NULL;
    }
    option_words(choices, words);
}

/* The last word of the usage tells what kind of argument the verb has. */
enum option_hint option_verb_hint(const struct option_verb *verb)
{
    const char *last = strrchr(verb->usage, ' ');

    if (last == NULL)
        return OPTION_HINT_NONE;
    if (strcmp(verb->name, "node") == 0)
        return OPTION_HINT_NODE;
    return hint_of_name(last + 1);
}

void option_function_name(const char *program, char name[OPTION_NAME_BYTES])
{
    (void)snprintf(name, OPTION_NAME_BYTES, "_%s", program);
    for (char *at = name; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at))
            *at = '_';
}
