/* Lookahead around another optimizer. Both launches are queued in every step, so that a captured
 * step is the same in each replay. In most steps each block reads the number of steps and
 * returns. */
#include "kernels/multi.cuh"

#include "kernels/optimizer.h"

enum turn { TURN_NONE, TURN_COPY, TURN_JOIN };

static __device__ enum turn turn_of(const struct kernel_lookahead &lookahead, bool is_before,
                                    uint32_t t)
{
    if (is_before)
        return lookahead.is_paper && t == 1 ? TURN_COPY : TURN_NONE;
    if (lookahead.is_paper)
        return t % lookahead.every == 0 ? TURN_JOIN : TURN_NONE;
    if (t == 1)
        return TURN_COPY;
    return (t - 1) % lookahead.every == 0 ? TURN_JOIN : TURN_NONE;
}

/* `n` (1 to 4) elements from index `i`. */
template <typename H>
static __device__ void join_pack(const struct kernel_lookahead_tensor &tensor, float alpha,
                                 size_t i, uint32_t n)
{
    alignas(struct multi_pack<float>) float fast[MULTI_PACK];
    alignas(struct multi_pack<float>) float slow[MULTI_PACK];
    alignas(struct multi_pack<H>) H half[MULTI_PACK];

    multi_read(tensor.master, i, n, fast);
    multi_read(tensor.slow, i, n, slow);
    for (uint32_t k = 0; k < n; k++) {
        slow[k] = __fadd_rn(slow[k], __fmul_rn(alpha, __fsub_rn(fast[k], slow[k])));
        round_to(slow[k], &half[k]);
    }
    multi_write(tensor.slow, i, n, slow);
    multi_write(tensor.master, i, n, slow);
    if (tensor.half != NULL)
        multi_write((H *)tensor.half, i, n, half);
}

static __device__ void copy_pack(const struct kernel_lookahead_tensor &tensor, size_t i, uint32_t n)
{
    alignas(struct multi_pack<float>) float fast[MULTI_PACK];

    multi_read(tensor.master, i, n, fast);
    multi_write(tensor.slow, i, n, fast);
}

template <typename H>
static __global__ void __launch_bounds__(MULTI_THREADS)
    look_ahead(const __grid_constant__ struct multi_table<struct kernel_lookahead_tensor> table,
               const __grid_constant__ struct kernel_lookahead lookahead, bool is_before,
               const uint32_t *found, const uint32_t *applied)
{
    if (found != NULL && *found != 0)
        return;

    const enum turn turn = turn_of(lookahead, is_before, *applied + 1);
    if (turn == TURN_NONE)
        return;

    const struct multi_chunk chunk = multi_chunk_of(table);

    multi_packs(chunk, [&](size_t i, uint32_t n) {
        if (turn == TURN_COPY)
            copy_pack(table.tensors[chunk.t], i, n);
        else
            join_pack<H>(table.tensors[chunk.t], lookahead.alpha, i, n);
    });
}

static int launch_all(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                      const struct kernel_lookahead &lookahead, bool is_before,
                      const uint32_t *found, const uint32_t *applied, cudaStream_t stream)
{
    return multi_launch(tensors, tensor_count, [&](const auto &table) {
        return launch(lookahead.half_type == KERNEL_BF16 ? look_ahead<__nv_bfloat16>
                                                         : look_ahead<__half>,
                      multi_grid(table), stream, table, lookahead, is_before, found, applied);
    });
}

int kernel_lookahead_before(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                            const struct kernel_lookahead *lookahead, const uint32_t *found,
                            const uint32_t *applied, struct CUstream_st *stream)
{
    if (!lookahead->is_paper)
        return 0;
    return launch_all(tensors, tensor_count, *lookahead, true, found, applied, stream);
}

int kernel_lookahead(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                     const struct kernel_lookahead *lookahead, const uint32_t *found,
                     const uint32_t *applied, struct CUstream_st *stream)
{
    return launch_all(tensors, tensor_count, *lookahead, false, found, applied, stream);
}
