/* What a set writes into the cache and takes from it (plans.c, plan_build.c, plan_cache.c), with
 * functions of this file in place of cuDNN, cublasLt and the timing on a device. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker/backend/cuda/plans/internal.h"

enum { CANDIDATES = 3, FASTEST = 2 };

static bool no_memory; /* to time plans with */
static uint32_t proposals, timings;

/* -- plan_tune.c -- */

enum status plan_device_open(uint32_t index, struct plan_device *device, struct err *err)
{
    (void)index;
    (void)err;
    *device = (struct plan_device){.name = "a device", .capability = 90, .processors = 132};
    return STATUS_OK;
}

void plan_device_use(uint32_t index)
{
    (void)index;
}

enum status plan_tune_all(struct plan_set *set, struct err *err)
{
    (void)err;
    for (uint32_t i = 0; i < set->count; i++) {
        struct plan *plan = &set->plans[i];

        if (no_memory || plan->info.from_cache || set->candidates == 1)
            continue;
        timings++;
        plan->chosen = FASTEST;
        plan->info.time_us = 12.5F;
    }
    return STATUS_OK;
}

/* -- cuDNN: a plan's JSON is the number of its candidate -- */

static cudnnStatus_t create(cudnnHandle_t *handle)
{
    *handle = (cudnnHandle_t)&proposals;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(cudnnHandle_t handle)
{
    (void)handle;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t descriptor)
{
    (void)descriptor;
    return CUDNN_STATUS_SUCCESS;
}

static size_t version(void)
{
    return LIBS_CUDNN_NEEDED;
}

static cublasStatus_t lt_create(cublasLtHandle_t *handle)
{
    *handle = (cublasLtHandle_t)&proposals;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_destroy(cublasLtHandle_t handle)
{
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

enum status libs_cudnn(const char *name, struct cudnn_api *api, struct err *err)
{
    (void)name;
    (void)err;
    *api = (struct cudnn_api){.GetVersion = version,
                              .Create = create,
                              .Destroy = destroy,
                              .BackendDestroyDescriptor = destroy_descriptor};
    return STATUS_OK;
}

enum status libs_cublaslt(const char *name, struct cublaslt_api *api, struct err *err)
{
    (void)name;
    (void)err;
    *api = (struct cublaslt_api){.Create = lt_create, .Destroy = lt_destroy};
    return STATUS_OK;
}

enum status cudnn_device_open(const struct cudnn_api *api, uint32_t index, const char *json,
                              cudnnBackendDescriptor_t *device, struct err *err)
{
    (void)api;
    (void)index;
    (void)json;
    (void)err;
    *device = (cudnnBackendDescriptor_t)&proposals;
    return STATUS_OK;
}

void cudnn_graph_init(struct cudnn_graph *graph, const struct cudnn_api *api)
{
    memset(graph, 0, sizeof *graph);
    graph->api = api;
}

void cudnn_graph_close(struct cudnn_graph *graph)
{
    (void)graph;
}

cudnnBackendDescriptor_t cudnn_graph_finish(struct cudnn_graph *graph)
{
    (void)graph;
    return (cudnnBackendDescriptor_t)&proposals;
}

bool cudnn_serves(enum plan_kind kind)
{
    (void)kind;
    return true;
}

void cudnn_layer_build(struct cudnn_graph *graph, const struct plan_request *request)
{
    (void)graph;
    (void)request;
}

bool cudnn_needs_driver(cudnnStatus_t code)
{
    (void)code;
    return false;
}

uint32_t cudnn_plan_propose(const struct cudnn_target *target, cudnnBackendDescriptor_t graph,
                            enum graph_dtype type, struct cudnn_plan plans[CUDNN_CANDIDATES_MAX],
                            uint32_t limit, struct cudnn_refusal *refusal)
{
    const uint32_t count = limit < CANDIDATES ? limit : CANDIDATES;

    (void)target;
    (void)graph;
    (void)type;
    (void)refusal;
    proposals++;
    for (uint32_t i = 0; i < count; i++)
        plans[i].engine = i;
    return count;
}

void cudnn_plan_close(const struct cudnn_api *api, struct cudnn_plan *plan)
{
    (void)api;
    (void)plan;
}

char *cudnn_plan_write(const struct cudnn_api *api, const struct cudnn_plan *plan,
                       size_t *byte_count)
{
    char text[24];

    (void)api;
    *byte_count = (size_t)snprintf(text, sizeof text, "%lld", (long long)plan->engine);
    return strdup(text);
}

bool cudnn_plan_read(const struct cudnn_target *target, const char *json, size_t byte_count,
                     struct cudnn_plan *plan, struct cudnn_refusal *refusal)
{
    (void)target;
    (void)refusal;
    CHECK(byte_count > 0);
    plan->engine = strtoll(json, NULL, 10);
    return true;
}

/* -- never called: there is no linear layer, and no plan runs -- */

enum status lt_plan_open(const struct cublaslt_api *api, const struct plan_request *request,
                         bool tf32, struct lt_plan *plan, struct err *err)
{
    (void)api;
    (void)request;
    (void)tf32;
    (void)plan;
    return err_set(err, STATUS_UNSUPPORTED, 0, "no linear layer");
}

enum status lt_plan_propose(const struct cublaslt_api *api, cublasLtHandle_t handle,
                            size_t workspace_limit, uint32_t limit, struct lt_plan *plan,
                            struct err *err)
{
    (void)api;
    (void)handle;
    (void)workspace_limit;
    (void)limit;
    (void)plan;
    return err_set(err, STATUS_UNSUPPORTED, 0, "no linear layer");
}

void lt_plan_close(const struct cublaslt_api *api, struct lt_plan *plan)
{
    (void)api;
    (void)plan;
}

enum status plan_queue(struct plan_set *set, struct plan *plan, uint32_t index,
                       struct CUstream_st *stream, void *workspace, void *const *pointers,
                       struct err *err)
{
    (void)set;
    (void)plan;
    (void)index;
    (void)stream;
    (void)workspace;
    (void)pointers;
    return err_set(err, STATUS_UNSUPPORTED, 0, "no plan runs");
}

/* -- tests -- */

static char notes[1024]; /* the last one */

static void take_note(void *user, const char *text)
{
    (void)user;
    (void)snprintf(notes, sizeof notes, "%s", text);
}

static const struct plan_request request = {.kind = PLAN_CONV_FORWARD,
                                            .type = GRAPH_F16,
                                            .n = 2,
                                            .c = 8,
                                            .h = 8,
                                            .w = 8,
                                            .k = 8,
                                            .out_h = 8,
                                            .out_w = 8,
                                            .window = {3, 1, 1}};

static struct plan_set *open_in(const char *folder, uint32_t candidates)
{
    const struct plan_options options = {
        .cache_folder = folder, .candidates = candidates, .threads = 1, .note = take_note};
    struct plan_set *set = NULL;
    struct err err = {.text = ""};

    notes[0] = '\0';
    proposals = timings = 0;
    if (cuda_plans.open(&set, &options, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return set;
}

/* As a run of the program that builds one plan. */
static struct plan_info built_in(const char *folder, uint32_t candidates)
{
    struct plan_set *set = open_in(folder, candidates);
    struct plan_info info;
    struct err err = {.text = ""};

    CHECK_EQ(cuda_plans.build(set, &request, 1, &err), STATUS_OK);
    info = *cuda_plans.info(set, 0);
    CHECK_EQ(info.status, STATUS_OK);
    cuda_plans.close(&set);
    return info;
}

static size_t files_in(const char *folder)
{
    char pattern[600];
    glob_t found;
    size_t count;

    (void)snprintf(pattern, sizeof pattern, "%s/*", folder);
    count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return count;
}

static const char *folder_of(const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%.400s/%s", test_dir(), name);
    return path;
}

TEST(what_was_not_timed_is_not_kept)
{
    const char *folder = folder_of("untimed");
    struct plan_info info;

    no_memory = true;
    info = built_in(folder, 0);
    no_memory = false;
    CHECK(!info.from_cache && info.time_us <= 0);
    CHECK_EQ(files_in(folder), 0);
    info = built_in(folder, 0); /* the next run has memory again */
    CHECK_EQ(timings, 1);
    CHECK(!info.from_cache);
    CHECK_NEAR(info.time_us, 12.5, 0.001);
    CHECK_EQ(files_in(folder), 1);
    info = built_in(folder, 0);
    CHECK_EQ(proposals + timings, 0);
    CHECK(info.from_cache);
    CHECK_NEAR(info.time_us, 12.5, 0.001);
}

TEST(what_shall_not_be_timed_is_kept)
{
    const char *folder = folder_of("one");

    CHECK(!built_in(folder, 1).from_cache);
    CHECK_EQ(files_in(folder), 1);
    CHECK(built_in(folder, 1).from_cache);
    CHECK_EQ(proposals + timings, 0);
}

/* An earlier version kept plans that it could not time. */
TEST(a_kept_plan_without_a_time_is_timed_now)
{
    const char *folder = folder_of("old");
    struct plan_set *set = open_in(folder, 0);
    char key[PLAN_CACHE_KEY_MAX];

    plan_key(set, &request, key);
    CHECK(plan_cache_write(&set->cache, key, "time_us 0.000\n0", 15));
    cuda_plans.close(&set);
    CHECK(!built_in(folder, 0).from_cache);
    CHECK_EQ(timings, 1);
    CHECK_STR(notes, ""); /* that is no damage */
    CHECK(built_in(folder, 0).from_cache);
    CHECK_EQ(files_in(folder), 1);
}

TEST_MAIN
