#include "ddpctl/spec.h"

#include <assert.h>
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/after_spec.h"
#include "common/array_spec.h"
#include "common/options.h"
#include "common/text.h"
#include "common/utf8.h"
#include "ddpctl/escape.h"
#include "ddpctl/options.h"
#include "ddpctl/units.h"

static enum status no_memory(struct err *err)
{
    return err_set(err, STATUS_TOO_BIG, 0,
                   "the job's command and environment are too big for a request");
}

void spec_init(struct spec *spec)
{
    *spec = (struct spec){.nodes = 1,
                          .nproc_per_node = 1,
                          .max_restarts = SPEC_RESTARTS_DEFAULT,
                          .grace_us = GRACE_DEFAULT_US};
}

enum status spec_set_launch(struct spec *spec, enum launch_option option, const char *value,
                            struct err *err)
{
    uint32_t i = 0;

    while (i < spec->launch_count && strcmp(spec->launch[i].name, launch_name(option)) != 0)
        i++;
    assert(i < LAUNCH_COUNT);
    spec->launch[i] = (struct msg_pair){.name = launch_name(option), .value = value};
    if (i == spec->launch_count)
        spec->launch_count++;
    return launch_check(option, value, err);
}

static bool is_program(const struct spec *spec, const char *name)
{
    const char *path = spec->argv.count > 0 ? spec->argv.items[0] : "";
    const char *slash = strrchr(path, '/');

    return strcmp(slash != NULL ? slash + 1 : path, name) == 0;
}

enum status spec_choose_store(struct spec *spec, bool none, struct err *err)
{
    const struct msg_pair_list launch = {.items = spec->launch, .count = spec->launch_count};
    const char *not_shared = spec_env_value(spec, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
    const char *styles = launch_value(&launch, LAUNCH_ENV_STYLE);
    const bool is_alone = spec->nodes * spec->nproc_per_node == 1 &&
                          (styles == NULL || !launch_has_word(styles, "horovod"));
    const bool is_needless = is_alone || is_program(spec, "ddp-worker") ||
                             (not_shared != NULL && strcmp(not_shared, "1") == 0);

    if (!none && launch_value(&launch, LAUNCH_STORE) != NULL)
        return STATUS_OK;
    return spec_set_launch(spec, LAUNCH_STORE, none || is_needless ? "off" : "on", err);
}

enum status spec_nodes_parse(const char *text, uint32_t *nodes, uint32_t *nodes_min,
                             struct err *err)
{
    const char *colon = strchr(text, ':');
    uint64_t least, most;
    char part[24];
    enum status status;

    (void)snprintf(part, sizeof part, "%.*s", colon ? (int)(colon - text) : 23, text);
    status = options_parse_number("--nodes", part, 1, NODES_PER_JOB_MAX, &least, err);
    if (status != STATUS_OK)
        return status;
    most = least;
    if (colon)
        status = options_parse_number("--nodes", colon + 1, 1, NODES_PER_JOB_MAX, &most, err);
    if (status != STATUS_OK)
        return status;
    if (least > most)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--nodes %.20s: the smaller number is the first one: MIN:MAX", text);
    *nodes = (uint32_t)most;
    *nodes_min = (uint32_t)least;
    return STATUS_OK;
}

enum status spec_hang_parse(struct spec *spec, const char *text, struct err *err)
{
    uint64_t time_us = TIME_US_MAX;

    if (strcmp(text, "off") != 0 &&
        (!options_parse_duration(text, &time_us) || time_us == 0 || time_us > DURATION_US_MAX))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--hang-timeout %.40s: a time like 5m is expected, or off", text);
    spec->hang_timeout_us = time_us;
    return STATUS_OK;
}

enum status spec_warn_parse(struct spec *spec, const char *text, struct err *err)
{
    const char *colon = strchr(text, ':');
    char time[24];
    enum status status;

    (void)snprintf(time, sizeof time, "%.*s", colon ? (int)(colon - text) : 0, text);
    if (!options_parse_duration(time, &spec->warn_us) || spec->warn_us == 0 ||
        spec->warn_us > DURATION_US_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--warn %.40s: a time and a signal are expected, as 60s:USR1", text);
    status = signal_parse(colon + 1, &spec->warn_signal, err);
    if (status != STATUS_OK)
        return err_set(err, status, 0,
                       "--warn %.40s: '%.20s' is no signal; examples: USR1, INT, 10", text,
                       colon + 1);
    if (spec->warn_signal == SIGKILL || spec->warn_signal == SIGSTOP)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--warn %.40s: no program can catch that signal: it warns of nothing", text);
    return STATUS_OK;
}

enum status spec_after_parse(struct spec *spec, struct arena *arena, const char *text,
                             struct err *err)
{
    struct after_spec after;
    char list[AFTER_SPEC_BYTES_MAX];
    const int length = snprintf(list, sizeof list, "%s%s%s", spec->after ? spec->after : "",
                                spec->after ? "," : "", text);
    enum status status = after_spec_parse(text, &after, err);

    if (status == STATUS_OK) /* checks the whole list, with the jobs that were given before */
        status = length < (int)sizeof list
                     ? after_spec_parse(list, &after, err)
                     : err_set(err, STATUS_TOO_BIG, 0, "--after: the list of jobs is too long");
    if (status != STATUS_OK)
        return status;
    spec->after = arena_text(arena, list, (size_t)length);
    return spec->after ? STATUS_OK : no_memory(err);
}

enum status spec_priority_parse(const char *text, int32_t *priority, struct err *err)
{
    const char *digits = *text == '-' ? text + 1 : text;
    uint64_t number;

    if (strlen(digits) < 1 || strlen(digits) > 4 || digits[strspn(digits, "0123456789")] != '\0' ||
        (number = strtoull(digits, NULL, 10)) > PRIORITY_MAX)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--priority %.20s: a whole number from %d to %d is expected", text,
                       PRIORITY_MIN, PRIORITY_MAX);
    *priority = *text == '-' ? -(int32_t)number : (int32_t)number;
    return STATUS_OK;
}

bool spec_name_is_valid(const char *name)
{
    size_t length = strlen(name);

    return length > 0 && length < JOB_NAME_BYTES_MAX &&
           name[strspn(
               name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == '\0';
}

/* What a python runs: its first word that ends in .py, else the script or the module. */
static const char *python_names(const struct msg_text_list *argv)
{
    uint32_t i = 1;

    for (uint32_t k = 1; k < argv->count; k++)
        if (strlen(argv->items[k]) > 3 && text_ends_with(argv->items[k], ".py"))
            return argv->items[k];
    while (i < argv->count &&
           (strcmp(argv->items[i], "-u") == 0 || strcmp(argv->items[i], "-m") == 0))
        i++;
    return i < argv->count && argv->items[i][0] != '-' ? argv->items[i] : argv->items[0];
}

void spec_default_name(const struct msg_text_list *argv, char name[JOB_NAME_BYTES_MAX])
{
    const char *word = argv->count > 0 ? argv->items[0] : "", *base;
    size_t length = 0;

    if (strstr(word, "python")) /* the script names the job better than its interpreter */
        word = python_names(argv);
    base = strrchr(word, '/') ? strrchr(word, '/') + 1 : word;
    for (; *base && length < JOB_NAME_BYTES_MAX - 1; base++)
        name[length++] = isalnum((unsigned char)*base) || strchr("._-", *base) ? *base : '_';
    name[length] = '\0';
    if (length > 3 && strcmp(name + length - 3, ".py") == 0)
        name[length - 3] = '\0';
    if (name[0] == '\0')
        (void)snprintf(name, JOB_NAME_BYTES_MAX, "job");
}

/* Refuses options that exclude one another, or whose values do. */
static enum status check_together(const struct spec *spec, struct err *err)
{
    struct array_spec array;

    if (spec->nodes_min > spec->nodes)
        return err_set(err, STATUS_BAD_INPUT, 0, "at least %u nodes and at most %u cannot be",
                       spec->nodes_min, spec->nodes);
    if (spec->warn_us != 0 && spec->warn_us >= spec->time_limit_us)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--warn: the warning comes before the end of --time, so --time must be "
                       "given and longer");
    if (spec->spares > 0 && spec->max_restarts == 0)
        return err_set(
            err, STATUS_BAD_INPUT, 0,
            "--spares: a spare node takes over at a restart, and --max-restarts 0 allows "
            "none");
    if (spec->requeue_at_limit && spec->time_limit_us == 0)
        return err_set(err, STATUS_BAD_INPUT, 0, "--requeue-at-limit needs a limit: add --time 8h");
    if (spec->array && strlen(spec->array) >= ARRAY_SPEC_BYTES_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "--array: more than %u characters",
                       ARRAY_SPEC_BYTES_MAX - 1);
    if (spec->array && array_spec_parse(spec->array, &array, err) != STATUS_OK)
        return err->status;
    if (spec->replace_stragglers && spec->spares == 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--replace-stragglers needs a spare node: add --spares 1");
    return STATUS_OK;
}

enum status spec_request(const struct spec *spec, const char *request_id, const char *name,
                         const char *cwd, struct msg_submit *submit, struct err *err)
{
    assert(request_id != NULL && name != NULL && cwd != NULL);
    if (spec->argv.count == 0)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "there is no command; write it after --: ddpctl run -- python train.py");
    if (spec->argv.items[0][0] == '\0')
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "the command is an empty word; was a variable of your shell not set?");
    if (spec->argv.count > ARGS_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "the command has %u words, %u at most can be sent",
                       spec->argv.count, ARGS_MAX);
    for (uint32_t i = 0; i < spec->argv.count; i++) {
        if (!utf8_is_valid(spec->argv.items[i], strlen(spec->argv.items[i])))
            return err_set(err, STATUS_BAD_INPUT, 0, "word %u of the command is not valid UTF-8",
                           i + 1);
        if (strlen(spec->argv.items[i]) >= ENV_TEXT_BYTES_MAX)
            return err_set(err, STATUS_TOO_BIG, 0,
                           "word %u of the command has %zu bytes, and no program can be given more "
                           "than %u in one: write it to a file",
                           i + 1, strlen(spec->argv.items[i]), ENV_TEXT_BYTES_MAX - 1);
    }
    if (!spec_name_is_valid(name))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "'%.80s' is no name of a job: letters, digits, . _ - and %u characters at "
                       "most",
                       name, JOB_NAME_BYTES_MAX - 1);
    if (check_together(spec, err) != STATUS_OK)
        return err->status;
    if (spec->nodes * spec->nproc_per_node > RANKS_PER_JOB_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "%u ranks on each of %u nodes are more than %u",
                       spec->nproc_per_node, spec->nodes, RANKS_PER_JOB_MAX);
    *submit = (struct msg_submit){
        .request_id = request_id,
        .name = name,
        .nodes = spec->nodes,
        .nproc_per_node = spec->nproc_per_node,
        .max_restarts = spec->max_restarts,
        .restarts_given = spec->restarts_given,
        .grace_us = spec->grace_us,
        .time_limit_us = spec->time_limit_us,
        .priority = spec->priority,
        .wait_for_nodes = spec->wait_for_nodes,
        .nodes_min = spec->nodes_min,
        .spares = spec->spares,
        .replace_stragglers = spec->replace_stragglers,
        .hang_timeout_us = spec->hang_timeout_us,
        .requeue_at_limit = spec->requeue_at_limit,
        .warn_us = spec->warn_us,
        .warn_signal = spec->warn_signal,
        .after = spec->after ? spec->after : "",
        .array = spec->array ? spec->array : "",
        .cwd = cwd,
        .argv = spec->argv,
        .env = {.items = spec->env, .count = spec->env_count},
        .launch = {.items = spec->launch, .count = spec->launch_count},
    };
    return spec_check_size(spec, submit, err);
}
