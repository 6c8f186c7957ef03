/* Rows of specs: what a job runs. When it has ended, what is shown stays, and the rest is dropped. */
#include <assert.h>
#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/stage.h"
#include "rendezvous/store/etcd_client.h"
#include "rendezvous/store/internal.h"

/* What stays of the spec of an ended job: the begin of its command, and the variables that say where
 * programs are found, by which `ddpctl doctor JOB` looks at the nodes. */
#define ARGV_KEPT_BYTES 8192u
#define ENV_KEPT_BYTES 4096u
#define SPEC_SMALL_CHARS (ARGV_KEPT_BYTES + 1024u)

static char *argv_to_json(const struct msg_text_list *argv)
{
    cJSON *array = cJSON_CreateArray();
    char *json;
    uint32_t i;

    for (i = 0; i < argv->count; i++)
        (void)cJSON_AddItemToArray(array, cJSON_CreateString(argv->items[i]));
    json = cJSON_PrintUnformatted(array);
    cJSON_Delete(array);
    return json;
}

static char *pairs_to_json(const struct msg_pair_list *pairs)
{
    cJSON *object = cJSON_CreateObject();
    char *json;
    uint32_t i;

    for (i = 0; i < pairs->count; i++)
        (void)cJSON_AddStringToObject(object, pairs->items[i].name, pairs->items[i].value);
    json = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    return json;
}

void store_write_spec(struct store *store, uint64_t job_id, const char *user,
                      const struct msg_submit *submit)
{
    char *argv = argv_to_json(&submit->argv), *env = pairs_to_json(&submit->env);
    char *launch = pairs_to_json(&submit->launch);
    sqlite3_stmt *stmt = store_use(store, STORE_SPEC_WRITE);

    assert(store->in_transaction);
    if (argv == NULL || env == NULL || launch == NULL)
        store_fail(store, "find memory for a job of");
    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    (void)sqlite3_bind_text(stmt, 2, submit->cwd, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(stmt, 3, argv, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(stmt, 4, env, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(stmt, 5, launch, -1, SQLITE_STATIC);
    store_run(store, stmt, "write a job's command to");
    (void)sqlite3_clear_bindings(stmt);
    cJSON_free(argv);
    cJSON_free(env);
    cJSON_free(launch);
    stmt = store_use(store, STORE_REQUEST_WRITE);
    (void)sqlite3_bind_text(stmt, 1, submit->request_id, -1, SQLITE_TRANSIENT);
    (void)sqlite3_bind_text(stmt, 2, user, -1, SQLITE_TRANSIENT);
    (void)sqlite3_bind_int64(stmt, 3, (sqlite3_int64)job_id);
    store_run(store, stmt, "write a request id to");
    if (submit->array[0] == '\0') /* it may have ended at once */
        (void)store_trim_spec(store, (struct rdzv_ids){.first = job_id, .last = job_id}, true);
}

static char *keep(struct arena *arena, const char *text)
{
    return arena_text(arena, text, strlen(text));
}

static enum status spec_status(bool is_readable, const void *items)
{
    if (!is_readable)
        return STATUS_BAD_INPUT;
    return items != NULL ? STATUS_OK : STATUS_MEMORY;
}

static enum status argv_from_json(const char *json, struct arena *arena, struct msg_text_list *argv)
{
    cJSON *array = cJSON_Parse(json);
    uint32_t count = (uint32_t)cJSON_GetArraySize(array), i = 0;
    const char **items = arena_alloc(arena, sizeof *items * (count + 1));
    enum status status = spec_status(cJSON_IsArray(array) && count > 0, items);
    const cJSON *item;

    if (status == STATUS_OK) {
        cJSON_ArrayForEach(item, array)
        {
            items[i] = keep(arena, item->valuestring != NULL ? item->valuestring : "");
            status = items[i++] != NULL ? status : STATUS_MEMORY;
        }
        argv->items = items;
        argv->count = i;
    }
    cJSON_Delete(array);
    return status;
}

static enum status pairs_from_json(const char *json, struct arena *arena,
                                   struct msg_pair_list *pairs)
{
    cJSON *object = cJSON_Parse(json);
    uint32_t count = (uint32_t)cJSON_GetArraySize(object), i = 0;
    struct msg_pair *items = arena_alloc(arena, sizeof *items * (count + 1));
    enum status status = spec_status(cJSON_IsObject(object), items);
    const cJSON *item;

    if (status == STATUS_OK) {
        cJSON_ArrayForEach(item, object)
        {
            items[i].name = keep(arena, item->string);
            items[i].value = keep(arena, item->valuestring != NULL ? item->valuestring : "");
            if (items[i].name == NULL || items[i].value == NULL)
                status = STATUS_MEMORY;
            i++;
        }
        pairs->items = items;
        pairs->count = i;
    }
    cJSON_Delete(object);
    return status;
}

enum status store_spec(struct store *store, uint64_t job_id, bool with_env, struct arena *arena,
                       struct store_spec *spec)
{
    sqlite3_stmt *stmt = store_use(store, STORE_SPEC_GET);
    enum status status;

    memset(spec, 0, sizeof *spec);
    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)job_id);
    if (!store_row(store, stmt, "read a job's command from"))
        return STATUS_NOT_FOUND;
    spec->cwd = keep(arena, store_text(stmt, 0));
    status = argv_from_json(store_text(stmt, 1), arena, &spec->argv);
    if (status == STATUS_OK && with_env)
        status = pairs_from_json(store_text(stmt, 2), arena, &spec->env);
    if (status == STATUS_OK && with_env)
        status = pairs_from_json(store_text(stmt, 3), arena, &spec->launch);
    (void)sqlite3_reset(stmt);
    return spec->cwd != NULL ? status : STATUS_MEMORY;
}

struct store_staged *store_staged(struct store *store, const char *user, uint32_t *count)
{
    sqlite3_stmt *stmt = store_use(store, STORE_SPEC_STAGED);
    struct store_staged *staged = malloc(sizeof *staged), *more;
    uint32_t room = 1;

    *count = 0;
    (void)sqlite3_bind_text(stmt, 1, user, -1, SQLITE_STATIC);
    while (staged != NULL && store_row(store, stmt, "look for staged directories in")) {
        if (!stage_of_cwd(store_text(stmt, 0), staged[*count].hash))
            continue;
        staged[*count].is_named = true;
        staged[*count].is_of_user = sqlite3_column_int(stmt, 1) != 0;
        if (++*count < room)
            continue;
        room *= 2;
        more = realloc(staged, room * sizeof *staged);
        if (more == NULL)
            free(staged);
        staged = more;
    }
    (void)sqlite3_reset(stmt);
    (void)sqlite3_clear_bindings(stmt);
    return staged;
}

uint32_t store_stage_jobs(struct store *store, const char *hash, uint64_t after_id, uint64_t *ids,
                          uint32_t max)
{
    sqlite3_stmt *stmt = store_use(store, STORE_SPEC_STAGE_JOBS);
    char cwd[STAGE_CWD_BYTES_MAX];
    uint32_t count = 0;

    (void)snprintf(cwd, sizeof cwd, STAGE_PREFIX "%s", hash);
    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)after_id);
    (void)sqlite3_bind_text(stmt, 2, cwd, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(stmt, 3, max);
    while (count < max && store_row(store, stmt, "look for a staged directory in"))
        ids[count++] = (uint64_t)sqlite3_column_int64(stmt, 0);
    (void)sqlite3_reset(stmt);
    (void)sqlite3_clear_bindings(stmt);
    return count;
}

/* -- the spec of an ended job ------------------------------------------------------------------ */

/* A copy of `text` that has at most `byte_max` bytes, with "..." for what is cut off. */
static const char *cut(const char *text, size_t byte_max, struct arena *arena)
{
    size_t kept = strlen(text);
    char *copy;

    if (kept <= byte_max)
        return text;
    for (kept = byte_max; kept > 0 && ((unsigned char)text[kept] & 0xc0) == 0x80; kept--)
        ; /* not within a character */
    copy = arena_alloc(arena, kept + 4);
    if (copy != NULL)
        (void)snprintf(copy, kept + 4, "%.*s...", (int)kept, text);
    return copy;
}

/* Keeps the first ARGV_KEPT_BYTES of a command. False: no memory. */
static bool shorten_argv(struct msg_text_list *argv, struct arena *arena)
{
    const char **items = arena_alloc(arena, sizeof *items * (argv->count + 1u));
    size_t left = ARGV_KEPT_BYTES;
    uint32_t count = 0;

    while (items != NULL && count < argv->count && left > 0) {
        size_t byte_count = strlen(argv->items[count]) + 1;

        items[count] = cut(argv->items[count], left, arena);
        if (items[count++] == NULL)
            return false;
        left -= byte_count < left ? byte_count : left;
    }
    argv->items = items;
    argv->count = count;
    return items != NULL;
}

static void keep_search_variables(struct msg_pair_list *env)
{
    static const char *const kept[] = {"PATH",       "LD_LIBRARY_PATH", "PYTHONPATH",
                                       "PYTHONHOME", "VIRTUAL_ENV",     "CONDA_PREFIX"};
    struct msg_pair *pairs = (struct msg_pair *)(uintptr_t)env->items; /* ours, from the arena */
    size_t left = ENV_KEPT_BYTES;
    uint32_t count = 0;

    for (uint32_t i = 0; i < env->count; i++) {
        const size_t byte_count = strlen(pairs[i].name) + strlen(pairs[i].value);

        for (size_t k = 0; k < sizeof kept / sizeof kept[0]; k++)
            if (strcmp(pairs[i].name, kept[k]) == 0 && byte_count <= left) {
                left -= byte_count;
                pairs[count++] = pairs[i];
                break;
            }
    }
    env->count = count;
}

static void write_ended(struct store *store, uint64_t spec_id, const struct store_spec *spec)
{
    char *argv = argv_to_json(&spec->argv), *env = pairs_to_json(&spec->env);
    sqlite3_stmt *stmt = store_use(store, STORE_SPEC_TRIM);

    if (argv == NULL || env == NULL)
        store_fail(store, "find memory for a job of");
    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)spec_id);
    (void)sqlite3_bind_text(stmt, 2, argv, -1, SQLITE_STATIC);
    (void)sqlite3_bind_text(stmt, 3, env, -1, SQLITE_STATIC);
    store_run(store, stmt, "shorten a job's command in");
    (void)sqlite3_clear_bindings(stmt);
    cJSON_free(argv);
    cJSON_free(env);
}

bool store_trim_spec(struct store *store, struct rdzv_ids jobs, bool is_small_too)
{
    sqlite3_stmt *stmt = store_use(store, STORE_SPEC_ENDED);
    struct arena arena = {0};
    struct store_spec spec = {.cwd = ""};
    bool is_good;

    assert(store->in_transaction);
    (void)sqlite3_bind_int64(stmt, 1, (sqlite3_int64)jobs.first);
    (void)sqlite3_bind_int64(stmt, 2, (sqlite3_int64)jobs.last);
    (void)sqlite3_bind_int(stmt, 3, is_small_too);
    (void)sqlite3_bind_int64(stmt, 4, SPEC_SMALL_CHARS);
    if (!store_row(store, stmt, "read a job's command from"))
        return false;
    is_good = argv_from_json(store_text(stmt, 0), &arena, &spec.argv) == STATUS_OK &&
              pairs_from_json(store_text(stmt, 1), &arena, &spec.env) == STATUS_OK &&
              shorten_argv(&spec.argv, &arena);
    (void)sqlite3_reset(stmt);
    if (is_good) { /* one that cannot be read stays as it is */
        keep_search_variables(&spec.env);
        write_ended(store, jobs.first, &spec);
    }
    arena_reset(&arena);
    return is_good;
}

/* As JSON has it, without escapes. */
uint64_t store_spec_bytes(const struct msg_submit *submit)
{
    uint64_t bytes = strlen(submit->cwd) + 6;

    for (uint32_t i = 0; i < submit->argv.count; i++)
        bytes += strlen(submit->argv.items[i]) + 3;
    for (uint32_t i = 0; i < submit->env.count; i++)
        bytes += strlen(submit->env.items[i].name) + strlen(submit->env.items[i].value) + 6;
    for (uint32_t i = 0; i < submit->launch.count; i++)
        bytes += strlen(submit->launch.items[i].name) + strlen(submit->launch.items[i].value) + 6;
    return bytes;
}

/* A row is one request to etcd, whatever its size. */
size_t store_spec_bytes_max(const struct store *store)
{
    return store->remote != NULL ? ETCD_REQUEST_BYTES_MAX : SIZE_MAX;
}
