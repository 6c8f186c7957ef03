/* Other output made from option tables, besides --help: the options of a manual page, and
 * completion scripts for shells. Pure. Options without help text are left out, as in --help. */
#ifndef COMMON_OPTION_DOCS_H
#define COMMON_OPTION_DOCS_H

#include "common/buf.h"
#include "common/options.h"

/* A verb of a program that has verbs: `ddpctl run`. */
struct option_verb {
    const char *name;
    uint32_t bit;                /* of the rows' `verbs` */
    const char *usage;           /* "node show|drain [options] NAME": actions come second */
    const char *summary;         /* one line */
    const char *examples;        /* lines; NULL: none */
    bool is_followed_by_command; /* "run [options] -- CMD..." */
};

struct option_docs {
    const struct option_table *table;
    const struct option_verb *verbs; /* NULL: the program has none */
    size_t verb_count;
};

enum option_form { OPTION_FORM_MAN, OPTION_FORM_BASH, OPTION_FORM_ZSH, OPTION_FORM_FISH };

/* "man", "bash", "zsh", "fish"; false: none of these. */
bool option_docs_form(const char *name, enum option_form *form);
/* "--help=FORM", alone on the command line. */
bool option_docs_asked(int argc, char *const *argv, enum option_form *form);
/* MAN: roff for the sections OPTIONS, ENVIRONMENT, EXAMPLES and, with verbs, VERBS; packaging/man
 * has the rest of the page. Otherwise a script that the shell loads. */
void option_docs_write(const struct option_docs *docs, enum option_form form, struct buf *out);

#endif
