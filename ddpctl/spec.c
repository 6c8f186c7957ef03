#include "ddpctl/spec.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/options.h"
#include "common/utf8.h"

static enum status no_memory(struct err *err)
{
    return err_set(err, STATUS_TOO_BIG, 0,
                   "the job's command and environment are too big for a request (1 MiB)");
}

enum status spec_init(struct spec *spec, struct arena *arena, struct err *err)
{
    *spec = (struct spec){.nodes = 1,
                          .nproc_per_node = 1,
                          .max_restarts = SPEC_RESTARTS_DEFAULT,
                          .grace_us = GRACE_DEFAULT_US};
    spec->env = arena_alloc(arena, ENV_MAX * sizeof *spec->env);
    return spec->env ? STATUS_OK : no_memory(err);
}

static bool env_name_is_valid(const char *name)
{
    if (!isalpha((unsigned char)*name) && *name != '_')
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

static bool env_name_is_ours(const char *name)
{
    return strncmp(name, "DDP_", 4) == 0 || strcmp(name, "NCCL_SOCKET_MAGIC") == 0;
}

static struct msg_pair *find_env(const struct spec *spec, const char *name)
{
    for (uint32_t i = 0; i < spec->env_count; i++)
        if (strcmp(spec->env[i].name, name) == 0)
            return &spec->env[i];
    return NULL;
}

enum status spec_set_env(struct spec *spec, struct arena *arena, const char *name,
                         const char *value, struct err *err)
{
    struct msg_pair *pair = find_env(spec, name);

    assert(spec->env != NULL && spec->env_count <= ENV_MAX);
    if (!env_name_is_valid(name))
        return err_set(err, STATUS_BAD_INPUT, 0, "environment: '%.60s' is no name of a variable",
                       name);
    if (env_name_is_ours(name))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "environment: %.60s is the platform's own: it and names that begin with "
                       "DDP_ cannot be set",
                       name);
    if (!utf8_is_valid(value, strlen(value)))
        return err_set(err, STATUS_BAD_INPUT, 0, "environment: the value of %.60s is no UTF-8 text",
                       name);
    if (!pair && spec->env_count == ENV_MAX)
        return err_set(err, STATUS_TOO_BIG, 0,
                       "environment: more than %u variables; --env-clear sends only those of --env",
                       ENV_MAX);
    if (!pair)
        pair = &spec->env[spec->env_count++];
    pair->name = arena_text(arena, name, strlen(name));
    pair->value = arena_text(arena, value, strlen(value));
    return pair->name && pair->value ? STATUS_OK : no_memory(err);
}

enum status spec_set_env_text(struct spec *spec, struct arena *arena, const char *text,
                              struct err *err)
{
    const char *equals = strchr(text, '='), *value = equals ? equals + 1 : getenv(text);
    char name[256];

    if (!value)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--env %.80s: there is no such variable here; write NAME=VALUE", text);
    if (equals && (size_t)(equals - text) >= sizeof name)
        return err_set(err, STATUS_TOO_BIG, 0, "--env: the name in '%.40s...' is too long", text);
    (void)snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - text) : 255, text);
    return spec_set_env(spec, arena, name, value, err);
}

enum status spec_add_environ(struct spec *spec, struct arena *arena, char *const *environ,
                             uint32_t *left_out, struct err *err)
{
    assert(environ != NULL);
    for (; *environ; environ++) {
        const char *equals = strchr(*environ, '=');
        char name[256];
        enum status status;

        if (!equals || equals == *environ || (size_t)(equals - *environ) >= sizeof name) {
            ++*left_out;
            continue;
        }
        memcpy(name, *environ, (size_t)(equals - *environ));
        name[equals - *environ] = '\0';
        if (env_name_is_ours(name) || find_env(spec, name))
            continue;
        if (!env_name_is_valid(name) || !utf8_is_valid(equals + 1, strlen(equals + 1))) {
            ++*left_out; /* exported functions of a shell have such names */
            continue;
        }
        status = spec_set_env(spec, arena, name, equals + 1, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status spec_nodes_parse(const char *text, uint32_t *nodes, struct err *err)
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
    if (least != most)
        return err_set(err, STATUS_UNSUPPORTED, 0,
                       "--nodes %.20s: a job that changes its size comes later; give one "
                       "number of nodes",
                       text);
    *nodes = (uint32_t)least;
    return STATUS_OK;
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

void spec_default_name(const struct msg_text_list *argv, char name[JOB_NAME_BYTES_MAX])
{
    const char *word = argv->count > 0 ? argv->items[0] : "", *base;
    size_t length = 0;

    if (strstr(word, "python")) { /* the script names the job better than its interpreter */
        for (uint32_t i = 1; i < argv->count; i++) {
            size_t bytes = strlen(argv->items[i]);

            if (bytes > 3 && strcmp(argv->items[i] + bytes - 3, ".py") == 0) {
                word = argv->items[i];
                break;
            }
        }
    }
    base = strrchr(word, '/') ? strrchr(word, '/') + 1 : word;
    for (; *base && length < JOB_NAME_BYTES_MAX - 1; base++)
        name[length++] = isalnum((unsigned char)*base) || strchr("._-", *base) ? *base : '_';
    name[length] = '\0';
    if (length > 3 && strcmp(name + length - 3, ".py") == 0)
        name[length - 3] = '\0';
    if (name[0] == '\0')
        (void)snprintf(name, JOB_NAME_BYTES_MAX, "job");
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
    for (uint32_t i = 0; i < spec->argv.count; i++)
        if (!utf8_is_valid(spec->argv.items[i], strlen(spec->argv.items[i])))
            return err_set(err, STATUS_BAD_INPUT, 0, "word %u of the command is not valid UTF-8",
                           i + 1);
    if (!spec_name_is_valid(name))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "'%.80s' is no name of a job: letters, digits, . _ - and %u characters at "
                       "most",
                       name, JOB_NAME_BYTES_MAX - 1);
    if (spec->nodes * spec->nproc_per_node > RANKS_PER_JOB_MAX)
        return err_set(err, STATUS_TOO_BIG, 0, "%u ranks on each of %u nodes are more than %u",
                       spec->nproc_per_node, spec->nodes, RANKS_PER_JOB_MAX);
    *submit = (struct msg_submit){
        .request_id = request_id,
        .name = name,
        .nodes = spec->nodes,
        .nproc_per_node = spec->nproc_per_node,
        .max_restarts = spec->max_restarts,
        .grace_us = spec->grace_us,
        .time_limit_us = spec->time_limit_us,
        .priority = spec->priority,
        .wait_for_nodes = spec->wait_for_nodes,
        .cwd = cwd,
        .argv = spec->argv,
        .env = {.items = spec->env, .count = spec->env_count},
    };
    return STATUS_OK;
}
