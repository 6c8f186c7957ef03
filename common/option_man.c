/* Options as roff for man(7). */
#include <stdio.h>
#include <string.h>

#include "common/option_docs_rows.h"

/* Escapes text so that roff finds no request or escape in it; '-' is written so that it can be
 * copied from a terminal. */
static void put_text(struct buf *out, const char *text)
{
    bool at_start = out->byte_count == 0 || out->bytes[out->byte_count - 1] == '\n';

    for (const char *at = text; *at != '\0'; at++) {
        if (at_start && (*at == '.' || *at == '\''))
            buf_add_text(out, "\\&");
        if (*at == '\\')
            buf_add_text(out, "\\e");
        else if (*at == '-')
            buf_add_text(out, "\\-");
        else if (*at == '\'')
            buf_add_text(out, "\\(aq");
        else if (*at == '^')
            buf_add_text(out, "\\(ha");
        else if (*at == '~')
            buf_add_text(out, "\\(ti");
        else if (*at == '`')
            buf_add_text(out, "\\(ga");
        else
            buf_add(out, at, 1);
        at_start = *at == '\n';
    }
}

static void put_option(struct buf *out, const char *dashes, const char *name)
{
    buf_add_text(out, "\\fB");
    put_text(out, dashes);
    put_text(out, name);
    buf_add_text(out, "\\fR");
}

static void put_synonyms(struct buf *out, const char *synonyms)
{
    const char *separator = " Also ";

    while (synonyms != NULL && *synonyms != '\0') {
        size_t count = strcspn(synonyms, " ");
        char name[OPTION_NAME_BYTES];

        (void)snprintf(name, sizeof name, "%.*s", (int)count, synonyms);
        buf_add_text(out, separator);
        put_option(out, "--", name);
        separator = ", ";
        synonyms += count + strspn(synonyms + count, " ");
    }
}

static void put_row(struct buf *out, const struct option_table *table, const struct option_row *row)
{
    const char letter[2] = {row->letter, '\0'}, *value = option_row_value(row);
    char variable[OPTION_NAME_BYTES];

    buf_add_text(out, ".TP\n");
    if (row->letter != 0) {
        put_option(out, "-", letter);
        buf_add_text(out, ", ");
    }
    put_option(out, "--", row->name);
    if (value != NULL) {
        buf_add_text(out, " \\fI");
        put_text(out, value);
        buf_add_text(out, "\\fR");
    }
    buf_add_text(out, "\n");
    put_text(out, row->help);
    buf_add_text(out, ".");
    if (row->synonyms != NULL) {
        put_synonyms(out, row->synonyms);
        buf_add_text(out, ".");
    }
    options_variable(table, row, variable);
    if (row->env != NULL && variable[0] != '\0') { /* a prefix is a rule: the page says it once */
        buf_add_text(out, " Variable: \\fB");
        put_text(out, variable);
        buf_add_text(out, "\\fR.");
    }
    buf_add_text(out, "\n");
}

static void put_rows(struct buf *out, const struct option_table *table, uint32_t bit)
{
    size_t shown = SIZE_MAX;

    for (size_t i = 0; i < table->row_count; i++) {
        const char *heading;

        if (!option_row_is_shown(&table->rows[i], bit))
            continue;
        heading = options_heading(table, shown, i);
        if (heading != NULL) {
            buf_add_text(out, ".SS ");
            put_text(out, heading);
            buf_add_text(out, "\n");
        }
        put_row(out, table, &table->rows[i]);
        shown = i;
    }
}

static void put_fixed(struct buf *out, const char *text)
{
    buf_add_text(out, ".PP\n.nf\n");
    put_text(out, text);
    if (out->byte_count > 0 && out->bytes[out->byte_count - 1] != '\n')
        buf_add_text(out, "\n");
    buf_add_text(out, ".fi\n");
}

static void put_verb(struct buf *out, const struct option_table *table,
                     const struct option_verb *verb)
{
    buf_add_text(out, ".SS ");
    put_text(out, verb->name);
    buf_add_text(out, "\n\\fB");
    put_text(out, table->program);
    buf_add_text(out, "\\fR ");
    put_text(out, verb->usage);
    buf_add_text(out, "\n.PP\n");
    put_text(out, verb->summary);
    buf_add_text(out, ".\n");
    put_rows(out, table, verb->bit);
    if (verb->examples != NULL)
        put_fixed(out, verb->examples);
}

void option_docs_man(const struct option_docs *docs, struct buf *out)
{
    const struct option_table *table = docs->table;

    if (docs->verb_count > 0) {
        buf_add_text(out, ".SH VERBS\n");
        for (size_t i = 0; i < docs->verb_count; i++)
            put_verb(out, table, &docs->verbs[i]);
    }
    buf_add_text(out, docs->verb_count > 0 ? ".SH OPTIONS OF ALL VERBS\n" : ".SH OPTIONS\n");
    put_rows(out, table, 0);
    if (table->row_count > 0 && options_heading(table, SIZE_MAX, table->row_count - 1) != NULL)
        buf_add_text(out, ".SS Other\n");
    buf_add_text(out, ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprint a summary of the options.\n"
                      ".TP\n\\fB\\-\\-version\\fR\nprint the version.\n");
    if (table->examples == NULL)
        return;
    buf_add_text(out, ".SH EXAMPLES\n.nf\n");
    for (const char *const *line = table->examples; *line != NULL; line++) {
        put_text(out, *line);
        buf_add_text(out, "\n");
    }
    buf_add_text(out, ".fi\n");
}
