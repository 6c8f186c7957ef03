#include "ddpctl/cmdline.h"

#include <assert.h>
#include <string.h>

/* Options before the verb: those that all verbs take. */
static enum status take_verb(struct ctl *ctl, int argc, char *const *argv, int *index,
                             const struct command **command, struct err *err)
{
    const char *guess;
    bool dashes;
    enum status status;

    *command = command_find("help");
    assert(*command != NULL);
    ctl->verb_name = "help";
    status = flags_parse(&options_table, VERB_HELP, "help", argc, argv, index, &dashes,
                         &ctl->options, err);
    if (status != STATUS_OK)
        return status;
    if (ctl->options.version)
        *command = command_find("version");
    if (ctl->options.version || ctl->options.help || *index >= argc)
        return STATUS_OK;
    *command = command_find(argv[*index]);
    if (*command) {
        ctl->verb_name = argv[(*index)++];
        return STATUS_OK;
    }
    guess = command_guess(argv[*index]);
    if (guess)
        return err_set(err, STATUS_NOT_FOUND, 0, "there is no verb '%.60s'; did you mean %s?",
                       argv[*index], guess);
    return err_set(err, STATUS_NOT_FOUND, 0, "there is no verb '%.60s'; ddpctl help lists them",
                   argv[*index]);
}

static bool is_spec_file(const char *word)
{
    const char *dot = strrchr(word, '.');

    return dot &&
           (strcmp(dot, ".json") == 0 || strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

/* Words and options in any order; of run and submit, all from the first word on (but a
 * specification) is the command. */
static enum status take_words(struct ctl *ctl, const struct command *command, int argc,
                              char *const *argv, int *index, char **words, struct err *err)
{
    bool dashes = false;
    enum status status = STATUS_OK;

    while (status == STATUS_OK && !dashes) {
        status = flags_parse(&options_table, command->verb, command->name, argc, argv, index,
                             &dashes, &ctl->options, err);
        if (status != STATUS_OK || dashes || *index >= argc)
            break;
        if (command->stops_at_word &&
            !(command->verb == VERB_SUBMIT && ctl->word_count == 0 && is_spec_file(argv[*index])))
            break;
        words[ctl->word_count++] = argv[(*index)++];
    }
    while (status == STATUS_OK && *index < argc)
        words[ctl->word_count++] = argv[(*index)++];
    words[ctl->word_count] = NULL;
    return status;
}

enum status cmdline_parse(struct ctl *ctl, int argc, char *const *argv, char **words,
                          const struct command **command, struct err *err)
{
    int index = 1;
    enum status status;

    options_init(&ctl->options);
    ctl->words = words;
    words[0] = NULL;
    status = flags_env(&options_table, VERB_HELP, &ctl->options, err);
    if (status == STATUS_OK)
        status = take_verb(ctl, argc, argv, &index, command, err);
    if (status != STATUS_OK)
        return status;
    assert(*command != NULL);
    ctl->is_attached = (*command)->is_attached;
    if ((*command)->verb == VERB_LATER)
        return STATUS_OK;
    if ((*command)->verb != VERB_HELP) {
        struct options given = ctl->options; /* before the verb: stronger than the environment */

        status = flags_env(&options_table, (*command)->verb, &ctl->options, err);
        ctl->options.server = given.server;
        ctl->options.json = given.json;
        ctl->options.quiet = given.quiet;
        ctl->options.color = given.color;
        ctl->options.patience_us = given.patience_us;
    }
    if (status == STATUS_OK)
        status = take_words(ctl, *command, argc, argv, &index, words, err);
    if (status == STATUS_OK && ctl->options.help && (*command)->verb != VERB_HELP) {
        words[0] = (char *)(uintptr_t)(*command)->name;
        words[1] = NULL;
        ctl->word_count = 1;
        *command = command_find("help");
        ctl->is_attached = false;
    }
    return status;
}
