#include "ddpctl/docs.h"

#include <assert.h>
#include <stdio.h>

#include "ddpctl/commands.h"

#define VERBS_MAX 40u

void docs_write(enum option_form form, struct buf *out)
{
    const struct option_table table = {.program = "ddpctl",
                                       .usage = "[options] VERB [options] [words]",
                                       .rows = options_rows,
                                       .row_count = options_row_count,
                                       .env_prefix = "DDP_"};
    struct option_verb verbs[VERBS_MAX];
    struct option_docs docs = {.table = &table, .verbs = verbs};

    assert(command_count <= VERBS_MAX);
    for (size_t i = 0; i < command_count; i++) {
        const struct command *command = &commands[i];

        verbs[docs.verb_count++] = (struct option_verb){
            .name = command->name,
            .bit = command->verb,
            .usage = command->usage,
            .summary = command->summary,
            .examples = command->examples,
            .is_followed_by_command = command->stops_at_word,
        };
    }
    option_docs_write(&docs, form, out);
}

int verb_completion(struct ctl *ctl)
{
    enum option_form form;
    struct buf out = {0};
    char message[160];

    if (ctl->word_count != 1)
        return ctl_fail(ctl, CTL_USAGE, "completion wants the name of a shell: bash, zsh or fish",
                        "source <(ddpctl completion bash)");
    if (!option_docs_form(ctl->words[0], &form) || form == OPTION_FORM_MAN) {
        (void)snprintf(message, sizeof message,
                       "there is no completion for '%.60s': there is one for bash, zsh and fish",
                       ctl->words[0]);
        return ctl_fail(ctl, CTL_USAGE, message, "");
    }
    docs_write(form, &out);
    return screen_out(&ctl->screen, &out) == STATUS_OK ? CTL_OK : CTL_FAILED;
}
