/* Internal to plans.h: what a set holds, shared by plans.c and plan_*.c. Calls go one way: plans.c
 * -> plan_choose.c -> plan_build.c, plan_tune.c -> plan_run.c. */
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
    uint32_t uses;     /* requests that share the plans of this one */
    char key[PLAN_CACHE_KEY_MAX];
    uint64_t key_hash;
    char *text; /* of the cache, until it is an engine; NULL: there is none */
    size_t text_bytes;
    bool is_linear;
    struct cudnn_binding bindings[CUDNN_GRAPH_BINDINGS_MAX];
    uint32_t binding_count;
    struct cudnn_plan candidates[CUDNN_CANDIDATES_MAX];
    struct lt_plan lt;
    uint32_t candidate_count, chosen;
    bool has_run; /* outside of timing */
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
    struct CUstream_st *stream; /* the handle's stream, in the owner */
    struct plan_set *owner;     /* of the handles; the set itself, or the one that it shares */
    struct plan_cache cache;
    struct plan_lock cache_lock;
    uint32_t candidates, threads;
    uint64_t tune_us;
    bool tunes_cold, in_background;
    bool may_tune;      /* no other process times these plans, as far as we know */
    int32_t processors; /* of the device; 0: not known */
    uint32_t spared_sms;
    void (*note)(void *user, const char *text);
    void (*progress)(void *user, enum plan_phase phase, uint32_t done, uint32_t total);
    bool (*stops)(void *user);
    void *note_user;
    struct plan *plans;
    uint32_t count;
    uint32_t *order, order_count; /* the plans that are built, first to last */
    pthread_mutex_t lock;         /* protects the next fields, while threads build */
    pthread_cond_t is_done;       /* signalled with `done` */
    uint32_t next, done;
    uint32_t damaged_count; /* cache files that could not be used */
    struct plan_counts counts;
};

/* Whether candidates are timed at all, in this set or a later one. */
static inline bool plan_set_times(const struct plan_set *set)
{
    return set->has_device && set->candidates > 1;
}

static inline bool plan_set_stops(const struct plan_set *set)
{
    return set->stops != NULL && set->stops(set->note_user);
}

/* The line that names a plan in the cache; requests with the same key share a plan. */
void plan_key(const struct plan_set *set, const struct plan_request *request,
              char key[PLAN_CACHE_KEY_MAX]);

/* plan_build.c. One engine for every plan, on threads: the cache's, else the first that is
 * proposed, which is kept in the cache. Leaves the cache's lock to the caller. Errors: STATUS_SYSTEM
 * (no thread), STATUS_MEMORY. */
enum status plan_build_all(struct plan_set *set, uint64_t name, struct err *err);
/* A hash of these requests, and of what else their plans depend on: the name for plan_build_all and of the lock. The ranks
 * of a job have the same requests. */
uint64_t plan_set_name(const struct plan_set *set, const struct plan_request *requests,
                       uint32_t count);
/* Up to `limit` candidates of a plan that has one, instead of that one. */
void plan_propose(struct plan_set *set, struct plan *plan, uint32_t limit);
/* Writes the chosen candidate and its time into the cache, if there is one. */
void plan_keep(struct plan_set *set, const struct plan *plan);
/* Closes all candidates but the chosen one. */
void plan_drop_others(struct plan_set *set, struct plan *plan);

/* plan_choose.c. Times the candidates of plans that have no time: the costliest first, at least one
 * plan, and begins none after set->tune_us. Errors: STATUS_LIBRARY. */
enum status plan_choose(struct plan_set *set, struct err *err);
/* plan_run.c. Queues candidate `index` of the plans that were built for `plan`, with the pointers
 * of `plan`. */
enum status plan_queue(struct plan_set *set, struct plan *plan, uint32_t index,
                       struct CUstream_st *stream, void *workspace, void *const *pointers,
                       struct err *err);
/* plan_tune.c, on a device: memory and a stream to time with. */
struct plan_watch;
enum status plan_watch_open(struct plan_watch **watch, struct err *err);
void plan_watch_close(struct plan_watch **watch, struct plan_set *set);
/* Memory for the operands and the candidates that the plan has. Errors: STATUS_MEMORY (the process's first such call
 * gives a note), STATUS_LIBRARY. */
enum status plan_watch_fit(struct plan_watch *watch, const struct plan_set *set,
                           const struct plan *plan, struct err *err);
/* After plan_watch_fit: times the plan's candidates, and sets `chosen` and the time; where none can
 * run, the plan's status. Errors: STATUS_LIBRARY. */
enum status plan_time(struct plan_watch *watch, struct plan_set *set, struct plan *plan,
                      struct err *err);

/* The parts that use CUDA, kept apart so that the rest can build plans without it (plan_tune.c). */
struct plan_device {
    char name[64];
    int capability, processors;
};
enum status plan_device_open(uint32_t index, struct plan_device *device, struct err *err);
void plan_device_use(uint32_t index);

#endif
