/* Candidates for every request: from the cache, else from the heuristics. Several threads each take
 * the next request until all are done. */
#include "worker/backend/cuda/plans/internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 16
#define BUILDER_VERSION 3 /* increase when cudnn_layers.c builds another graph for a request */

/* How many multiprocessors an engine of this kind should use; 0: all. */
static int32_t sm_target(const struct plan_set *set, enum plan_kind kind)
{
    const bool is_norm = kind == PLAN_NORM_FORWARD || kind == PLAN_NORM_BACKWARD;
    const int32_t left = set->processors - (int32_t)set->spared_sms;

    return is_norm && set->spared_sms > 0 && left > 0 ? left : 0;
}

void plan_key(const struct plan_set *set, const struct plan_request *request,
              char key[PLAN_CACHE_KEY_MAX])
{
    (void)snprintf(
        key, PLAN_CACHE_KEY_MAX,
        "%s builder %d%s%s limit %zu candidates %u: %s %s n%u c%u h%u w%u k%u to %ux%u "
        "window %u %u "
        "%u%s%s%s%s",
        set->device_key, BUILDER_VERSION, set->target.deterministic ? " deterministic" : "",
        set->target.tf32 ? " tf32" : "", set->target.workspace_limit, set->candidates,
        plan_kind_name(request->kind), plan_type_name(request->type), request->n, request->c,
        request->h, request->w, request->k, request->out_h, request->out_w, request->window.kernel,
        request->window.stride, request->window.pad, request->has_bias ? " bias" : "",
        request->has_add ? " add" : "", request->has_relu ? " relu" : "",
        sm_target(set, request->kind) > 0 ? " spares" : "");
    if (sm_target(set, request->kind) > 0)
        (void)snprintf(key + strlen(key), PLAN_CACHE_KEY_MAX - strlen(key), " %u", set->spared_sms);
}

static void refused(struct plan *plan, const char *text, bool needs_driver)
{
    plan->info.status = STATUS_UNSUPPORTED;
    plan->info.needs_driver = needs_driver;
    (void)snprintf(plan->info.engine, sizeof plan->info.engine, "%.95s", text);
}

static void count_damage(struct plan_set *set)
{
    (void)pthread_mutex_lock(&set->lock);
    set->damaged_count++;
    (void)pthread_mutex_unlock(&set->lock);
}

/* Reads the line "time_us 12.500" before the plan; " spares" follows if the plan leaves
 * multiprocessors free. */
static const char *read_line(const char *text, struct plan_info *info)
{
    const char *end = strchr(text, '\n');
    char *rest;

    if (strncmp(text, "time_us ", 8) != 0 || end == NULL)
        return NULL;
    info->time_us = strtof(text + 8, &rest);
    info->spares_sms = strncmp(rest, " spares\n", 8) == 0;
    return end + 1;
}

static bool take_from_cache(struct plan_set *set, struct plan *plan, const char *key)
{
    struct cudnn_refusal refusal;
    char *text = NULL;
    struct plan_info found = plan->info;
    size_t byte_count = 0;
    const enum plan_cache_answer answer = plan_cache_read(&set->cache, key, &text, &byte_count);
    const char *json = answer == PLAN_CACHE_FOUND ? read_line(text, &found) : NULL;

    if (json != NULL && plan_set_times(set) && found.time_us <= 0) {
        free(text); /* an earlier version kept what it could not time */
        return false;
    }
    if (json != NULL && cudnn_plan_read(&set->target, json, byte_count - (size_t)(json - text),
                                        &plan->candidates[0], &refusal)) {
        plan->candidate_count = 1;
        plan->info = found;
        plan->info.from_cache = true;
    } else if (answer != PLAN_CACHE_NONE) {
        count_damage(set);
    }
    free(text);
    return plan->candidate_count > 0;
}

/* First asks for engines that use fewer multiprocessors, if this is wanted; then without this. */
static void propose_cudnn(const struct plan_set *set, struct plan *plan,
                          cudnnBackendDescriptor_t whole, struct cudnn_refusal *refusal)
{
    struct cudnn_target target = set->target;

    target.sm_target = sm_target(set, plan->request.kind);
    plan->candidate_count = cudnn_plan_propose(&target, whole, plan->request.type, plan->candidates,
                                               set->candidates, refusal);
    plan->info.spares_sms = target.sm_target > 0 && plan->candidate_count > 0;
    if (plan->candidate_count > 0 || target.sm_target == 0)
        return;
    plan->candidate_count = cudnn_plan_propose(&set->target, whole, plan->request.type,
                                               plan->candidates, set->candidates, refusal);
}

static void build_cudnn(struct plan_set *set, uint32_t index)
{
    struct plan *plan = &set->plans[index];
    struct cudnn_refusal refusal;
    cudnnBackendDescriptor_t whole;
    struct cudnn_graph graph;
    char key[PLAN_CACHE_KEY_MAX];

    cudnn_graph_init(&graph, &set->cudnn);
    cudnn_layer_build(&graph, &plan->request);
    whole = cudnn_graph_finish(&graph);
    memcpy(plan->bindings, graph.bindings, sizeof plan->bindings);
    plan->binding_count = graph.binding_count;
    if (whole == NULL) {
        refused(plan, graph.text, false);
    } else if (plan->built_as == index) {
        plan_key(set, &plan->request, key);
        if (!take_from_cache(set, plan, key))
            propose_cudnn(set, plan, whole, &refusal);
        if (plan->candidate_count == 0)
            refused(plan, refusal.text, cudnn_needs_driver(refusal.code));
    }
    cudnn_graph_close(&graph);
}

static enum status propose_linear(struct plan_set *set, struct plan *plan,
                                  const struct plan_request *request, struct err *err)
{
    const uint32_t limit =
        set->candidates < LT_CANDIDATES_MAX ? set->candidates : LT_CANDIDATES_MAX;
    enum status status = lt_plan_open(&set->lt, request, set->target.tf32, &plan->lt, err);

    if (status == STATUS_OK && set->lt_handle == NULL)
        return err_set(err, STATUS_NOT_FOUND, 0, "cublasLt chooses algorithms on a device alone");
    if (status == STATUS_OK)
        status = lt_plan_propose(&set->lt, set->lt_handle, set->target.workspace_limit, limit,
                                 &plan->lt, err);
    return status;
}

/* A product's epilogue can compute the bias's gradient only for some types and sizes; otherwise the
 * caller has to compute it. */
static void build_linear(struct plan_set *set, uint32_t index)
{
    struct plan *plan = &set->plans[index];
    struct plan_request bare = plan->request;
    struct err why = {.status = STATUS_OK};
    enum status status;

    plan->is_linear = true;
    if (plan->built_as != index)
        return;
    status = propose_linear(set, plan, &plan->request, &why);
    if (status == STATUS_NOT_FOUND) {
        refused(plan, why.text, true);
        return;
    }
    if (status == STATUS_UNSUPPORTED && plan->request.kind == PLAN_LINEAR_WGRAD &&
        plan->request.has_bias) {
        bare.has_bias = false;
        lt_plan_close(&set->lt, &plan->lt);
        status = propose_linear(set, plan, &bare, &why);
        plan->info.lacks_bias = status == STATUS_OK;
    }
    if (status == STATUS_OK)
        plan->candidate_count = plan->lt.algorithm_count;
    else
        refused(plan, why.text, false);
}

static void *build_some(void *user)
{
    struct plan_set *set = user;

    if (set->has_device)
        plan_device_use(set->device_index);
    for (;;) {
        uint32_t index;

        (void)pthread_mutex_lock(&set->lock);
        index = set->next++;
        (void)pthread_mutex_unlock(&set->lock);
        if (index >= set->count)
            return NULL;
        if (cudnn_serves(set->plans[index].request.kind))
            build_cudnn(set, index);
        else
            build_linear(set, index);
    }
}

static void find_equal_requests(struct plan_set *set)
{
    char key[PLAN_CACHE_KEY_MAX], other[PLAN_CACHE_KEY_MAX];

    for (uint32_t i = 0; i < set->count; i++) {
        set->plans[i].built_as = i;
        plan_key(set, &set->plans[i].request, key);
        for (uint32_t k = 0; k < i && set->plans[i].built_as == i; k++) {
            plan_key(set, &set->plans[k].request, other);
            if (strcmp(key, other) == 0)
                set->plans[i].built_as = k;
        }
    }
}

enum status plan_build_all(struct plan_set *set, struct err *err)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t wanted =
        set->threads != 0 ? set->threads : (uint32_t)(processors > 0 ? processors : 1);
    pthread_t threads[THREADS_MAX];
    uint32_t started = 0;

    if (wanted > THREADS_MAX)
        wanted = THREADS_MAX;
    find_equal_requests(set);
    set->next = 0;
    while (started < wanted && pthread_create(&threads[started], NULL, build_some, set) == 0)
        started++;
    for (uint32_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
    if (started == 0)
        return err_set(err, STATUS_SYSTEM, 0, "building plans: no thread could be started");
    return STATUS_OK;
}
