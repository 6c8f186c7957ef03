#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "common/json_strict.h"
#include "common/options.h"
#include "ddpctl/spec.h"

/* The file that is being read, for messages. */
struct source {
    struct spec *spec;
    struct arena *arena;
    const char *file;
    const char *text;
    size_t byte_count;
};

/* The line of the first `"key"` in the text; the decoder has checked that no key occurs twice. */
static unsigned key_line(const struct source *source, const char *key)
{
    char quoted[80];
    const char *found;
    unsigned line = 1;
    int length = snprintf(quoted, sizeof quoted, "\"%s\"", key);

    if (length >= (int)sizeof quoted)
        length = (int)sizeof quoted - 1;
    found = memmem(source->text, source->byte_count, quoted, (size_t)length);
    for (const char *at = source->text; found && at < found; at++)
        line += *at == '\n';
    return line;
}

static enum status refuse(const struct source *source, const cJSON *item, const char *expected,
                          struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, 0, "%.80s, line %u: %.40s should be %s", source->file,
                   key_line(source, item->string), item->string, expected);
}

static enum status read_number(const struct source *source, const cJSON *item, uint32_t min,
                               uint32_t max, uint32_t *value, struct err *err)
{
    char expected[64];

    if (cJSON_IsNumber(item) && item->valuedouble >= min && item->valuedouble <= max &&
        (double)(uint32_t)item->valuedouble == item->valuedouble) {
        *value = (uint32_t)item->valuedouble;
        return STATUS_OK;
    }
    (void)snprintf(expected, sizeof expected, "a whole number in %u..%u", min, max);
    return refuse(source, item, expected, err);
}

static enum status read_priority(const struct source *source, const cJSON *item, int32_t *priority,
                                 struct err *err)
{
    char expected[64];

    if (cJSON_IsNumber(item) && item->valuedouble >= PRIORITY_MIN &&
        item->valuedouble <= PRIORITY_MAX &&
        (double)(int32_t)item->valuedouble == item->valuedouble) {
        *priority = (int32_t)item->valuedouble;
        return STATUS_OK;
    }
    (void)snprintf(expected, sizeof expected, "a whole number in %d..%d", PRIORITY_MIN,
                   PRIORITY_MAX);
    return refuse(source, item, expected, err);
}

static enum status read_duration(const struct source *source, const cJSON *item,
                                 uint64_t *duration_us, struct err *err)
{
    if (cJSON_IsString(item) && options_parse_duration(item->valuestring, duration_us) &&
        *duration_us <= DURATION_US_MAX)
        return STATUS_OK;
    if (cJSON_IsNumber(item) && item->valuedouble >= 0 &&
        item->valuedouble <= (double)DURATION_US_MAX / 1e6) {
        *duration_us = (uint64_t)(item->valuedouble * 1e6 + 0.5);
        return STATUS_OK;
    }
    return refuse(source, item, "a duration like \"5m\", or a number of seconds", err);
}

static enum status read_text(const struct source *source, const cJSON *item, const char **text,
                             struct err *err)
{
    if (!cJSON_IsString(item) || item->valuestring[0] == '\0')
        return refuse(source, item, "a string, not empty", err);
    *text = arena_text(source->arena, item->valuestring, strlen(item->valuestring));
    return *text ? STATUS_OK : err_set(err, STATUS_MEMORY, 0, "%.80s: out of memory", source->file);
}

static enum status read_argv(const struct source *source, const cJSON *item, struct err *err)
{
    int count = cJSON_GetArraySize(item);
    const char **words;
    const cJSON *word;
    uint32_t i = 0;

    if (!cJSON_IsArray(item) || count < 1 || count > (int)ARGS_MAX)
        return refuse(source, item, "an array of strings: the command, word by word", err);
    words = arena_alloc(source->arena, (size_t)count * sizeof *words);
    if (!words)
        return err_set(err, STATUS_MEMORY, 0, "%.80s: out of memory", source->file);
    cJSON_ArrayForEach(word, item)
    {
        if (!cJSON_IsString(word))
            return refuse(source, item, "an array of strings: the command, word by word", err);
        words[i] = arena_text(source->arena, word->valuestring, strlen(word->valuestring));
        if (!words[i++])
            return err_set(err, STATUS_MEMORY, 0, "%.80s: out of memory", source->file);
    }
    source->spec->argv = (struct msg_text_list){.items = words, .count = i};
    return STATUS_OK;
}

static enum status read_env(const struct source *source, const cJSON *item, struct err *err)
{
    const cJSON *pair;

    if (!cJSON_IsObject(item))
        return refuse(source, item, "an object of strings: {\"NAME\": \"value\"}", err);
    cJSON_ArrayForEach(pair, item)
    {
        struct err why = {0};
        enum status status;

        if (!cJSON_IsString(pair))
            return refuse(source, pair, "a string", err);
        status = spec_set_env(source->spec, source->arena, pair->string, pair->valuestring, &why);
        if (status != STATUS_OK)
            return err_set(err, status, 0, "%.80s, line %u: %.150s", source->file,
                           key_line(source, pair->string), why.text);
    }
    return STATUS_OK;
}

#define LAUNCH_WORD(suffix, name, values) " " name

static enum status read_launch(const struct source *source, const cJSON *item, struct err *err)
{
    const cJSON *pair;

    if (!cJSON_IsObject(item))
        return refuse(source, item, "an object of strings: {\"env-style\": \"slurm\"}", err);
    cJSON_ArrayForEach(pair, item)
    {
        struct err why = {0};
        enum launch_option option;
        const char *value;
        enum status status;

        if (!launch_find(pair->string, &option))
            return err_set(
                err, STATUS_BAD_INPUT, 0,
                "%.80s, line %u: launch has no '%.40s'; it has" LAUNCH_TABLE(LAUNCH_WORD),
                source->file, key_line(source, pair->string), pair->string);
        status = read_text(source, pair, &value, err);
        if (status != STATUS_OK)
            return status;
        status = spec_set_launch(source->spec, option, value, &why);
        if (status != STATUS_OK)
            return err_set(err, status, 0, "%.80s, line %u: %.150s", source->file,
                           key_line(source, pair->string), why.text);
    }
    return STATUS_OK;
}

static const char *const keys[] = {"name",
                                   "nodes",
                                   "nproc_per_node",
                                   "argv",
                                   "env",
                                   "cwd",
                                   "max_restarts",
                                   "grace",
                                   "time",
                                   "priority",
                                   "wait_for_nodes",
                                   "launch",
                                   "schema",
                                   "nodes_min",
                                   "spares",
                                   "replace_stragglers",
                                   "hang_timeout",
                                   "warn",
                                   "after",
                                   "array",
                                   "requeue_at_limit"};

/* Reads a key whose value has the same form as the value of its option. */
static enum status read_as_option(const struct source *source, const cJSON *item, struct err *err)
{
    struct spec *spec = source->spec;
    const char *text = NULL;
    struct err why = {0};
    enum status status = read_text(source, item, &text, err);

    if (status != STATUS_OK)
        return status;
    if (strcmp(item->string, "nodes") == 0)
        status = spec_nodes_parse(text, &spec->nodes, &spec->nodes_min, &why);
    else if (strcmp(item->string, "hang_timeout") == 0)
        status = spec_hang_parse(spec, text, &why);
    else if (strcmp(item->string, "warn") == 0)
        status = spec_warn_parse(spec, text, &why);
    else
        status = spec_after_parse(spec, source->arena, text, &why);
    if (status == STATUS_OK)
        return STATUS_OK;
    return err_set(err, status, 0, "%.80s, line %u: %.150s", source->file,
                   key_line(source, item->string), why.text);
}

/* A text, or a number of seconds as --dry-run writes it. */
static enum status read_hang(const struct source *source, const cJSON *item, struct err *err)
{
    uint64_t time_us = 0;
    enum status status;

    if (!cJSON_IsNumber(item))
        return read_as_option(source, item, err);
    status = read_duration(source, item, &time_us, err);
    if (status == STATUS_OK && time_us == 0)
        return refuse(source, item, "\"off\", or a time above 0", err);
    if (status == STATUS_OK)
        source->spec->hang_timeout_us = time_us;
    return status;
}

static enum status read_bool(const struct source *source, const cJSON *item, bool *value,
                             struct err *err)
{
    *value = cJSON_IsTrue(item);
    return cJSON_IsBool(item) ? STATUS_OK : refuse(source, item, "true or false", err);
}

static enum status read_key(const struct source *source, const cJSON *item, struct err *err)
{
    struct spec *spec = source->spec;
    const char *key = item->string, *guess;

    if (strcmp(key, "name") == 0)
        return read_text(source, item, &spec->name, err);
    if (strcmp(key, "cwd") == 0)
        return read_text(source, item, &spec->cwd, err);
    if (strcmp(key, "hang_timeout") == 0)
        return read_hang(source, item, err);
    if ((strcmp(key, "nodes") == 0 && cJSON_IsString(item)) || strcmp(key, "warn") == 0 ||
        strcmp(key, "after") == 0)
        return read_as_option(source, item, err);
    if (strcmp(key, "array") == 0)
        return read_text(source, item, &spec->array, err);
    if (strcmp(key, "nodes_min") == 0)
        return read_number(source, item, 1, NODES_PER_JOB_MAX, &spec->nodes_min, err);
    if (strcmp(key, "spares") == 0)
        return read_number(source, item, 0, NODES_PER_JOB_MAX, &spec->spares, err);
    if (strcmp(key, "requeue_at_limit") == 0)
        return read_bool(source, item, &spec->requeue_at_limit, err);
    if (strcmp(key, "replace_stragglers") == 0)
        return read_bool(source, item, &spec->replace_stragglers, err);
    if (strcmp(key, "nodes") == 0)
        return read_number(source, item, 1, NODES_PER_JOB_MAX, &spec->nodes, err);
    if (strcmp(key, "nproc_per_node") == 0) {
        spec->nproc_given = true;
        return read_number(source, item, 1, SLOTS_PER_NODE_MAX, &spec->nproc_per_node, err);
    }
    if (strcmp(key, "max_restarts") == 0) {
        spec->restarts_given = true;
        return read_number(source, item, 0, 1000, &spec->max_restarts, err);
    }
    if (strcmp(key, "grace") == 0)
        return read_duration(source, item, &spec->grace_us, err);
    if (strcmp(key, "time") == 0)
        return read_duration(source, item, &spec->time_limit_us, err);
    if (strcmp(key, "priority") == 0)
        return read_priority(source, item, &spec->priority, err);
    if (strcmp(key, "wait_for_nodes") == 0)
        return read_bool(source, item, &spec->wait_for_nodes, err);
    if (strcmp(key, "argv") == 0)
        return read_argv(source, item, err);
    if (strcmp(key, "env") == 0)
        return read_env(source, item, err);
    if (strcmp(key, "launch") == 0)
        return read_launch(source, item, err);
    if (strcmp(key, "schema") == 0)
        return cJSON_IsString(item) && strcmp(item->valuestring, "ddp.v1") == 0
                   ? STATUS_OK
                   : refuse(source, item, "\"ddp.v1\"", err);
    guess = options_nearest(key, keys, sizeof keys / sizeof keys[0]);
    return err_set(err, STATUS_BAD_INPUT, 0, "%.80s, line %u: there is no key '%.40s'%s%s%s",
                   source->file, key_line(source, key), key, guess ? "; did you mean '" : "",
                   guess ? guess : "", guess ? "'?" : "");
}

enum status spec_parse(struct spec *spec, struct arena *arena, const char *file, const char *text,
                       size_t byte_count, struct err *err)
{
    struct source source = {
        .spec = spec, .arena = arena, .file = file, .text = text, .byte_count = byte_count};
    struct err why = {0};
    cJSON *root = NULL;
    const cJSON *item;
    enum status status = json_strict_parse(text, byte_count, NULL, &root, &why);

    if (status != STATUS_OK)
        return err_set(err, status, 0, "%.80s: %.160s", file, why.text);
    if (!cJSON_IsObject(root))
        status = err_set(err, STATUS_BAD_INPUT, 0,
                         "%.80s: a job is a JSON object: {\"argv\": [...], ...}", file);
    for (item = root->child; status == STATUS_OK && item; item = item->next)
        status = read_key(&source, item, err);
    cJSON_Delete(root);
    return status;
}
