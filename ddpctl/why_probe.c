/* What nodes answer about a live job, as structs: the c10d store and the stacks of ranks. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_strict.h"
#include "ddpctl/why.h"

#define STATUS_TOKENS_MAX 400000u /* enough for a store with the most clients that it lists */
#define KERNEL_FRAMES_SHOWN 5u

static const char *text_of(const cJSON *object, const char *name, struct arena *arena)
{
    const char *text = cJSON_GetStringValue(json_member(object, name));
    const char *kept = text != NULL ? arena_text(arena, text, strlen(text)) : NULL;

    return kept != NULL ? kept : "";
}

static double number_of(const cJSON *object, const char *name)
{
    const cJSON *item = json_member(object, name);

    return cJSON_IsNumber(item) && isfinite(item->valuedouble) && item->valuedouble >= 0
               ? item->valuedouble
               : 0;
}

static uint32_t count_of(const cJSON *object, const char *name)
{
    double number = number_of(object, name);

    return number < (double)INT32_MAX ? (uint32_t)number : INT32_MAX;
}

/* Parses an answer. One that does not name this schema is refused. */
static enum status parse(const char *json, size_t byte_count, const char *schema, cJSON **out,
                         struct err *err)
{
    const struct json_limits limits = {.depth_max = 8, .token_max = STATUS_TOKENS_MAX};
    enum status status = json_strict_parse(json, byte_count, &limits, out, err);
    const char *found;

    if (status != STATUS_OK)
        return status;
    found = cJSON_GetStringValue(json_member(*out, "schema"));
    if (found != NULL && strcmp(found, schema) == 0)
        return STATUS_OK;
    cJSON_Delete(*out);
    *out = NULL;
    return err_set(err, STATUS_BAD_INPUT, 0, "the node's answer is no %s", schema);
}

/* The rank of a process, found by its node and its pid there; -1: not known. */
static int32_t rank_of(const struct msg_job_info *job, const char *node, uint32_t pid)
{
    for (uint32_t i = 0; job != NULL && pid != 0 && i < job->ranks.count; i++)
        if (job->ranks.items[i].pid == pid && strcmp(job->ranks.items[i].node, node) == 0)
            return (int32_t)job->ranks.items[i].rank;
    return -1;
}

static void take_client(const cJSON *item, const struct msg_job_info *job, struct arena *arena,
                        struct why_client *client)
{
    const cJSON *missing = json_member(item, "missing"), *key;

    client->node = text_of(item, "node", arena);
    client->address = text_of(item, "address", arena);
    client->rank = rank_of(job, client->node, count_of(item, "pid"));
    client->connected_s = number_of(item, "connected_s");
    client->waits = text_of(item, "waits", arena);
    client->waits_s = number_of(item, "waits_s");
    client->missing_count = count_of(item, "missing_count");
    cJSON_ArrayForEach(key, missing)
    {
        const char *text = cJSON_GetStringValue(key);

        if (text == NULL || client->missing_listed == WHY_KEYS_MAX)
            continue;
        text = arena_text(arena, text, strlen(text));
        if (text != NULL)
            client->missing[client->missing_listed++] = text;
    }
}

enum status why_store_parse(const char *json, size_t byte_count, const struct msg_job_info *job,
                            struct arena *arena, struct why_store *store, struct err *err)
{
    cJSON *object = NULL;
    const cJSON *clients, *item;
    enum status status = parse(json, byte_count, "ddp.store.v1", &object, err);

    *store = (struct why_store){.address = ""};
    if (status != STATUS_OK)
        return status;
    clients = json_member(object, "clients");
    store->address = text_of(object, "address", arena);
    store->keys = number_of(object, "keys");
    store->clients =
        arena_alloc(arena, ((size_t)cJSON_GetArraySize(clients) + 1) * sizeof *store->clients);
    cJSON_ArrayForEach(item, clients)
    {
        if (store->clients != NULL && cJSON_IsObject(item))
            take_client(item, job, arena, &store->clients[store->client_count++]);
    }
    cJSON_Delete(object);
    return store->clients != NULL ? STATUS_OK
                                  : err_set(err, STATUS_MEMORY, 0, "no memory for the store");
}

/* The innermost frames, on one line. */
static const char *kernel_text(const cJSON *object, struct arena *arena)
{
    const cJSON *frames = json_member(object, "kernel_stack"), *frame;
    struct buf text = {.limit = 512};
    uint32_t count = 0;
    const char *kept;

    cJSON_ArrayForEach(frame, frames)
    {
        const char *name = cJSON_GetStringValue(frame);

        if (name != NULL && count++ < KERNEL_FRAMES_SHOWN)
            buf_printf(&text, "%s%s", count == 1 ? "" : " < ", name);
    }
    kept = text.byte_count > 0 ? arena_text(arena, text.bytes, text.byte_count) : "";
    buf_free(&text);
    return kept != NULL ? kept : "";
}

enum status why_stack_parse(const char *json, size_t byte_count, uint32_t rank, struct arena *arena,
                            struct why_stack *stack, struct err *err)
{
    cJSON *object = NULL;
    enum status status = parse(json, byte_count, "ddp.stack.v1", &object, err);

    if (status != STATUS_OK)
        return status;
    *stack = (struct why_stack){
        .rank = rank,
        .pid = count_of(object, "pid"),
        .dial_pid = count_of(object, "dial_pid"),
        .dial_to = text_of(object, "dial_to", arena),
        .state = text_of(object, "state", arena),
        .wchan = text_of(object, "wchan", arena),
        .kernel = kernel_text(object, arena),
        .kernel_problem = text_of(object, "kernel_stack_problem", arena),
        .python = text_of(object, "python", arena),
        .python_problem = text_of(object, "python_problem", arena),
    };
    cJSON_Delete(object);
    return STATUS_OK;
}

/* -- keys of PyTorch's process groups ----------------------------------------------------------- */

/* Moves *at past `prefix`; false: it is not there. */
static bool pass(const char **at, const char *prefix)
{
    size_t length = strlen(prefix);

    if (strncmp(*at, prefix, length) != 0)
        return false;
    *at += length;
    return true;
}

/* Parses a number and moves *at past it; false: there is none. */
static bool take_number(const char **at, uint32_t *number)
{
    char *end;
    unsigned long value = strtoul(*at, &end, 10);

    if (**at < '0' || **at > '9' || value > RANKS_PER_JOB_MAX)
        return false;
    *at = end;
    *number = (uint32_t)value;
    return true;
}

/* "default_pg/0//cpu//0/2" is what rank 2 of the default group sets for Gloo.
 * "default_pg/0//cuda//0" is the id of an NCCL communicator, set by the group's first rank. A group
 * of new_group has its name in between: "default_pg/0//1//cpu//0/2". Seen with PyTorch 2.15. */
bool why_key_text(const char *key, int32_t *rank, struct buf *out)
{
    uint32_t group = 0, sequence = 0, member = 0;
    bool is_default;

    *rank = -1;
    if (pass(&key, "worker/attempt_") && (!take_number(&key, &group) || !pass(&key, "/")))
        return false;
    if (!pass(&key, "default_pg/"))
        return false;
    if (pass(&key, "store_based_barrier_key:")) {
        buf_printf(out, "the barrier of process group ");
        if (!take_number(&key, &group))
            return false;
        buf_printf(out, "%u", group);
        return true;
    }
    if (!take_number(&key, &group) || !pass(&key, "//"))
        return false;
    is_default = !take_number(&key, &group);
    if (!is_default && !pass(&key, "//"))
        return false;
    if (pass(&key, "cpu//") && take_number(&key, &sequence) && pass(&key, "/") &&
        take_number(&key, &member) && *key == '\0') {
        *rank = is_default ? (int32_t)member : -1;
        buf_printf(out, "rank %u in process group %u (Gloo)", member, group);
        return true;
    }
    if (pass(&key, "cuda//") && take_number(&key, &sequence) && *key == '\0') {
        *rank = is_default ? 0 : -1;
        buf_printf(out, "the id of NCCL from the first rank of process group %u", group);
        return true;
    }
    return false;
}
