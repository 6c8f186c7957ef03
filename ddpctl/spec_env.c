/* The environment of a job: found by name, since there may be many thousands of variables. */
#include "ddpctl/spec.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "ddpctl/escape.h"
#include "ddpctl/options.h"

#define ROOM_FIRST 256u
#define NAMES_SHOWN 8u

static enum status no_memory(struct err *err)
{
    return err_set(
        err, STATUS_TOO_BIG, 0,
        "the environment is too big for a request; --env-clear sends only what --env names");
}

/* FNV-1a */
static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* Where the name is in the index, or would be: an entry is the number of a variable, from 1. */
static uint32_t *find_place(const struct spec *spec, const char *name)
{
    uint32_t at = hash_of(name) % (2 * spec->env_room);

    while (spec->env_index[at] != 0 && strcmp(spec->env[spec->env_index[at] - 1].name, name) != 0)
        at = (at + 1) % (2 * spec->env_room);
    return &spec->env_index[at];
}

static const struct msg_pair *find_env(const struct spec *spec, const char *name)
{
    const uint32_t number = spec->env_room > 0 ? *find_place(spec, name) : 0;

    return number > 0 ? &spec->env[number - 1] : NULL;
}

const char *spec_env_value(const struct spec *spec, const char *name)
{
    const struct msg_pair *pair = find_env(spec, name);

    return pair != NULL ? pair->value : NULL;
}

static bool grow(struct spec *spec, struct arena *arena)
{
    const struct msg_pair *before = spec->env;
    const uint32_t room = spec->env_room > 0 ? 2 * spec->env_room : ROOM_FIRST;

    if (spec->env_count < spec->env_room)
        return true;
    spec->env = arena_alloc(arena, room * sizeof *spec->env);
    spec->env_index = arena_alloc(arena, (size_t)2 * room * sizeof *spec->env_index);
    if (!spec->env || !spec->env_index)
        return false;
    spec->env_room = room;
    for (uint32_t i = 0; i < spec->env_count; i++) {
        spec->env[i] = before[i];
        *find_place(spec, before[i].name) = i + 1;
    }
    return true;
}

static bool env_name_is_ours(const char *name)
{
    return strncmp(name, "DDP_", 4) == 0 || strcmp(name, "NCCL_SOCKET_MAGIC") == 0;
}

/* What execve takes and a message can carry. */
static enum status check_env(const char *name, const char *value, struct err *err)
{
    const size_t bytes = strlen(name) + strlen(value) + 2;

    if (*name == '\0' || strchr(name, '=') || !utf8_is_valid(name, strlen(name)))
        return err_set(err, STATUS_BAD_INPUT, 0, "environment: '%.60s' is no name of a variable",
                       utf8_is_valid(name, strlen(name)) ? name : "?");
    if (env_name_is_ours(name))
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "environment: %.60s is the platform's own: it and names that begin with "
                       "DDP_ cannot be set",
                       name);
    if (!utf8_is_valid(value, strlen(value)))
        return err_set(err, STATUS_BAD_INPUT, 0, "environment: the value of %.60s is no UTF-8 text",
                       name);
    if (bytes > ENV_TEXT_BYTES_MAX)
        return err_set(
            err, STATUS_TOO_BIG, 0,
            "environment: %.60s has %zu bytes, and no program can be given more than %u in "
            "one variable: write it to a file that the job reads",
            name, bytes - 1, ENV_TEXT_BYTES_MAX - 1);
    return STATUS_OK;
}

enum status spec_set_env(struct spec *spec, struct arena *arena, const char *name,
                         const char *value, struct err *err)
{
    const enum status status = check_env(name, value, err);
    struct msg_pair pair;
    uint32_t *place;

    if (status != STATUS_OK)
        return status;
    if (!grow(spec, arena))
        return no_memory(err);
    place = find_place(spec, name);
    if (*place == 0 && spec->env_count == ENV_MAX)
        return err_set(
            err, STATUS_TOO_BIG, 0,
            "environment: more than %u variables, %.60s would be one more; --env-clear sends "
            "only those of --env",
            ENV_MAX, name);
    pair = (struct msg_pair){.name = arena_text(arena, name, strlen(name)),
                             .value = arena_text(arena, value, strlen(value))};
    if (!pair.name || !pair.value)
        return no_memory(err);
    if (*place == 0)
        *place = ++spec->env_count;
    spec->env[*place - 1] = pair;
    return STATUS_OK;
}

enum status spec_set_env_text(struct spec *spec, struct arena *arena, const char *text,
                              struct err *err)
{
    const char *equals = strchr(text, '='), *value = equals ? equals + 1 : getenv(text);
    const char *name = arena_text(arena, text, equals ? (size_t)(equals - text) : strlen(text));

    if (!value)
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "--env %.80s: there is no such variable here; write NAME=VALUE", text);
    return name ? spec_set_env(spec, arena, name, value, err) : no_memory(err);
}

/* Whether the variable sets an option of ddpctl itself, as DDP_SERVER does. */
static bool is_of_option(const char *name)
{
    if (strncmp(name, "DDP_", 4) != 0)
        return false;
    for (size_t i = 0; i < options_row_count; i++) {
        const char *at = name + 4, *option = options_rows[i].name;

        while (*at && *at == (*option == '-' ? '_' : (char)toupper((unsigned char)*option))) {
            at++;
            option++;
        }
        if (*at == '\0' && *option == '\0')
            return true;
    }
    return false;
}

static void note_left_out(uint32_t *count, struct buf *names, const char *name, size_t byte_count)
{
    if (++*count <= NAMES_SHOWN) {
        buf_add_text(names, *count > 1 ? " " : "");
        escape_text(name, byte_count < 64 ? byte_count : 64, names);
    } else if (*count == NAMES_SHOWN + 1) {
        buf_add_text(names, " ...");
    }
}

enum status spec_add_environ(struct spec *spec, struct arena *arena, char *const *environ,
                             struct spec_left_out *left_out, struct err *err)
{
    for (; *environ; environ++) {
        const char *equals = strchr(*environ, '=');
        const size_t length = equals != NULL ? (size_t)(equals - *environ) : strlen(*environ);
        const char *name = arena_text(arena, *environ, length);
        enum status status;

        if (!name)
            return no_memory(err);
        if (equals && (find_env(spec, name) || is_of_option(name)))
            continue;
        if (env_name_is_ours(name)) {
            note_left_out(&left_out->ours, &left_out->ours_names, name, length);
            continue;
        }
        if (!equals || length == 0 || !utf8_is_valid(*environ, strlen(*environ))) {
            note_left_out(&left_out->invalid, &left_out->invalid_names, name, length);
            continue;
        }
        status = spec_set_env(spec, arena, name, equals + 1, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* The largest variables, "BIG_1 (100003 bytes)": what to leave out. */
static void name_largest(const struct spec *spec, struct buf *out)
{
    size_t below = SIZE_MAX;

    for (uint32_t turn = 0; turn < 3; turn++) {
        const struct msg_pair *largest = NULL;
        size_t most = 0;

        for (uint32_t i = 0; i < spec->env_count; i++) {
            const size_t bytes = strlen(spec->env[i].name) + strlen(spec->env[i].value) + 1;

            if (bytes > most && bytes < below) {
                largest = &spec->env[i];
                most = bytes;
            }
        }
        if (largest == NULL)
            return;
        buf_printf(out, "%s", turn > 0 ? ", " : "");
        escape_text(largest->name, strlen(largest->name) < 64 ? strlen(largest->name) : 64, out);
        buf_printf(out, " (%zu bytes)", most);
        below = most;
    }
}

enum status spec_check_size(const struct spec *spec, const struct msg_submit *submit,
                            struct err *err)
{
    const struct msg msg = {.type = MSG_TYPE_SUBMIT, .submit = *submit};
    struct buf frame = {0}, names = {0};
    enum status status = msg_encode(&msg, &frame, err);

    buf_free(&frame);
    if (status != STATUS_TOO_BIG)
        return STATUS_OK; /* what else is wrong with it, the request says */
    name_largest(spec, &names);
    buf_add(&names, "", 1);
    status =
        err_set(err, STATUS_TOO_BIG, 0,
                "the command and its environment are too big for a request (%u MiB at most). The "
                "largest variables: %.200s; `env -u NAME ddpctl ...` leaves one out, --env-clear "
                "sends only those of --env",
                FRAME_SUBMIT_BYTES_MAX >> 20, names.failed ? "?" : names.bytes);
    buf_free(&names);
    return status;
}
