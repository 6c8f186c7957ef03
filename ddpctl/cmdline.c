#include "ddpctl/cmdline.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/torchrun.h"

static bool is_spec_file(const char *word)
{
    const char *dot = strrchr(word, '.');

    return dot &&
           (strcmp(dot, ".json") == 0 || strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

/* A table of options. `verb` 0: only those that all verbs take, which may come before the verb. */
static struct option_table make_table(const char *program, uint32_t verb)
{
    return (struct option_table){.program = program,
                                 .rows = options_rows,
                                 .row_count = options_row_count,
                                 .env_prefix = "DDP_",
                                 .verb = verb,
                                 .stops_at_positional = true};
}

static enum status take_verb(struct ctl *ctl, const struct option_result *rest,
                             const struct command **command, struct err *err)
{
    const char *guess;

    if (rest->wants_version)
        *command = command_find("version");
    if (rest->wants_version || rest->wants_help || rest->rest_count == 0)
        return STATUS_OK;
    *command = command_find(rest->rest[0]);
    if (*command) {
        ctl->verb_name = (*command)->name;
        return STATUS_OK;
    }
    guess = command_advice(rest->rest[0]);
    if (guess)
        return err_set(err, STATUS_NOT_FOUND, 0, "there is no verb '%.60s'; %s", rest->rest[0],
                       guess);
    guess = command_guess(rest->rest[0]);
    if (guess)
        return err_set(err, STATUS_NOT_FOUND, 0, "there is no verb '%.60s'; did you mean %s?",
                       rest->rest[0], guess);
    return err_set(err, STATUS_NOT_FOUND, 0, "there is no verb '%.60s'; ddpctl help lists them",
                   rest->rest[0]);
}

/* Leaves out the variables of options that all verbs take: they were read before. An option before
 * the verb overrides its variable. */
static const char *variable_of_verb(const char *name)
{
    const struct option_table table = make_table("ddpctl", 0);
    char common[OPTION_NAME_BYTES];
    const char *value;

    for (size_t i = 0; i < options_row_count; i++) {
        if (options_rows[i].verbs != 0)
            continue;
        options_variable(&table, &options_rows[i], common);
        if (strcmp(common, name) == 0)
            return NULL;
    }
    value = options_getenv(name);
    return value != NULL ? value : torchrun_variable(name);
}

/* --server is given before the verb, or after it. */
static void note_server(struct ctl *ctl, const struct option_result *result)
{
    for (size_t i = 0; i < options_row_count; i++)
        if (strcmp(options_rows[i].name, "server") == 0 && result->sources[i] == OPTION_FROM_ARGS)
            ctl->server_is_on_line = true;
}

static void warn_ignored(struct options *options, const struct option_result *result)
{
    for (size_t i = 0; i < options_row_count; i++)
        if (options_rows[i].kind == OPTION_IGNORED && result->sources[i] == OPTION_FROM_ARGS &&
            options->ignored_count < sizeof options->ignored / sizeof options->ignored[0])
            options->ignored[options->ignored_count++] = options_rows[i].name;
}

/* Words and options come in any order. For run and submit, everything from the first word on is the
 * command, unless that word is a job specification. */
static enum status take_words(struct ctl *ctl, const struct command *command, int argc,
                              char *const *argv, char **words, struct option_result *result,
                              struct err *err)
{
    char program[32];
    struct option_table table = make_table(program, command->verb);
    enum status status;

    table.stops_at_positional = command->stops_at_word;
    table.passes = command->verb == VERB_SUBMIT ? is_spec_file : NULL;
    (void)snprintf(program, sizeof program, "ddpctl %s", command->name);
    status = options_parse(&table, argc, argv, variable_of_verb, &ctl->options, result, err);
    if (status != STATUS_OK)
        return status;
    for (uint32_t i = 0; i < result->positional_count; i++)
        words[ctl->word_count++] = (char *)(uintptr_t)result->positionals[i];
    for (uint32_t i = 0; i < result->rest_count; i++)
        words[ctl->word_count++] = result->rest[i];
    words[ctl->word_count] = NULL;
    warn_ignored(&ctl->options, result);
    note_server(ctl, result);
    return STATUS_OK;
}

enum status cmdline_parse(struct ctl *ctl, int argc, char *const *argv, char **words,
                          const struct command **command, struct err *err)
{
    const struct option_table table = make_table("ddpctl", 0);
    struct option_result result;
    enum status status;

    assert(argc >= 1);
    options_init(&ctl->options);
    ctl->words = words;
    words[0] = NULL;
    *command = command_find("help");
    assert(*command != NULL);
    ctl->verb_name = "help";
    status = options_parse(&table, argc, argv, options_getenv, &ctl->options, &result, err);
    note_server(ctl, &result);
    if (status == STATUS_OK)
        status = take_verb(ctl, &result, command, err);
    if (status != STATUS_OK)
        return status;
    assert(*command != NULL);
    ctl->is_attached = (*command)->is_attached;
    if (result.rest_count == 0)
        return STATUS_OK;
    status = take_words(ctl, *command, (int)result.rest_count, result.rest, words, &result, err);
    if (status != STATUS_OK || !(result.wants_help || result.wants_version))
        return status;
    words[0] = (char *)(uintptr_t)(result.wants_help ? (*command)->name : "version");
    words[1] = NULL;
    ctl->word_count = 1;
    *command = command_find(result.wants_help ? "help" : "version");
    ctl->is_attached = false;
    return STATUS_OK;
}
