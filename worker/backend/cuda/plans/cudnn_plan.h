/* From an operation graph to executable plans: cuDNN's heuristics propose engines, which are
 * filtered and finalised; plans to JSON and back. Needs no device if the device is given as a
 * description. Every call may be made on several threads at once with one target. */
#ifndef WORKER_BACKEND_CUDA_PLANS_CUDNN_PLAN_H
#define WORKER_BACKEND_CUDA_PLANS_CUDNN_PLAN_H

#include "worker/backend/cuda/plans/op_graph.h"

#define CUDNN_CANDIDATES_MAX 32

/* The device and the rules for choosing engines; read only. */
struct cudnn_target {
    const struct cudnn_api *api;
    cudnnBackendDescriptor_t device; /* properties of the device, finalised */
    bool deterministic;
    bool tf32;
    size_t workspace_limit;
    bool skips_heuristics; /* try the engines in the order of their numbers */
    int32_t sm_target;     /* multiprocessors that an engine should use; 0: all */
    uint32_t threads;      /* that make plans ready at once; 0, 1: the caller's alone */
    void (*use_device)(uint32_t index); /* called on each new thread; NULL: there is no device */
    uint32_t device_index;
};

struct cudnn_plan {
    cudnnBackendDescriptor_t descriptor; /* NULL: none */
    size_t workspace_bytes;
    int64_t engine;
    bool is_compiled; /* compiled at run time, for this graph */
};

/* Why the last proposal was turned down. */
struct cudnn_refusal {
    cudnnStatus_t code;
    char text[128];
};

/* Whether only the driver is missing: the engine compiles its kernel at run time. */
bool cudnn_needs_driver(cudnnStatus_t code);

/* The properties of device `index`; if `json` is not NULL, of the device that it describes. */
enum status cudnn_device_open(const struct cudnn_api *api, uint32_t index, const char *json,
                              cudnnBackendDescriptor_t *device, struct err *err);

/* The first `limit` plans that the heuristics propose for the finished graph, best first. Returns
 * how many; if 0, `refusal` has the reason. */
uint32_t cudnn_plan_propose(const struct cudnn_target *target, cudnnBackendDescriptor_t graph,
                            enum graph_dtype type, struct cudnn_plan plans[CUDNN_CANDIDATES_MAX],
                            uint32_t limit, struct cudnn_refusal *refusal);
void cudnn_plan_close(const struct cudnn_api *api, struct cudnn_plan *plan);

/* The plan as JSON, malloc'ed, ended by a NUL that `*byte_count` does not count; NULL if it cannot
 * be written. */
char *cudnn_plan_write(const struct cudnn_api *api, const struct cudnn_plan *plan,
                       size_t *byte_count);
/* Reads a plan that cudnn_plan_write wrote for the same cuDNN and device; false if cuDNN refuses
 * it. */
bool cudnn_plan_read(const struct cudnn_target *target, const char *json, size_t byte_count,
                     struct cudnn_plan *plan, struct cudnn_refusal *refusal);

#endif
