#include "common/options.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/option_value.h"

#define NAME_BYTES_MAX 64u

struct parser {
    const struct option_table *table;
    char *const *argv;
    int argc, at;
    char *into;
    struct option_result *result;
    struct err *err;
};

static char dashed(char c)
{
    return c == '_' ? '-' : c;
}

static bool is_same(const char *typed, size_t typed_count, const char *name, size_t name_count)
{
    if (typed_count != name_count)
        return false;
    for (size_t i = 0; i < name_count; i++)
        if (dashed(typed[i]) != name[i])
            return false;
    return true;
}

static bool has_name(const struct option_row *row, const char *typed, size_t count)
{
    const char *at = row->synonyms;

    if (is_same(typed, count, row->name, strlen(row->name)))
        return true;
    while (at != NULL && *at != '\0') {
        size_t name_count = strcspn(at, " ");

        if (is_same(typed, count, at, name_count))
            return true;
        at += name_count + strspn(at + name_count, " ");
    }
    return false;
}

static bool is_taken(const struct option_table *table, const struct option_row *row)
{
    return row->verbs == 0 || (row->verbs & table->verb) != 0;
}

static const struct option_row *find_name(const struct option_table *table, const char *typed,
                                          size_t count)
{
    for (size_t i = 0; i < table->row_count; i++)
        if (is_taken(table, &table->rows[i]) && has_name(&table->rows[i], typed, count))
            return &table->rows[i];
    return NULL;
}

static const struct option_row *find_letter(const struct option_table *table, char letter)
{
    for (size_t i = 0; i < table->row_count; i++)
        if (is_taken(table, &table->rows[i]) && table->rows[i].letter == letter)
            return &table->rows[i];
    return NULL;
}

/* The Damerau-Levenshtein distance (Damerau 1964): a swap of neighbours counts once. Used to find
 * the nearest name. */

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;

    return least < c ? least : c;
}

static size_t distance(const char *a, const char *b)
{
    size_t rows[3][NAME_BYTES_MAX + 1], a_count = strlen(a), b_count = strlen(b);
    size_t *before = rows[0], *last = rows[1], *row = rows[2];

    if (a_count > NAME_BYTES_MAX || b_count > NAME_BYTES_MAX)
        return SIZE_MAX;
    memset(rows, 0, sizeof rows);
    for (size_t j = 0; j <= b_count; j++)
        last[j] = j;
    for (size_t i = 1; i <= a_count; i++) {
        size_t *spare = before;

        row[0] = i;
        for (size_t j = 1; j <= b_count; j++) {
            size_t cost = dashed(a[i - 1]) == b[j - 1] ? 0 : 1;

            row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        before = last;
        last = row;
        row = spare;
    }
    return last[b_count];
}

const char *options_nearest(const char *typed, const char *const *names, size_t count)
{
    size_t length = strlen(typed), best = (length + 4) / 3; /* a longer name may differ more */
    const char *nearest = NULL;

    assert(typed != NULL);
    for (size_t i = 0; i < count; i++) {
        size_t steps = distance(typed, names[i]);

        if (length >= 3 && steps > 1 && strncmp(typed, names[i], length) == 0)
            steps = 1; /* an abbreviation */
        if (steps < best && steps < strlen(names[i])) {
            best = steps;
            nearest = names[i];
        }
    }
    return nearest;
}

static enum status refuse_unknown(struct parser *parser, const char *typed, size_t count)
{
    const struct option_table *table = parser->table;
    const char *names[OPTION_ROWS_MAX], *nearest;
    char name[NAME_BYTES_MAX + 1];
    size_t name_count = 0;

    (void)snprintf(name, sizeof name, "%.*s", (int)count, typed);
    for (size_t i = 0; i < table->row_count; i++) {
        if (is_taken(table, &table->rows[i]))
            names[name_count++] = table->rows[i].name;
        else if (has_name(&table->rows[i], typed, count))
            return err_set(parser->err, STATUS_BAD_INPUT, 0,
                           "--%s is not an option of %s; see %s --help", name, table->program,
                           table->program);
    }
    nearest = options_nearest(name, names, name_count);
    if (nearest == NULL)
        return err_set(parser->err, STATUS_BAD_INPUT, 0, "unknown option --%s; see %s --help", name,
                       table->program);
    return err_set(parser->err, STATUS_BAD_INPUT, 0, "unknown option --%s; did you mean --%s?",
                   name, nearest);
}

static void *member(const struct parser *parser, const struct option_row *row)
{
    return parser->into + row->offset;
}

static enum status set(struct parser *parser, const struct option_row *row, const char *shown,
                       const char *text)
{
    enum option_source *source = &parser->result->sources[row - parser->table->rows];

    if (row->kind == OPTION_TEXTS && *source == OPTION_FROM_ENV)
        ((struct option_texts *)member(parser, row))->count = 0; /* the command line replaces the
                                                                  * variable */
    if (row->once != NULL && *source == OPTION_FROM_ARGS)
        return err_set(parser->err, STATUS_BAD_INPUT, 0, "%s is given twice: %s", shown, row->once);
    *source = OPTION_FROM_ARGS;
    return option_value_set(row, shown, text, member(parser, row), parser->err);
}

/* The next argument as the value of `shown`. */
static enum status set_from_next(struct parser *parser, const struct option_row *row,
                                 const char *shown)
{
    const char *next = parser->at < parser->argc ? parser->argv[parser->at] : NULL;

    if (next == NULL || strcmp(next, "--") == 0)
        return err_set(parser->err, STATUS_BAD_INPUT, 0, "%s needs a value: %s %s", shown, shown,
                       row->value != NULL ? row->value : "VALUE");
    if (next[0] == '-' && next[1] == '-')
        return err_set(parser->err, STATUS_BAD_INPUT, 0,
                       "%s needs a value, but %.60s follows; %s=%.60s if that is the value", shown,
                       next, shown, next);
    parser->at++;
    return set(parser, row, shown, next);
}

/* "--name", "--name=value", "--no-name" */
static enum status take_long(struct parser *parser, const char *argument)
{
    const char *typed = argument + 2, *equals = strchr(typed, '=');
    size_t count = equals != NULL ? (size_t)(equals - typed) : strlen(typed);
    const struct option_row *row = find_name(parser->table, typed, count);
    char shown[NAME_BYTES_MAX + 3];

    (void)snprintf(shown, sizeof shown, "--%.*s", (int)count, typed);
    if (row == NULL && equals == NULL && count > 3 && strncmp(typed, "no-", 3) == 0) {
        row = find_name(parser->table, typed + 3, count - 3);
        if (row != NULL && row->kind == OPTION_FLAG)
            return set(parser, row, shown, "false");
        row = NULL;
    }
    if (row == NULL)
        return refuse_unknown(parser, typed, count);
    if (equals != NULL)
        return set(parser, row, shown, equals + 1);
    if (row->kind == OPTION_FLAG)
        return set(parser, row, shown, "true");
    return set_from_next(parser, row, shown);
}

/* "-s", "-s4", "-s=4", "-qv" */
static enum status take_short(struct parser *parser, const char *argument)
{
    for (const char *at = argument + 1; *at != '\0'; at++) {
        const struct option_row *row = find_letter(parser->table, *at);
        char shown[] = {'-', *at, '\0'};
        enum status status;

        if (row == NULL)
            return err_set(parser->err, STATUS_BAD_INPUT, 0,
                           "unknown option -%c in %.60s; see %s --help", *at, argument,
                           parser->table->program);
        if (row->kind != OPTION_FLAG)
            return at[1] == '\0' ? set_from_next(parser, row, shown)
                                 : set(parser, row, shown, at[1] == '=' ? at + 2 : at + 1);
        status = set(parser, row, shown, "true");
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static void take_rest(struct parser *parser)
{
    parser->result->rest = parser->argv + parser->at;
    parser->result->rest_count = (uint32_t)(parser->argc - parser->at);
    parser->at = parser->argc;
}

static enum status take_positional(struct parser *parser, const char *argument)
{
    const struct option_table *table = parser->table;
    struct option_result *result = parser->result;
    bool passes = result->positional_count == 0 && table->passes != NULL && table->passes(argument);

    if (table->stops_at_positional && !passes) {
        parser->at--;
        take_rest(parser);
        return STATUS_OK;
    }
    if (result->positional_count >= OPTION_POSITIONALS_MAX)
        return err_set(parser->err, STATUS_TOO_BIG, 0, "more than %u arguments at \"%.60s\"",
                       OPTION_POSITIONALS_MAX, argument);
    result->positionals[result->positional_count++] = argument;
    return STATUS_OK;
}

static bool asks(struct parser *parser, const char *argument)
{
    bool has_h = find_letter(parser->table, 'h') != NULL;

    if (strcmp(argument, "--help") == 0 || (!has_h && strcmp(argument, "-h") == 0))
        parser->result->wants_help = true;
    else if (strcmp(argument, "--version") == 0)
        parser->result->wants_version = true;
    else
        return false;
    return true;
}

static enum status take(struct parser *parser)
{
    const char *argument = parser->argv[parser->at++];

    if (strcmp(argument, "--") == 0) {
        parser->result->has_separator = true;
        take_rest(parser);
        return STATUS_OK;
    }
    if (asks(parser, argument)) {
        parser->at = parser->argc;
        return STATUS_OK;
    }
    if (argument[0] == '-' && argument[1] == '-')
        return take_long(parser, argument);
    if (argument[0] == '-' && argument[1] != '\0')
        return take_short(parser, argument);
    return take_positional(parser, argument);
}

void options_variable(const struct option_table *table, const struct option_row *row,
                      char name[OPTION_NAME_BYTES])
{
    if (row->env != NULL)
        (void)snprintf(name, OPTION_NAME_BYTES, "%s", row->env);
    else if (table->env_prefix != NULL)
        (void)snprintf(name, OPTION_NAME_BYTES, "%s%s", table->env_prefix, row->name);
    else
        name[0] = '\0';
    for (char *at = name; *at != '\0'; at++)
        *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
}

static enum status take_env(struct parser *parser, option_getenv *env)
{
    for (size_t i = 0; i < parser->table->row_count; i++) {
        const struct option_row *row = &parser->table->rows[i];
        char name[OPTION_NAME_BYTES];
        const char *text;
        enum status status;

        if (!is_taken(parser->table, row) || row->kind == OPTION_IGNORED)
            continue;
        options_variable(parser->table, row, name);
        if (name[0] == '\0')
            continue;
        text = env(name);
        if (text == NULL || text[0] == '\0')
            continue;
        status = option_value_set(row, name, text, member(parser, row), parser->err);
        if (status != STATUS_OK)
            return status;
        parser->result->sources[i] = OPTION_FROM_ENV;
    }
    return STATUS_OK;
}

enum status options_parse(const struct option_table *table, int argc, char *const *argv,
                          option_getenv *env, void *into, struct option_result *result,
                          struct err *err)
{
    struct parser parser = {.table = table,
                            .argv = argv,
                            .argc = argc,
                            .at = argc > 0 ? 1 : 0,
                            .into = into,
                            .result = result,
                            .err = err};
    enum status status = STATUS_OK;

    assert(table->row_count <= OPTION_ROWS_MAX);
    *result = (struct option_result){.rest = argv + argc};
    if (env != NULL)
        status = take_env(&parser, env);
    if (status != STATUS_OK) { /* --help must work in spite of an error */
        for (int i = parser.at; i < argc && strcmp(argv[i], "--") != 0; i++)
            if (asks(&parser, argv[i]))
                return STATUS_OK;
        return status;
    }
    while (status == STATUS_OK && parser.at < argc)
        status = take(&parser);
    return status;
}

const char *options_getenv(const char *name)
{
    return getenv(name);
}

static void help_row(const struct option_row *row, struct buf *out)
{
    const char *value = row->kind == OPTION_WORD && row->value == NULL ? row->words : row->value;
    size_t before = out->byte_count, count;

    if (row->letter != 0)
        buf_printf(out, "  -%c, --%s", row->letter, row->name);
    else
        buf_printf(out, "      --%s", row->name);
    if (row->kind != OPTION_FLAG)
        buf_printf(out, " %s", value != NULL ? value : "VALUE");
    count = out->byte_count - before;
    if (count > 30)
        buf_printf(out, "\n%32s", "");
    else
        buf_printf(out, "%*s", (int)(32 - count), "");
    buf_add_text(out, row->help);
    if (row->env != NULL && row->env[0] != '\0')
        buf_printf(out, " [%s]", row->env);
    buf_add_text(out, "\n");
}

const char *options_heading(const struct option_table *table, size_t shown, size_t next)
{
    const char *heading = NULL;

    for (size_t i = shown == SIZE_MAX ? 0 : shown + 1; i <= next; i++)
        if (table->rows[i].heading != NULL)
            heading = table->rows[i].heading;
    return heading;
}

static void help_rows(const struct option_table *table, struct buf *out)
{
    size_t shown = SIZE_MAX;

    for (size_t i = 0; i < table->row_count; i++) {
        const char *heading;

        if (table->rows[i].help == NULL || !is_taken(table, &table->rows[i]))
            continue;
        heading = options_heading(table, shown, i);
        if (heading != NULL)
            buf_printf(out, "\n%s:\n", heading);
        help_row(&table->rows[i], out);
        shown = i;
    }
    if (table->row_count > 0 && options_heading(table, SIZE_MAX, table->row_count - 1) != NULL)
        buf_add_text(out, "\nOther:\n");
}

void options_help(const struct option_table *table, struct buf *out)
{
    assert(table->program != NULL);
    if (table->examples != NULL) {
        buf_add_text(out, "Examples:\n");
        for (const char *const *line = table->examples; *line != NULL; line++)
            buf_printf(out, "  %s\n", *line);
        buf_add_text(out, "\n");
    }
    buf_printf(out, "Usage: %s %s\n", table->program, table->usage != NULL ? table->usage : "");
    if (table->summary != NULL)
        buf_printf(out, "%s\n", table->summary);
    buf_add_text(out, "\nOptions (flag, else [VARIABLE], else the default):\n");
    help_rows(table, out);
    buf_add_text(out, "  -h, --help                    this text\n"
                      "      --version                 the version\n");
}
