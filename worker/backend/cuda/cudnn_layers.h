/* The operation graph of every plan kind that cuDNN serves. */
#ifndef WORKER_BACKEND_CUDA_CUDNN_LAYERS_H
#define WORKER_BACKEND_CUDA_CUDNN_LAYERS_H

#include "worker/backend/cuda/op_graph.h"

/* Whether cuDNN is asked for it; else cublasLt is. */
bool cudnn_serves(enum plan_kind kind);
/* Add the operations of the want to the empty graph; see graph->failure. */
void cudnn_layer_build(struct cudnn_graph *graph, const struct plan_want *want);

#endif
