/* Inside of plans.h: what a set holds, shared by plans.c, plan_build.c and plan_tune.c. */
#ifndef WORKER_BACKEND_CUDA_PLAN_SET_H
#define WORKER_BACKEND_CUDA_PLAN_SET_H

#include <pthread.h>

#include "worker/backend/cuda/cudnn_layers.h"
#include "worker/backend/cuda/cudnn_plan.h"
#include "worker/backend/cuda/plan_cache.h"
#include "worker/backend/cuda/plan_lt.h"

/* One want. What was built is its twin's: the first want that computes the same. */
struct plan {
    struct plan_want want;
    struct plan_info info;
    uint32_t twin;
    bool is_linear;
    struct cudnn_binding bindings[CUDNN_GRAPH_BINDINGS_MAX];
    uint32_t binding_count;
    struct cudnn_plan candidates[CUDNN_CANDIDATES_MAX];
    struct lt_plan lt;
    uint32_t candidate_count, chosen;
    /* cuDNN's form of the last run's pointers; it lasts while they stay. */
    cudnnBackendDescriptor_t pack;
    void *packed[PLAN_PORTS + 1]; /* the workspace last */
};

struct plan_set {
    struct cudnn_api cudnn;
    struct cublaslt_api lt;
    struct cudnn_target target;
    bool has_device;
    uint32_t device_index;
    char device_key[160]; /* of the cache: cuDNN and the device */
    cudnnHandle_t handle; /* NULL without a device, as the next */
    cublasLtHandle_t lt_handle;
    struct CUstream_st *stream; /* that the handle is set to */
    struct plan_cache cache;
    uint32_t candidates, threads;
    void (*note)(void *user, const char *text);
    void *note_user;
    struct plan *plans;
    uint32_t count;
    pthread_mutex_t lock; /* of the next two, while threads build */
    uint32_t next;
    uint32_t damaged_count; /* files of the cache that could not be used */
};

/* The line that names a plan in the cache; two wants with one key are twins. */
void plan_key(const struct plan_set *set, const struct plan_want *want,
              char key[PLAN_CACHE_KEY_MAX]);

/* Candidates of every plan, on threads. Errors: STATUS_SYSTEM (no thread). */
enum status plan_build_all(struct plan_set *set, struct err *err);
/* Queue candidate `index` of the twin with the pointers of `plan`. */
enum status plan_queue(struct plan_set *set, struct plan *plan, uint32_t index,
                       struct CUstream_st *stream, void *workspace, void *const *pointers,
                       struct err *err);
/* On a device: times the candidates and sets `chosen`; leaves it at the first, with a note, where
 * there is no memory for the operands. Errors: STATUS_LIBRARY. */
enum status plan_tune_all(struct plan_set *set, struct err *err);

/* CUDA, kept apart so that the rest builds plans without it (plan_tune.c). */
struct plan_device {
    char name[64];
    int capability, processors;
};
enum status plan_device_open(uint32_t index, struct plan_device *device, struct err *err);
void plan_device_use(uint32_t index);

#endif
