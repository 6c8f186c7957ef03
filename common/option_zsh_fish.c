/* Completion for zsh (by _arguments) and fish. */
#include <stdio.h>
#include <string.h>

#include "common/option_docs_rows.h"

/* Text between single quotes; each of `special` gets a backslash, and fish wants one before ' and \
 * too. */
static void put_quoted(struct buf *out, const char *text, const char *special, bool is_fish)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\'')
            buf_add_text(out, is_fish ? "\\'" : "'\\''");
        else if (*at == '\\')
            buf_add_text(out, "\\\\");
        else if (*at == '\n')
            buf_add_text(out, " ");
        else if (strchr(special, *at) != NULL)
            buf_printf(out, "\\%c", *at);
        else
            buf_add(out, at, 1);
    }
}

static const char *row_words(const struct option_row *row, char words[OPTION_WORDS_BYTES])
{
    option_words(row->words != NULL ? row->words : row->value, words);
    return words;
}

/* -- zsh -- */

static void put_zsh_action(struct buf *out, enum option_hint hint, const char *words,
                           const char *program)
{
    switch (hint) {
    case OPTION_HINT_NONE:
        break;
    case OPTION_HINT_WORDS:
        buf_printf(out, "(%s)", words);
        break;
    case OPTION_HINT_FOLDER:
        buf_add_text(out, "_files -/");
        break;
    case OPTION_HINT_FILE:
        buf_add_text(out, "_files");
        break;
    case OPTION_HINT_JOB:
        buf_printf(out, "($(%s ps -q 2>/dev/null) @last)", program);
        break;
    case OPTION_HINT_NODE:
        buf_printf(out, "($(%s nodes -q 2>/dev/null))", program);
        break;
    case OPTION_HINT_SIGNAL:
        buf_add_text(out, "(TERM INT HUP USR1 USR2 KILL)");
        break;
    }
}

/* '(-s --server)'{-s+,--server=}'[help]:ADDRESS:action' */
static void put_zsh_row(struct buf *out, const struct option_row *row, const char *program)
{
    const bool takes = option_row_takes_value(row);
    enum option_hint hint = option_row_hint(row);
    char words[OPTION_WORDS_BYTES] = "";

    buf_add_text(out, " \\\n        ");
    if (row->letter != 0)
        buf_printf(out, "'(-%c --%s)'{-%c%s,--%s%s}'[", row->letter, row->name, row->letter,
                   takes ? "+" : "", row->name, takes ? "=" : "");
    else
        buf_printf(out, "'--%s%s[", row->name, takes ? "=" : "");
    put_quoted(out, row->help, "[]:", false);
    buf_add_text(out, "]");
    if (takes) {
        buf_add_text(out, ":");
        put_quoted(out, option_row_value(row), "[]:", false);
        buf_add_text(out, ":");
        if (hint == OPTION_HINT_WORDS)
            (void)row_words(row, words);
        put_zsh_action(out, hint, words, program);
    }
    buf_add_text(out, "'");
}

static void put_zsh_rows(struct buf *out, const struct option_docs *docs, uint32_t bit)
{
    for (size_t i = 0; i < docs->table->row_count; i++)
        if (option_row_is_shown(&docs->table->rows[i], bit))
            put_zsh_row(out, &docs->table->rows[i], docs->table->program);
}

static void put_zsh_verb(struct buf *out, const struct option_docs *docs,
                         const struct option_verb *verb)
{
    char words[OPTION_WORDS_BYTES];

    option_verb_actions(verb, words);
    buf_printf(out, "    %s)\n        _arguments -s", verb->name);
    put_zsh_rows(out, docs, verb->bit);
    put_zsh_rows(out, docs, 0);
    if (verb->is_followed_by_command) {
        buf_add_text(out, " \\\n        '*::command:_normal'\n        ;;\n");
        return;
    }
    if (words[0] != '\0')
        buf_printf(out, " \\\n        '1:action:(%s)'", words);
    buf_add_text(out, " \\\n        '*:word:");
    put_zsh_action(out, option_verb_hint(verb), "", docs->table->program);
    buf_add_text(out, "'\n        ;;\n");
}

void option_docs_zsh(const struct option_docs *docs, struct buf *out)
{
    const char *program = docs->table->program;
    const struct option_verb positional = {.name = "", .usage = docs->table->usage};
    char function[OPTION_NAME_BYTES];

    option_function_name(program, function);
    buf_printf(out, "#compdef %s\n# Completion of %s for zsh, made from its options.\n", program,
               program);
    buf_printf(out, "%s()\n{\n    local curcontext=$curcontext state line\n", function);
    buf_add_text(out, "    typeset -A opt_args\n    _arguments -s");
    put_zsh_rows(out, docs, 0);
    if (docs->verb_count == 0) {
        buf_add_text(out, " \\\n        '*:word:");
        put_zsh_action(out, option_verb_hint(&positional), "", program);
        buf_printf(out, "'\n}\n%s \"$@\"\n", function);
        return;
    }
    buf_add_text(out, " \\\n        '1:verb:->verb' '*::word:->word'\n    case $state in\n"
                      "    verb)\n        local -a verbs\n        verbs=(");
    for (size_t i = 0; i < docs->verb_count; i++) {
        buf_printf(out, "\n            '%s:", docs->verbs[i].name);
        put_quoted(out, docs->verbs[i].summary, "", false);
        buf_add_text(out, "'");
    }
    buf_add_text(out, ")\n        _describe verb verbs\n        return\n        ;;\n    esac\n"
                      "    case $line[1] in\n");
    for (size_t i = 0; i < docs->verb_count; i++)
        put_zsh_verb(out, docs, &docs->verbs[i]);
    buf_printf(out, "    esac\n}\n%s \"$@\"\n", function);
}

/* -- fish -- */

/* True: the option belongs to some verb or to all of them. */
static bool put_fish_condition(struct buf *out, const struct option_docs *docs,
                               const struct option_row *row)
{
    bool any = false;

    if (row->verbs == 0)
        return true;
    for (size_t i = 0; i < docs->verb_count; i++) {
        if ((row->verbs & docs->verbs[i].bit) == 0)
            continue;
        buf_printf(out, "%s %s", any ? "" : " -n '__fish_seen_subcommand_from",
                   docs->verbs[i].name);
        any = true;
    }
    buf_add_text(out, any ? "'" : "");
    return any;
}

static void put_fish_value(struct buf *out, const struct option_row *row, const char *program)
{
    char words[OPTION_WORDS_BYTES];

    switch (option_row_hint(row)) {
    case OPTION_HINT_NONE:
        buf_add_text(out, " -x");
        break;
    case OPTION_HINT_WORDS:
        buf_printf(out, " -x -a '%s'", row_words(row, words));
        break;
    case OPTION_HINT_FOLDER:
        buf_add_text(out, " -x -a '(__fish_complete_directories)'");
        break;
    case OPTION_HINT_FILE:
        buf_add_text(out, " -r -F");
        break;
    case OPTION_HINT_JOB:
        buf_printf(out, " -x -a '(%s ps -q 2>/dev/null)'", program);
        break;
    case OPTION_HINT_NODE:
        buf_printf(out, " -x -a '(%s nodes -q 2>/dev/null)'", program);
        break;
    case OPTION_HINT_SIGNAL:
        buf_add_text(out, " -x -a 'TERM INT HUP USR1 USR2 KILL'");
        break;
    }
}

static void put_fish_row(struct buf *out, const struct option_docs *docs,
                         const struct option_row *row)
{
    struct buf condition = {0};

    if (row->help == NULL)
        return;
    if (put_fish_condition(&condition, docs, row)) {
        buf_printf(out, "complete -c %s", docs->table->program);
        buf_add(out, condition.bytes, condition.byte_count);
        buf_printf(out, " -l %s", row->name);
        if (row->letter != 0)
            buf_printf(out, " -s %c", row->letter);
        if (option_row_takes_value(row))
            put_fish_value(out, row, docs->table->program);
        buf_add_text(out, " -d '");
        put_quoted(out, row->help, "", true);
        buf_add_text(out, "'\n");
    }
    buf_free(&condition);
}

static void put_fish_verb(struct buf *out, const struct option_docs *docs,
                          const struct option_verb *verb)
{
    const char *program = docs->table->program;
    char words[OPTION_WORDS_BYTES];

    buf_printf(out, "complete -c %s -n __fish_use_subcommand -f -a %s -d '", program, verb->name);
    put_quoted(out, verb->summary, "", true);
    buf_add_text(out, "'\n");
    option_verb_actions(verb, words);
    if (words[0] != '\0')
        buf_printf(out, "complete -c %s -n '__fish_seen_subcommand_from %s' -f -a '%s'\n", program,
                   verb->name, words);
    if (option_verb_hint(verb) == OPTION_HINT_JOB)
        buf_printf(out,
                   "complete -c %s -n '__fish_seen_subcommand_from %s' -f -a '(%s ps -q "
                   "2>/dev/null)'\n",
                   program, verb->name, program);
    if (option_verb_hint(verb) == OPTION_HINT_NODE)
        buf_printf(out,
                   "complete -c %s -n '__fish_seen_subcommand_from %s' -f -a '(%s nodes -q "
                   "2>/dev/null)'\n",
                   program, verb->name, program);
}

void option_docs_fish(const struct option_docs *docs, struct buf *out)
{
    buf_printf(out, "# Completion of %s for fish, made from its options.\n", docs->table->program);
    for (size_t i = 0; i < docs->verb_count; i++)
        put_fish_verb(out, docs, &docs->verbs[i]);
    for (size_t i = 0; i < docs->table->row_count; i++)
        put_fish_row(out, docs, &docs->table->rows[i]);
}
