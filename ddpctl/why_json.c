/* The JSON of `ddpctl why`. */
#include <assert.h>
#include <string.h>

#include "common/utf8.h"
#include "ddpctl/json_parts.h"
#include "ddpctl/why.h"

static void add_us(cJSON *object, const char *name, int64_t duration_us)
{
    add_known(object, name, (double)duration_us / 1e6, duration_us >= 0);
}

static cJSON *failure_new(const struct part_failure *failure)
{
    cJSON *item = cJSON_CreateObject();
    bool has_rank = failure->rank >= 0;

    add_number(item, "generation", failure->generation);
    add_time(item, "at", failure->failed_ms);
    add_us(item, "ran_s", failure->ran_us);
    add_us(item, "alone_s", failure->alone_us);
    add_text(item, "class", failure_class_name(failure->class));
    add_known(item, "rank", failure->rank, has_rank);
    add_known(item, "local_rank", failure->local_rank, has_rank);
    add_text(item, "node", failure->node);
    add_known(item, "pid", failure->pid, failure->pid > 0);
    add_known(item, "exit_code", failure->exit_code, has_rank && failure->signal == 0);
    add_signal(item, failure->signal);
    (void)cJSON_AddBoolToObject(item, "oom", failure->oom);
    add_text(item, "core", failure->core);
    add_text(item, "cause", failure->cause);
    add_text(item, "error", failure->error);
    add_text(item, "tail", failure->tail);
    if (failure->class == FAILURE_HANG)
        add_text(item, "stacks", failure->stacks);
    add_known(item, "step", (double)failure->step, failure->step > 0);
    add_known(item, "resumed_step", (double)failure->resumed_step, failure->resumed_step > 0);
    add_known(item, "checkpoint_step", (double)failure->checkpoint_step,
              failure->checkpoint_step > 0);
    add_number(item, "world_size", failure->world);
    add_number(item, "failed_too", failure->failed_too);
    add_number(item, "left", failure->left);
    add_number(item, "stopped", failure->stopped);
    add_number(item, "lost", failure->lost);
    add_text(item, "decision", failure->decision);
    return item;
}

static void add_failed_ranks(cJSON *object, const struct msg_why_info *info)
{
    cJSON *array = cJSON_AddArrayToObject(object, "failed_ranks");

    for (uint32_t i = 0; i < info->ranks.count; i++) {
        const struct part_failed_rank *rank = &info->ranks.items[i];
        cJSON *item = cJSON_CreateObject();

        add_number(item, "rank", rank->rank);
        add_text(item, "node", rank->node);
        add_known(item, "exit_code", rank->exit_code, rank->signal == 0);
        add_signal(item, rank->signal);
        add_us(item, "after_s", rank->after_us);
        (void)cJSON_AddItemToArray(array, item);
    }
}

static void add_moves(cJSON *object, const struct msg_why_info *info)
{
    cJSON *array = cJSON_AddArrayToObject(object, "moves");

    for (uint32_t i = 0; i < info->moves.count; i++) {
        cJSON *item = cJSON_CreateObject();

        add_number(item, "rank", info->moves.items[i].rank);
        add_us(item, "progress_s_ago", info->moves.items[i].age_us);
        (void)cJSON_AddItemToArray(array, item);
    }
}

static void add_client(cJSON *array, const struct why_client *client)
{
    cJSON *item = cJSON_CreateObject(), *missing;

    add_known(item, "rank", client->rank, client->rank >= 0);
    add_text(item, "node", client->node);
    add_text(item, "address", client->address);
    add_number(item, "connected_s", client->connected_s);
    add_text(item, "waits", client->waits);
    add_known(item, "waits_s", client->waits_s, client->waits[0] != '\0');
    missing = cJSON_AddArrayToObject(item, "missing");
    for (uint32_t i = 0; i < client->missing_listed; i++)
        (void)cJSON_AddItemToArray(missing, cJSON_CreateString(client->missing[i]));
    add_number(item, "missing_count", client->missing_count);
    (void)cJSON_AddItemToArray(array, item);
}

static void add_store(cJSON *object, const struct why_store *store)
{
    cJSON *item, *clients;

    if (store->address[0] == '\0') {
        (void)cJSON_AddNullToObject(object, "store");
        return;
    }
    item = cJSON_AddObjectToObject(object, "store");
    add_text(item, "address", store->address);
    add_number(item, "keys", store->keys);
    clients = cJSON_AddArrayToObject(item, "clients");
    for (uint32_t i = 0; i < store->client_count; i++)
        add_client(clients, &store->clients[i]);
}

static void add_dials(cJSON *object, const struct why *why)
{
    cJSON *array = cJSON_AddArrayToObject(object, "dials");

    for (uint32_t i = 0; i < why->dial_count; i++) {
        cJSON *item = cJSON_CreateObject();

        add_number(item, "rank", why->dials[i].rank);
        add_number(item, "pid", why->dials[i].pid);
        add_text(item, "to", why->dials[i].to);
        (void)cJSON_AddItemToArray(array, item);
    }
}

static void add_stacks(cJSON *object, const struct why *why)
{
    cJSON *array = cJSON_AddArrayToObject(object, "stacks");

    for (uint32_t i = 0; i < why->stack_count; i++) {
        const struct why_stack *stack = &why->stacks[i];
        cJSON *item = cJSON_CreateObject();

        add_number(item, "rank", stack->rank);
        add_known(item, "pid", stack->pid, stack->pid > 0);
        add_text(item, "state", stack->state);
        add_text(item, "wchan", stack->wchan);
        add_text(item, "kernel", stack->kernel);
        add_text(item, "kernel_problem", stack->kernel_problem);
        add_text(item, "python", stack->python);
        add_text(item, "python_problem", stack->python_problem);
        (void)cJSON_AddItemToArray(array, item);
    }
}

static void add_waits_for(cJSON *object, const struct why *why)
{
    const struct part_job *job = &why->info->jobs.items[0];
    uint32_t world = job->nodes * job->nproc_per_node;
    cJSON *array = cJSON_AddArrayToObject(object, "waits_for_ranks");
    bool marks[RANKS_PER_JOB_MAX] = {false};

    if (why_blockers(why, marks, world) == 0)
        return;
    for (uint32_t i = 0; i < world; i++)
        if (marks[i])
            (void)cJSON_AddItemToArray(array, cJSON_CreateNumber(i));
}

void why_json(const struct why *why, struct buf *out)
{
    cJSON *object = object_new(), *body = cJSON_AddObjectToObject(object, "why"), *array;
    const struct part_failure *shown = why_shown(why);

    assert(why->info->jobs.count == 1);
    output_add_job(cJSON_AddObjectToObject(body, "job"), &why->info->jobs.items[0]);
    add_us(body, "running_s", why->info->ran_us);
    if (shown != NULL)
        (void)cJSON_AddItemToObject(body, "failure", failure_new(shown));
    else
        (void)cJSON_AddNullToObject(body, "failure");
    add_failed_ranks(body, why->info);
    array = cJSON_AddArrayToObject(body, "failures");
    for (uint32_t i = 0; i < why->info->failures.count; i++)
        (void)cJSON_AddItemToArray(array, failure_new(&why->info->failures.items[i]));
    add_text(body, "cancelled", why->cancel != NULL ? why->cancel->text : "");
    if (why->unkept != NULL)
        add_text(body, "not_stored", why->unkept->text);
    add_moves(body, why->info);
    add_waits_for(body, why);
    add_store(body, &why->store);
    add_stacks(body, why);
    add_dials(body, why);
    array = cJSON_AddArrayToObject(body, "not_known");
    for (uint32_t i = 0; i < why->unknown_count; i++)
        (void)cJSON_AddItemToArray(array, cJSON_CreateString(why->unknown[i]));
    object_print(object, out);
}
