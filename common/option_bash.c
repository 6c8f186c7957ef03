/* Completion for bash: functions with the table's names and values, and a body that is the same for
 * every program. It needs bash alone, not the package bash-completion. */
#include <stdio.h>
#include <string.h>

#include "common/option_docs_rows.h"

/* In the body @F is the name of the function, @P that of the program. */
static const char body[] =
    "@F()\n"
    "{\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local verb='' option='' words=0 ended='' kind at\n"
    "    COMPREPLY=()\n"
    "    # bash splits --name=value into three words\n"
    "    if [[ $current == '=' && $before == -* ]]; then\n"
    "        option=$before current=''\n"
    "    elif ((COMP_CWORD > 2)) && [[ $before == '=' && ${COMP_WORDS[COMP_CWORD - 2]} == -* ]]; "
    "then\n"
    "        option=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    elif @F_value \"$before\" >/dev/null; then\n"
    "        option=$before\n"
    "    fi\n"
    "    for ((at = 1; at < COMP_CWORD; at++)); do\n"
    "        case ${COMP_WORDS[at]} in\n"
    "        --)\n"
    "            ended=yes\n"
    "            words=$((COMP_CWORD - at - 1))\n"
    "            break\n"
    "            ;;\n"
    "        =) ((at++)) ;;\n"
    "        -*)\n"
    "            if [[ ${COMP_WORDS[at + 1]} != '=' ]] && @F_value \"${COMP_WORDS[at]}\" "
    ">/dev/null; then\n"
    "                ((at++))\n"
    "            fi\n"
    "            ;;\n"
    "        *)\n"
    "            if [[ -z $verb ]] && @F_verb \"${COMP_WORDS[at]}\"; then\n"
    "                verb=${COMP_WORDS[at]}\n"
    "            elif [[ $(@F_words \"$verb\" 0) == command ]]; then\n"
    "                ended=yes\n"
    "                words=$((COMP_CWORD - at))\n"
    "                break\n"
    "            else\n"
    "                ((words++))\n"
    "            fi\n"
    "            ;;\n"
    "        esac\n"
    "    done\n"
    "    if [[ -n $ended ]]; then\n"
    "        kind=$(@F_words \"$verb\" \"$words\")\n"
    "    elif [[ -n $option ]]; then\n"
    "        kind=$(@F_value \"$option\")\n"
    "    elif [[ $current == -* ]]; then\n"
    "        kind=\"words $(@F_options \"$verb\")\"\n"
    "    else\n"
    "        kind=$(@F_words \"$verb\" \"$words\")\n"
    "    fi\n"
    "    case $kind in\n"
    "    words*) mapfile -t COMPREPLY < <(compgen -W \"${kind#words}\" -- \"$current\") ;;\n"
    "    folder)\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -d -- \"$current\")\n"
    "        ;;\n"
    "    file)\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
    "        ;;\n"
    "    command) mapfile -t COMPREPLY < <(compgen -c -- \"$current\") ;;\n"
    "    signal) mapfile -t COMPREPLY < <(compgen -W 'TERM INT HUP USR1 USR2 KILL' -- "
    "\"$current\") ;;\n"
    "    job) mapfile -t COMPREPLY < <(compgen -W \"@last $(@P ps -q 2>/dev/null)\" -- "
    "\"$current\") ;;\n"
    "    node) mapfile -t COMPREPLY < <(compgen -W \"$(@P nodes -q 2>/dev/null)\" -- "
    "\"$current\") ;;\n"
    "    esac\n"
    "}\n"
    "complete -F @F @P\n";

static void put_body(struct buf *out, const char *function, const char *program)
{
    const char *at = body;

    while (*at != '\0') {
        size_t count = strcspn(at, "@");

        buf_add(out, at, count);
        at += count;
        if (*at == '\0')
            break;
        if (at[1] == 'F' || at[1] == 'P') {
            buf_add_text(out, at[1] == 'F' ? function : program);
            at += 2;
        } else { /* @last */
            buf_add(out, at, 1);
            at++;
        }
    }
}

static void put_options(struct buf *out, const struct option_table *table, uint32_t bit)
{
    for (size_t i = 0; i < table->row_count; i++) {
        const struct option_row *row = &table->rows[i];

        if (option_row_is_shown(row, bit))
            buf_printf(out, " --%s", row->name);
    }
}

static void put_all_options(struct buf *out, const struct option_docs *docs)
{
    buf_add_text(out, "    case $1 in\n");
    for (size_t i = 0; i < docs->verb_count; i++) {
        buf_printf(out, "    %s) echo '", docs->verbs[i].name);
        put_options(out, docs->table, docs->verbs[i].bit);
        put_options(out, docs->table, 0);
        buf_add_text(out, " --help' ;;\n");
    }
    buf_add_text(out, "    *) echo '");
    put_options(out, docs->table, 0);
    buf_add_text(out, " --help --version' ;;\n    esac\n");
}

static const char *const hint_words[] = {
    [OPTION_HINT_NONE] = "none",     [OPTION_HINT_WORDS] = "words", [OPTION_HINT_FOLDER] = "folder",
    [OPTION_HINT_FILE] = "file",     [OPTION_HINT_JOB] = "job",     [OPTION_HINT_NODE] = "node",
    [OPTION_HINT_SIGNAL] = "signal",
};

/* Verbs may use one letter for different options. Completion uses the first option with the
 * letter. */
static bool is_first_with_letter(const struct option_table *table, size_t index)
{
    const char letter = table->rows[index].letter;

    for (size_t i = 0; i < index; i++)
        if (table->rows[i].letter == letter && option_row_takes_value(&table->rows[i]))
            return false;
    return letter != 0;
}

static void put_values(struct buf *out, const struct option_table *table)
{
    buf_add_text(out, "    case $1 in\n");
    for (size_t i = 0; i < table->row_count; i++) {
        const struct option_row *row = &table->rows[i];
        enum option_hint hint = option_row_hint(row);
        char words[OPTION_WORDS_BYTES] = "";

        if (!option_row_takes_value(row))
            continue;
        buf_printf(out, "    --%s", row->name);
        if (is_first_with_letter(table, i))
            buf_printf(out, " | -%c", row->letter);
        if (hint == OPTION_HINT_WORDS)
            option_words(row->words != NULL ? row->words : row->value, words);
        buf_printf(out, ") echo '%s%s%s' ;;\n", hint_words[hint], words[0] != '\0' ? " " : "",
                   words);
    }
    buf_add_text(out, "    *) return 1 ;;\n    esac\n");
}

/* Completes the arguments after the options; $2 is the argument's index, from 0. */
static void put_words(struct buf *out, const struct option_docs *docs)
{
    const struct option_verb positional = {.name = "", .usage = docs->table->usage};

    buf_add_text(out, "    case $1:$2 in\n");
    for (size_t i = 0; i < docs->verb_count; i++) {
        const struct option_verb *verb = &docs->verbs[i];
        char words[OPTION_WORDS_BYTES];

        option_verb_actions(verb, words);
        if (verb->is_followed_by_command)
            buf_printf(out, "    %s:0) echo command ;;\n    %s:*) echo file ;;\n", verb->name,
                       verb->name);
        else if (words[0] != '\0')
            buf_printf(out, "    %s:0) echo 'words %s' ;;\n    %s:*) echo %s ;;\n", verb->name,
                       words, verb->name, hint_words[option_verb_hint(verb)]);
        else
            buf_printf(out, "    %s:*) echo %s ;;\n", verb->name,
                       hint_words[option_verb_hint(verb)]);
    }
    if (docs->verb_count == 0) {
        buf_printf(out, "    *) echo %s ;;\n    esac\n", hint_words[option_verb_hint(&positional)]);
        return;
    }
    buf_add_text(out, "    :*) echo 'words");
    for (size_t i = 0; i < docs->verb_count; i++)
        buf_printf(out, " %s", docs->verbs[i].name);
    buf_add_text(out, "' ;;\n    esac\n");
}

static void put_verbs(struct buf *out, const struct option_docs *docs)
{
    if (docs->verb_count == 0) {
        buf_add_text(out, "    return 1\n");
        return;
    }
    buf_add_text(out, "    case $1 in\n    ");
    for (size_t i = 0; i < docs->verb_count; i++)
        buf_printf(out, "%s%s", i > 0 ? " | " : "", docs->verbs[i].name);
    buf_add_text(out, ") ;;\n    *) return 1 ;;\n    esac\n");
}

void option_docs_bash(const struct option_docs *docs, struct buf *out)
{
    const char *program = docs->table->program;
    char function[OPTION_NAME_BYTES];

    option_function_name(program, function);
    buf_printf(out,
               "# shellcheck shell=bash\n# Completion of %s for bash, made from its options.\n",
               program);
    buf_printf(out, "%s_verb()\n{\n", function);
    put_verbs(out, docs);
    buf_printf(out, "}\n# $1: the verb\n%s_options()\n{\n", function);
    put_all_options(out, docs);
    buf_printf(out, "}\n# $1: an option; false where it takes no value\n%s_value()\n{\n", function);
    put_values(out, docs->table);
    buf_printf(out, "}\n# $1: the verb, $2: how many words came after it\n%s_words()\n{\n",
               function);
    put_words(out, docs);
    buf_add_text(out, "}\n");
    put_body(out, function, program);
}
