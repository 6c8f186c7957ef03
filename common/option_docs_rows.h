/* Functions about option rows that the manual page and the completion scripts share. Private to
 * common/option_*.c. */
#ifndef COMMON_OPTION_DOCS_ROWS_H
#define COMMON_OPTION_DOCS_ROWS_H

#include "common/option_docs.h"

#define OPTION_WORDS_BYTES 256u

/* What a shell offers as completion of a value. */
enum option_hint {
    OPTION_HINT_NONE,
    OPTION_HINT_WORDS,
    OPTION_HINT_FOLDER,
    OPTION_HINT_FILE,
    OPTION_HINT_JOB,
    OPTION_HINT_NODE,
    OPTION_HINT_SIGNAL,
};

bool option_row_takes_value(const struct option_row *row);
/* The name of its value, "NAME"; NULL for a flag. */
const char *option_row_value(const struct option_row *row);
/* Whether --help shows it for a verb. `bit` 0: for all verbs. */
bool option_row_is_shown(const struct option_row *row, uint32_t bit);
enum option_hint option_row_hint(const struct option_row *row);
/* The words among "auto|step=N|0,4-7", separated by spaces. */
void option_words(const char *choices, char words[OPTION_WORDS_BYTES]);
/* The actions of a verb: "show drain list" for "node show|drain NAME, node list". */
void option_verb_actions(const struct option_verb *verb, char words[OPTION_WORDS_BYTES]);
/* What the arguments of a verb are, from its usage: "status [-w] JOB". */
enum option_hint option_verb_hint(const struct option_verb *verb);
/* A program's name as part of a shell function's name: '-' becomes '_'. */
void option_function_name(const char *program, char name[OPTION_NAME_BYTES]);

void option_docs_man(const struct option_docs *docs, struct buf *out);
void option_docs_bash(const struct option_docs *docs, struct buf *out);
void option_docs_zsh(const struct option_docs *docs, struct buf *out);
void option_docs_fish(const struct option_docs *docs, struct buf *out);

#endif
