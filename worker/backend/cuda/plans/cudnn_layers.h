/* The operation graph of every plan kind that cuDNN serves. */
#ifndef WORKER_BACKEND_CUDA_PLANS_CUDNN_LAYERS_H
#define WORKER_BACKEND_CUDA_PLANS_CUDNN_LAYERS_H

#include "worker/backend/cuda/plans/op_graph.h"

/* Whether cuDNN serves this kind; else cublasLt does. */
bool cudnn_serves(enum plan_kind kind);
/* Adds the operations of the request to the empty graph; for errors see graph->failure. */
void cudnn_layer_build(struct cudnn_graph *graph, const struct plan_request *request);

#endif
