/* Looks for infinities and NaNs in one pass. Bound by memory; each warp writes at most once. */
#include "kernels/multi.cuh"

#include "kernels/gradients.h"

template <typename G>
static __global__ void __launch_bounds__(MULTI_THREADS)
    finite(const __grid_constant__ struct multi_table<struct kernel_values> table, uint32_t *found)
{
    const struct multi_chunk chunk = multi_chunk_of(table);
    bool is_bad = false;

    multi_packs(chunk, [&](size_t i, uint32_t n) {
        alignas(struct multi_pack<G>) G values[MULTI_PACK];

        multi_read((const G *)table.tensors[chunk.t].values, i, n, values);
        for (uint32_t k = 0; k < n; k++)
            is_bad = is_bad || !isfinite(as_float(values[k]));
    });
    if (__any_sync(0xffffffffU, is_bad) && threadIdx.x % WARP == 0)
        *found = 1; /* all writers store the same value */
}

int kernel_finite(const struct kernel_values *tensors, uint32_t tensor_count, enum kernel_type type,
                  uint32_t *found, struct CUstream_st *stream)
{
    return multi_launch(tensors, tensor_count, [=](const auto &table) {
        return launch_typed(type, [&](auto t) {
            return launch(finite<decltype(t)>, multi_grid(table), stream, table, found);
        });
    });
}
