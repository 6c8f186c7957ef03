/* Internal to plans.h: what a set holds, shared by plans.c and plan_*.c. Calls go one way: plans.c
 * -> plan_build.c -> plan_tune.c -> plan_run.c. */
#ifndef WORKER_BACKEND_CUDA_PLANS_INTERNAL_H
#define WORKER_BACKEND_CUDA_PLANS_INTERNAL_H

#include <pthread.h>

#include "worker/backend/cuda/plans/cudnn_layers.h"
#include "worker/backend/cuda/plans/cudnn_plan.h"
#include "worker/backend/cuda/plans/plan_cache.h"
#include "worker/backend/cuda/plans/plan_lt.h"

/* One request. Requests that compute the same share the plans that were built for the first of
 * them. */
struct plan {
    struct plan_request request;
    struct plan_info info;
    uint32_t built_as; /* index of that first request, which may be this one */
    bool is_linear;
    struct cudnn_binding bindings[CUDNN_GRAPH_BINDINGS_MAX];
    uint32_t binding_count;
    struct cudnn_plan candidates[CUDNN_CANDIDATES_MAX];
    struct lt_plan lt;
    uint32_t candidate_count, chosen;
    /* cuDNN's variant pack of the last run, valid while its pointers are the same. */
    cudnnBackendDescriptor_t pack;
    void *packed[PLAN_PORTS + 1]; /* the workspace last */
};

struct plan_set {
    struct cudnn_api cudnn;
    struct cublaslt_api lt;
    struct cudnn_target target;
    bool has_device;
    uint32_t device_index;
    char device_key[160]; /* key in the cache: cuDNN and the device */
    cudnnHandle_t handle; /* NULL without a device, also the next */
    cublasLtHandle_t lt_handle;
    struct CUstream_st *stream; /* the handle's stream */
    struct plan_cache cache;
    uint32_t candidates, threads;
    int32_t processors; /* of the device; 0: not known */
    uint32_t spared_sms;
    void (*note)(void *user, const char *text);
    void *note_user;
    struct plan *plans;
    uint32_t count;
    pthread_mutex_t lock; /* protects the next two fields, while threads build */
    uint32_t next;
    uint32_t damaged_count; /* cache files that could not be used */
};

/* Whether candidates are timed: a plan without a time is then one that could not be timed. It is not
 * kept in the cache, so that a later run times it. */
static inline bool plan_set_times(const struct plan_set *set)
{
    return set->has_device && set->candidates > 1;
}

/* The line that names a plan in the cache; requests with the same key share a plan. */
void plan_key(const struct plan_set *set, const struct plan_request *request,
              char key[PLAN_CACHE_KEY_MAX]);

/* plan_build.c. Candidates of every plan, on threads. Errors: STATUS_SYSTEM (no thread). */
enum status plan_build_all(struct plan_set *set, struct err *err);
/* plan_run.c. Queues candidate `index` of the plans that were built for `plan`, with the pointers
 * of `plan`. */
enum status plan_queue(struct plan_set *set, struct plan *plan, uint32_t index,
                       struct CUstream_st *stream, void *workspace, void *const *pointers,
                       struct err *err);
/* plan_tune.c. On a device: times the candidates and sets `chosen`. If there is no memory for the
 * operands, the first candidate stays chosen without a time, and the process's first such set gives
 * a note. Errors: STATUS_LIBRARY. */
enum status plan_tune_all(struct plan_set *set, struct err *err);

/* The parts that use CUDA, kept apart so that the rest can build plans without it (plan_tune.c). */
struct plan_device {
    char name[64];
    int capability, processors;
};
enum status plan_device_open(uint32_t index, struct plan_device *device, struct err *err);
void plan_device_use(uint32_t index);

#endif
