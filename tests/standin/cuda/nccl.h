/* NCCL of the stand-in GPU: its ranks are processes, which all are on the one GPU.
 *
 * Of which version it is says the file in DDP_NCCL (its ncclGetVersion); without one 2.28.9. As NCCL does, it refuses a
 * second rank on a GPU, but with NCCL_MULTI_RANK_GPU_ENABLE=1 and 2.30 or newer. A sum is a call of its stream, which
 * waits there for the other ranks: the host that drives the device stands still meanwhile, until an abort. With
 * DDP_SEED=0 the device runs a call as soon as it is queued, as a GPU does; else a rank may wait for one whose host is
 * elsewhere. */
#ifndef TESTS_STANDIN_CUDA_NCCL_H
#define TESTS_STANDIN_CUDA_NCCL_H

#include "worker/backend/cuda/nccl/nccl.h"

extern const struct cuda_nccl standin_nccl;

#endif
