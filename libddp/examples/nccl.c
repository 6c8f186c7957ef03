/* NCCL's all-reduce: the unique id of rank 0 goes to all ranks with ddp_join. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include "reduce.h"

struct reduce {
    struct ddp_place place;
    ncclComm_t ranks;
    cudaStream_t stream;
    float *values; /* [room] on the GPU */
    size_t room;
};

static int cuda_failed(cudaError_t code, const char *what, char *text, size_t text_bytes)
{
    if (code != cudaSuccess)
        (void)snprintf(text, text_bytes, "%s: %s", what, cudaGetErrorString(code));
    return code != cudaSuccess;
}

static int nccl_failed(ncclResult_t code, const char *what, char *text, size_t text_bytes)
{
    if (code != ncclSuccess)
        (void)snprintf(text, text_bytes, "%s: %s", what, ncclGetErrorString(code));
    return code != ncclSuccess;
}

struct reduce *reduce_new(const struct ddp_place *place, char *blob, size_t *blob_bytes, char *text,
                          size_t text_bytes)
{
    struct reduce *reduce = calloc(1, sizeof *reduce);
    ncclUniqueId id;

    if (reduce == NULL) {
        (void)snprintf(text, text_bytes, "no memory");
        return NULL;
    }
    reduce->place = *place;
    /* A worker sees the GPUs of its job on this node, and takes the one of its local rank. */
    if (cuda_failed(cudaSetDevice((int)place->local_rank), "cudaSetDevice", text, text_bytes) ||
        cuda_failed(cudaStreamCreate(&reduce->stream), "cudaStreamCreate", text, text_bytes) ||
        (place->rank == 0 &&
         nccl_failed(ncclGetUniqueId(&id), "ncclGetUniqueId", text, text_bytes))) {
        reduce_free(reduce);
        return NULL;
    }
    if (place->rank == 0) {
        *(ncclUniqueId *)(void *)blob = id;
        *blob_bytes = sizeof id;
    }
    return reduce;
}

int reduce_connect(struct reduce *reduce, struct ddp *ddp, const char *blob, size_t blob_bytes,
                   char *text, size_t text_bytes)
{
    (void)ddp;
    if (blob_bytes != sizeof(ncclUniqueId)) {
        (void)snprintf(text, text_bytes, "rank 0 gave an id of %zu bytes", blob_bytes);
        return 0;
    }
    return !nccl_failed(ncclCommInitRank(&reduce->ranks, (int)reduce->place.world,
                                         *(const ncclUniqueId *)(const void *)blob,
                                         (int)reduce->place.rank),
                        "ncclCommInitRank", text, text_bytes);
}

static int make_room(struct reduce *reduce, size_t count, char *text, size_t text_bytes)
{
    if (reduce->room >= count)
        return 1;
    (void)cudaFree(reduce->values);
    reduce->room = 0;
    if (cuda_failed(cudaMalloc((void **)&reduce->values, count * sizeof *reduce->values),
                    "cudaMalloc", text, text_bytes))
        return 0;
    reduce->room = count;
    return 1;
}

int reduce_sum(struct reduce *reduce, float *values, size_t count, char *text, size_t text_bytes)
{
    const size_t bytes = count * sizeof *values;

    return make_room(reduce, count, text, text_bytes) &&
           !cuda_failed(cudaMemcpyAsync(reduce->values, values, bytes, cudaMemcpyHostToDevice,
                                        reduce->stream),
                        "cudaMemcpyAsync", text, text_bytes) &&
           !nccl_failed(ncclAllReduce(reduce->values, reduce->values, count, ncclFloat, ncclSum,
                                      reduce->ranks, reduce->stream),
                        "ncclAllReduce", text, text_bytes) &&
           !cuda_failed(cudaMemcpyAsync(values, reduce->values, bytes, cudaMemcpyDeviceToHost,
                                        reduce->stream),
                        "cudaMemcpyAsync", text, text_bytes) &&
           !cuda_failed(cudaStreamSynchronize(reduce->stream), "cudaStreamSynchronize", text,
                        text_bytes);
}

const char *reduce_name(const struct reduce *reduce)
{
    (void)reduce;
    return "NCCL";
}

void reduce_free(struct reduce *reduce)
{
    if (reduce->ranks != NULL)
        (void)ncclCommDestroy(reduce->ranks);
    (void)cudaFree(reduce->values);
    if (reduce->stream != NULL)
        (void)cudaStreamDestroy(reduce->stream);
    free(reduce);
}
