/* Looks for infinities and NaNs. One pass, bound by memory; a block writes at most once a warp. */
#include "kernels/multi.cuh"

template <typename G>
static __global__ void __launch_bounds__(MULTI_THREADS)
    finite(const __grid_constant__ struct multi_table<struct kernel_values> table, uint32_t *found)
{
    const uint32_t t = multi_find(table);
    const struct kernel_values &tensor = table.tensors[t];
    const size_t begin = (size_t)(blockIdx.x - table.chunk_first[t]) * MULTI_CHUNK;
    const size_t end = min(begin + MULTI_CHUNK, tensor.count);
    bool is_bad = false;

    for (size_t i = begin + threadIdx.x * MULTI_PACK; i < end; i += MULTI_THREADS * MULTI_PACK) {
        const uint32_t n = (uint32_t)min((size_t)MULTI_PACK, end - i);
        alignas(struct multi_pack<G>) G values[MULTI_PACK];

        multi_read((const G *)tensor.values, i, n, values);
        for (uint32_t k = 0; k < n; k++)
            is_bad = is_bad || !isfinite(multi_float(values[k]));
    }
    if (__any_sync(0xffffffffU, is_bad) && threadIdx.x % 32 == 0)
        *found = 1; /* every writer writes the same word */
}

int kernel_finite(const struct kernel_values *tensors, uint32_t tensor_count, enum kernel_type type,
                  uint32_t *found, struct CUstream_st *stream)
{
    while (tensor_count > 0) {
        struct multi_table<struct kernel_values> table;
        const uint32_t taken = multi_take(tensors, tensor_count, &table);
        const uint32_t grid = table.chunk_first[table.tensor_count];

        tensors += taken;
        tensor_count -= taken;
        if (grid == 0)
            continue;
        const int error = launch_typed(type, [&](auto t) {
            return launch(finite<decltype(t)>, dim3(grid), stream, table, found);
        });
        if (error != 0)
            return error;
    }
    return 0;
}
