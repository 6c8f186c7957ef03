#include "tests/unit/worker/backend/cuda/plans/keep_fake.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

struct keep keep;

static int a_handle;

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

struct plan_watch {
    int nothing;
};

enum status plan_watch_open(struct plan_watch **watch, struct err *err)
{
    static struct plan_watch a_watch;

    (void)err;
    *watch = &a_watch;
    return STATUS_OK;
}

void plan_watch_close(struct plan_watch **watch, struct plan_set *set)
{
    (void)set;
    *watch = NULL;
}

enum status plan_watch_fit(struct plan_watch *watch, const struct plan_set *set,
                           const struct plan *plan, struct err *err)
{
    (void)watch;
    (void)set;
    (void)plan;
    return keep.no_memory ? err_set(err, STATUS_MEMORY, 0, "no memory") : STATUS_OK;
}

enum status plan_time(struct plan_watch *watch, struct plan_set *set, struct plan *plan,
                      struct err *err)
{
    (void)watch;
    (void)err;
    if (keep.timings < sizeof keep.timed / sizeof keep.timed[0])
        keep.timed[keep.timings] = plan->request.c;
    keep.timings++;
    CHECK_EQ(plan->candidate_count,
             set->candidates < KEEP_CANDIDATES ? set->candidates : KEEP_CANDIDATES);
    if (keep.takes_all)
        set->tune_us = 0; /* all of it has passed */
    if (keep.none_runs) {
        plan->info.status = STATUS_UNSUPPORTED;
        return STATUS_OK;
    }
    plan->chosen = KEEP_FASTEST;
    plan->info.time_us = 12.5F;
    return STATUS_OK;
}

/* -- cuDNN: a plan's JSON is the number of its candidate -- */

static cudnnStatus_t create(cudnnHandle_t *handle)
{
    keep.handles++;
    *handle = (cudnnHandle_t)&a_handle;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(cudnnHandle_t handle)
{
    keep.handles--;
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
    *handle = (cublasLtHandle_t)&a_handle;
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
    *device = (cudnnBackendDescriptor_t)&a_handle;
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
    return (cudnnBackendDescriptor_t)&a_handle;
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
    const uint32_t count = limit < KEEP_CANDIDATES ? limit : KEEP_CANDIDATES;

    (void)target;
    (void)graph;
    (void)type;
    (void)refusal;
    keep.proposals++;
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

/* -- never called: there is no linear layer -- */

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
    (void)stream;
    (void)workspace;
    (void)pointers;
    keep.ran = set->plans[plan->built_as].candidates[index].engine;
    return keep.ran >= keep.fails_below
               ? STATUS_OK
               : err_set(err, STATUS_LIBRARY, 0, "engine %d fails", (int)keep.ran);
}

static void take_note(void *user, const char *text)
{
    (void)user;
    (void)snprintf(keep.notes, sizeof keep.notes, "%s", text);
}

const struct plan_request keep_request = {.kind = PLAN_CONV_FORWARD,
                                          .type = GRAPH_F16,
                                          .n = 2,
                                          .c = 8,
                                          .h = 8,
                                          .w = 8,
                                          .k = 8,
                                          .out_h = 8,
                                          .out_w = 8,
                                          .window = {3, 1, 1}};

struct plan_set *keep_open(const char *folder, uint32_t candidates)
{
    struct plan_set *set = NULL;
    struct err err = {.text = ""};

    keep.options.cache_folder = folder;
    keep.options.candidates = candidates;
    keep.notes[0] = '\0';
    keep.proposals = 0;
    keep.timings = 0;
    if (cuda_plans.open(&set, &keep.options, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return set;
}

struct plan_info keep_build_all(const char *folder, const struct plan_request *requests,
                                uint32_t request_count)
{
    struct plan_set *set = keep_open(folder, keep.options.candidates);
    struct plan_info info;
    struct err err = {.text = ""};

    CHECK_EQ(cuda_plans.build(set, requests, request_count, &err), STATUS_OK);
    info = *cuda_plans.info(set, 0);
    cuda_plans.counts(set, &keep.counts);
    cuda_plans.close(&set);
    return info;
}

struct plan_info keep_build(const char *folder, uint32_t candidates)
{
    struct plan_info info;

    keep.options.candidates = candidates;
    info = keep_build_all(folder, &keep_request, 1);
    CHECK_EQ(info.status, STATUS_OK);
    return info;
}

const struct plan_request *keep_several(void)
{
    static struct plan_request requests[KEEP_REQUESTS];

    for (uint32_t i = 0; i < KEEP_REQUESTS; i++) {
        requests[i] = keep_request;
        requests[i].layer = i;
        requests[i].c = 8 << (i < KEEP_DISTINCT ? i : 1); /* 8, 16, 32, 64, 16 */
    }
    return requests;
}

void keep_reset(uint64_t tune_us)
{
    keep.no_memory = keep.none_runs = keep.takes_all = false;
    keep.options = (struct plan_options){.threads = 2, .note = take_note, .tune_us = tune_us};
}

size_t keep_files(const char *folder)
{
    char pattern[600];
    glob_t found;
    size_t count;

    (void)snprintf(pattern, sizeof pattern, "%s/*", folder);
    count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return count;
}

const char *keep_folder(const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%.400s/%s", test_dir(), name);
    return path;
}
