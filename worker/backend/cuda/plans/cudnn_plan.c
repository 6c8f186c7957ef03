#include "worker/backend/cuda/plans/cudnn_plan.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES_MAX 16

static void refuse(const struct cudnn_api *api, cudnnStatus_t code, struct cudnn_refusal *refusal)
{
    char why[96] = "";

    api->GetLastErrorString(why, sizeof why);
    refusal->code = code;
    (void)snprintf(refusal->text, sizeof refusal->text, "%s%s%s",
                   api->GetErrorString(code) +
                       (strncmp(api->GetErrorString(code), "CUDNN_STATUS_", 13) == 0 ? 13 : 0),
                   why[0] != '\0' ? ": " : "", why);
}

enum status cudnn_device_open(const struct cudnn_api *api, uint32_t index, const char *json,
                              cudnnBackendDescriptor_t *device, struct err *err)
{
    const int32_t id = (int32_t)index;
    struct cudnn_refusal refusal;
    cudnnStatus_t code = api->BackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, device);

    if (code == CUDNN_STATUS_SUCCESS)
        code = json != NULL
                   ? api->BackendSetAttribute(*device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                              CUDNN_TYPE_CHAR, (int64_t)strlen(json), json)
                   : api->BackendSetAttribute(*device, CUDNN_ATTR_DEVICEPROP_DEVICE_ID,
                                              CUDNN_TYPE_INT32, 1, &id);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendFinalize(*device);
    if (code == CUDNN_STATUS_SUCCESS)
        return STATUS_OK;
    refuse(api, code, &refusal);
    (void)api->BackendDestroyDescriptor(*device);
    *device = NULL;
    return err_set(err, json != NULL ? STATUS_BAD_INPUT : STATUS_UNSUPPORTED, (int)code,
                   "cuDNN %zu cannot use %s: %s", api->GetVersion(),
                   json != NULL ? "this description of a device" : "the device", refusal.text);
}

/* The numerical and behaviour notes of an engine, as cuDNN lists them. */
struct engine_notes {
    int64_t index;
    bool tensor_cores, rounds_inputs, is_random, is_compiled;
};

/* How many elements cuDNN wrote to an array of `limit`. cuDNN returns how many the attribute has,
 * which may be more than were requested (cuDNN API reference, cudnnBackendGetAttribute). */
static int64_t got_of(int64_t count, int64_t limit)
{
    return count < limit ? count : limit;
}

static bool has(const int *notes, int64_t count, int note)
{
    for (int64_t i = 0; i < got_of(count, NOTES_MAX); i++)
        if (notes[i] == note)
            return true;
    return false;
}

static struct engine_notes read_notes(const struct cudnn_api *api, cudnnBackendDescriptor_t config)
{
    struct engine_notes notes = {.index = -1};
    cudnnBackendDescriptor_t engine = NULL;
    int numerical[NOTES_MAX], behaviour[NOTES_MAX]; /* both enums are ints */
    int64_t count = 0;

    if (api->BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return notes;
    (void)api->BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
    (void)api->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                   &count, &notes.index);
    count = 0;
    (void)api->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                   CUDNN_TYPE_NUMERICAL_NOTE, NOTES_MAX, &count, numerical);
    notes.tensor_cores = has(numerical, count, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    notes.rounds_inputs = has(numerical, count, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    notes.is_random = has(numerical, count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    count = 0;
    (void)api->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                   CUDNN_TYPE_BEHAVIOR_NOTE, NOTES_MAX, &count, behaviour);
    notes.is_compiled = has(behaviour, count, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    (void)api->BackendDestroyDescriptor(engine);
    return notes;
}

static bool allowed(const struct cudnn_target *target, enum graph_dtype type,
                    const struct engine_notes *notes, struct cudnn_refusal *refusal)
{
    const char *why = NULL;

    if (target->deterministic && notes->is_random)
        why = "not deterministic";
    else if (type == GRAPH_F32 && !target->tf32 && (notes->tensor_cores || notes->rounds_inputs))
        why = "rounds fp32 to TF32";
    if (why == NULL)
        return true;
    refusal->code = CUDNN_STATUS_NOT_SUPPORTED;
    (void)snprintf(refusal->text, sizeof refusal->text, "engine %lld: %s", (long long)notes->index,
                   why);
    return false;
}

void cudnn_plan_close(const struct cudnn_api *api, struct cudnn_plan *plan)
{
    if (plan->descriptor != NULL)
        (void)api->BackendDestroyDescriptor(plan->descriptor);
    plan->descriptor = NULL;
}

/* Creates the descriptor of a plan whose source `name` (a configuration or JSON) is set, and gets
 * its workspace size. */
static bool finalise(const struct cudnn_target *target, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t count, const void *source,
                     struct cudnn_plan *plan, struct cudnn_refusal *refusal)
{
    const struct cudnn_api *api = target->api;
    cudnnBackendDescriptor_t descriptor = NULL;
    int64_t bytes = 0, got = 0;
    cudnnStatus_t code =
        api->BackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &descriptor);

    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->device);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(descriptor, name, type, count, source);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendFinalize(descriptor);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendGetAttribute(descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                        CUDNN_TYPE_INT64, 1, &got, &bytes);
    plan->descriptor = descriptor;
    plan->workspace_bytes = (size_t)bytes;
    if (code == CUDNN_STATUS_SUCCESS && bytes >= 0 && (size_t)bytes <= target->workspace_limit)
        return true;
    if (code != CUDNN_STATUS_SUCCESS)
        refuse(api, code, refusal);
    else
        (void)snprintf(refusal->text, sizeof refusal->text, "needs %lld bytes of workspace",
                       (long long)bytes);
    cudnn_plan_close(api, plan);
    return false;
}

/* The configurations of one heuristics mode, best first. Returns how many. */
static uint32_t ask(const struct cudnn_target *target, cudnnBackendDescriptor_t graph,
                    cudnnBackendHeurMode_t mode,
                    cudnnBackendDescriptor_t configs[CUDNN_CANDIDATES_MAX],
                    struct cudnn_refusal *refusal)
{
    const struct cudnn_api *api = target->api;
    cudnnBackendDescriptor_t heuristics = NULL;
    int64_t count = 0;
    cudnnStatus_t code =
        api->BackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics);

    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE,
                                        CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->device);
    if (code == CUDNN_STATUS_SUCCESS && target->sm_target > 0)
        code = api->BackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET,
                                        CUDNN_TYPE_INT32, 1, &target->sm_target);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendFinalize(heuristics);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_CANDIDATES_MAX, &count,
                                        configs);
    if (code != CUDNN_STATUS_SUCCESS)
        refuse(api, code, refusal);
    if (heuristics != NULL)
        (void)api->BackendDestroyDescriptor(heuristics);
    return code == CUDNN_STATUS_SUCCESS && count > 0 ? (uint32_t)got_of(count, CUDNN_CANDIDATES_MAX)
                                                     : 0;
}

/* Creates descriptors that the heuristics fill. */
static uint32_t new_configs(const struct cudnn_api *api,
                            cudnnBackendDescriptor_t configs[CUDNN_CANDIDATES_MAX])
{
    uint32_t count = 0;

    while (count < CUDNN_CANDIDATES_MAX &&
           api->BackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[count]) ==
               CUDNN_STATUS_SUCCESS)
        count++;
    return count;
}

/* Plans that are made ready at the same time: some engines compile their kernel meanwhile. */
struct wave {
    const struct cudnn_target *target;
    const cudnnBackendDescriptor_t *configs;
    uint32_t count;
    atomic_uint next;
    struct cudnn_plan plans[CUDNN_CANDIDATES_MAX];
    struct cudnn_refusal refusals[CUDNN_CANDIDATES_MAX];
    bool are_ready[CUDNN_CANDIDATES_MAX];
};

static void *finalise_some(void *user)
{
    struct wave *wave = user;

    for (;;) {
        const uint32_t i = atomic_fetch_add(&wave->next, 1);

        if (i >= wave->count)
            return NULL;
        wave->are_ready[i] = finalise(wave->target, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &wave->configs[i],
                                      &wave->plans[i], &wave->refusals[i]);
    }
}

static void *finalise_on_thread(void *user)
{
    const struct cudnn_target *target = ((const struct wave *)user)->target;

    if (target->use_device != NULL)
        target->use_device(target->device_index);
    return finalise_some(user);
}

/* The caller is one of the threads. Where none can be started, it does all. */
static void finalise_wave(struct wave *wave)
{
    pthread_t threads[CUDNN_CANDIDATES_MAX];
    uint32_t started = 0;

    while (started + 1 < wave->target->threads && started + 1 < wave->count &&
           pthread_create(&threads[started], NULL, finalise_on_thread, wave) == 0)
        started++;
    (void)finalise_some(wave);
    for (uint32_t i = 0; i < started; i++)
        (void)pthread_join(threads[i], NULL);
}

/* Keeps the configurations of engines that are allowed, in front. Returns how many. */
static uint32_t keep_allowed(const struct cudnn_target *target, enum graph_dtype type,
                             cudnnBackendDescriptor_t *configs, uint32_t count,
                             struct cudnn_plan *plans, struct cudnn_refusal *refusal)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct engine_notes notes = read_notes(target->api, configs[i]);
        cudnnBackendDescriptor_t config = configs[i];

        if (!allowed(target, type, &notes, refusal))
            continue;
        configs[i] = configs[kept]; /* none is lost: all are destroyed at the end */
        configs[kept] = config;
        plans[kept++] =
            (struct cudnn_plan){.engine = notes.index, .is_compiled = notes.is_compiled};
    }
    return kept;
}

/* The first `limit` of the allowed configurations that can be made ready. Returns how many. */
static uint32_t finalise_first(const struct cudnn_target *target,
                               const cudnnBackendDescriptor_t *configs,
                               const struct cudnn_plan *described, uint32_t count,
                               struct cudnn_plan *plans, uint32_t limit,
                               struct cudnn_refusal *refusal)
{
    uint32_t found = 0, at = 0;

    while (found < limit && at < count) {
        struct wave wave = {.target = target, .configs = configs + at};

        wave.count = count - at < limit - found ? count - at : limit - found;
        memcpy(wave.plans, described + at, wave.count * sizeof *described);
        finalise_wave(&wave);
        for (uint32_t i = 0; i < wave.count; i++) {
            if (wave.are_ready[i])
                plans[found++] = wave.plans[i];
            else
                *refusal = wave.refusals[i];
        }
        at += wave.count;
    }
    return found;
}

/* The plans of one mode. Returns how many. */
static uint32_t propose(const struct cudnn_target *target, cudnnBackendDescriptor_t graph,
                        enum graph_dtype type, cudnnBackendHeurMode_t mode,
                        struct cudnn_plan *plans, uint32_t limit, struct cudnn_refusal *refusal)
{
    cudnnBackendDescriptor_t configs[CUDNN_CANDIDATES_MAX];
    struct cudnn_plan described[CUDNN_CANDIDATES_MAX];
    const uint32_t made = new_configs(target->api, configs);
    uint32_t count = made == CUDNN_CANDIDATES_MAX ? ask(target, graph, mode, configs, refusal) : 0;

    count = keep_allowed(target, type, configs, count, described, refusal);
    count = finalise_first(target, configs, described, count, plans, limit, refusal);
    for (uint32_t i = 0; i < made; i++)
        (void)target->api->BackendDestroyDescriptor(configs[i]);
    return count;
}

/* Engine `index` with its default settings, as a finalised configuration; the status says whether
 * it worked. */
static cudnnStatus_t config_of(const struct cudnn_target *target, cudnnBackendDescriptor_t graph,
                               int64_t index, cudnnBackendDescriptor_t *config)
{
    const struct cudnn_api *api = target->api;
    cudnnBackendDescriptor_t engine = NULL;
    cudnnStatus_t code = api->BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);

    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, config);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                        &index);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(engine, CUDNN_ATTR_ENGINE_DEVICEPROP,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->device);
    if (code == CUDNN_STATUS_SUCCESS && target->sm_target > 0)
        code = api->BackendSetAttribute(engine, CUDNN_ATTR_ENGINE_SM_COUNT_TARGET, CUDNN_TYPE_INT32,
                                        1, &target->sm_target);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendFinalize(engine);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendSetAttribute(*config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    if (code == CUDNN_STATUS_SUCCESS)
        code = api->BackendFinalize(*config);
    if (engine != NULL)
        (void)api->BackendDestroyDescriptor(engine);
    return code;
}

bool cudnn_needs_driver(cudnnStatus_t code)
{
    return code == CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING ||
           code == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
}

/* Tries every engine by its number, if the heuristics propose none. `refusal` is that of an engine
 * that only lacks a driver, since this reason is the most useful; else that of the last engine. */
static uint32_t propose_all(const struct cudnn_target *target, cudnnBackendDescriptor_t graph,
                            enum graph_dtype type, struct cudnn_plan *plans, uint32_t limit,
                            struct cudnn_refusal *refusal)
{
    int64_t engines = 0, got = 0;
    uint32_t found = 0;

    (void)target->api->BackendGetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT,
                                           CUDNN_TYPE_INT64, 1, &got, &engines);
    for (int64_t i = 0; i < engines && found < limit; i++) {
        cudnnBackendDescriptor_t config = NULL;
        struct cudnn_refusal why = *refusal;
        const cudnnStatus_t code = config_of(target, graph, i, &config);
        const struct engine_notes notes = code == CUDNN_STATUS_SUCCESS
                                              ? read_notes(target->api, config)
                                              : (struct engine_notes){0};

        plans[found] = (struct cudnn_plan){.engine = i, .is_compiled = notes.is_compiled};
        if (code != CUDNN_STATUS_SUCCESS)
            refuse(target->api, code, &why);
        else if (allowed(target, type, &notes, &why) &&
                 finalise(target, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config, &plans[found], &why))
            found++;
        if (!cudnn_needs_driver(refusal->code))
            *refusal = why;
        if (config != NULL)
            (void)target->api->BackendDestroyDescriptor(config);
    }
    return found;
}

uint32_t cudnn_plan_propose(const struct cudnn_target *target, cudnnBackendDescriptor_t graph,
                            enum graph_dtype type, struct cudnn_plan plans[CUDNN_CANDIDATES_MAX],
                            uint32_t limit, struct cudnn_refusal *refusal)
{
    uint32_t found = 0;

    assert(limit > 0 && limit <= CUDNN_CANDIDATES_MAX);
    *refusal = (struct cudnn_refusal){CUDNN_STATUS_NOT_SUPPORTED, "no engine was proposed"};
    if (!target->skips_heuristics)
        found = propose(target, graph, type, CUDNN_HEUR_MODE_A, plans, limit, refusal);
    if (found == 0 && !target->skips_heuristics)
        found = propose(target, graph, type, CUDNN_HEUR_MODE_FALLBACK, plans, limit, refusal);
    if (found == 0)
        found = propose_all(target, graph, type, plans, limit, refusal);
    return found;
}

char *cudnn_plan_write(const struct cudnn_api *api, const struct cudnn_plan *plan,
                       size_t *byte_count)
{
    int64_t count = 0;
    char *json;

    if (api->BackendGetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, 0, &count, NULL) != CUDNN_STATUS_SUCCESS ||
        count <= 0)
        return NULL;
    json = malloc((size_t)count + 1);
    if (json == NULL)
        return NULL;
    if (api->BackendGetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, count, &count, json) != CUDNN_STATUS_SUCCESS) {
        free(json);
        return NULL;
    }
    json[count] = '\0';
    *byte_count = strlen(json);
    return json;
}

bool cudnn_plan_read(const struct cudnn_target *target, const char *json, size_t byte_count,
                     struct cudnn_plan *plan, struct cudnn_refusal *refusal)
{
    *plan = (struct cudnn_plan){.engine = -1};
    return finalise(target, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                    (int64_t)byte_count, json, plan, refusal);
}
