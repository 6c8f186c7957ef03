#include "common/option_docs.h"

#include <string.h>

#include "common/option_docs_rows.h"

static const char *const form_names[] = {[OPTION_FORM_MAN] = "man",
                                         [OPTION_FORM_BASH] = "bash",
                                         [OPTION_FORM_ZSH] = "zsh",
                                         [OPTION_FORM_FISH] = "fish"};

bool option_docs_form(const char *name, enum option_form *form)
{
    for (size_t i = 0; i < sizeof form_names / sizeof form_names[0]; i++) {
        if (strcmp(name, form_names[i]) != 0)
            continue;
        *form = (enum option_form)i;
        return true;
    }
    return false;
}

bool option_docs_asked(int argc, char *const *argv, enum option_form *form)
{
    static const char prefix[] = "--help=";

    return argc == 2 && strncmp(argv[1], prefix, sizeof prefix - 1) == 0 &&
           option_docs_form(argv[1] + sizeof prefix - 1, form);
}

void option_docs_write(const struct option_docs *docs, enum option_form form, struct buf *out)
{
    switch (form) {
    case OPTION_FORM_MAN:
        option_docs_man(docs, out);
        break;
    case OPTION_FORM_BASH:
        option_docs_bash(docs, out);
        break;
    case OPTION_FORM_ZSH:
        option_docs_zsh(docs, out);
        break;
    case OPTION_FORM_FISH:
        option_docs_fish(docs, out);
        break;
    }
}
