/* One launch over many tensors: the table of tensors is a kernel parameter, each block handles one
 * chunk of one tensor.
 *
 * Refused: a launch per tensor. ResNet-50 has 161 of them, most with fewer elements than a block
 * handles. Refused: a table in device memory, which would have to be allocated, copied and kept.
 * 64 tensors keep the parameters under 4 KiB, the limit of every architecture; more tensors take
 * more launches. */
#ifndef KERNELS_MULTI_CUH
#define KERNELS_MULTI_CUH

#include <cstddef>
#include <cstdint>

#include "kernels/launch.cuh"

constexpr uint32_t MULTI_TENSORS_MAX = 64;
constexpr uint32_t MULTI_THREADS = 256;
constexpr uint32_t MULTI_PACK = 4; /* elements that a thread reads at once */
constexpr uint32_t MULTI_CHUNK = MULTI_THREADS * MULTI_PACK * 4; /* elements per block */

template <typename T> struct multi_table {
    T tensors[MULTI_TENSORS_MAX];
    /* The first block of each tensor; after the last one the number of blocks. */
    uint32_t chunk_first[MULTI_TENSORS_MAX + 1];
    uint32_t tensor_count;
};

/* Fills `table` from tensors[0 .. count), without empty tensors, and returns how many it took: at
 * least one. A tensor has fewer than 2^31 chunks (8 Ti elements). */
template <typename T>
static uint32_t multi_take(const T *tensors, uint32_t count, struct multi_table<T> *table)
{
    uint32_t taken = 0;
    uint64_t chunks = 0;

    table->tensor_count = 0;
    for (; taken < count && table->tensor_count < MULTI_TENSORS_MAX; taken++) {
        uint64_t more = (tensors[taken].count + MULTI_CHUNK - 1) / MULTI_CHUNK;

        if (more == 0)
            continue;
        if (table->tensor_count > 0 && chunks + more > INT32_MAX)
            break;
        table->tensors[table->tensor_count] = tensors[taken];
        table->chunk_first[table->tensor_count++] = (uint32_t)chunks;
        chunks += more;
    }
    table->chunk_first[table->tensor_count] = (uint32_t)chunks;
    return taken;
}

/* Calls launch_table(table) for all tensors, as many at once as a table holds. Stops at the first
 * error and returns it. */
template <typename T, typename F>
static int multi_launch(const T *tensors, uint32_t tensor_count, F launch_table)
{
    int error = 0;

    static_assert(MULTI_THREADS == LAUNCH_THREADS, "one size of block");
    while (error == 0 && tensor_count > 0) {
        struct multi_table<T> table;
        const uint32_t taken = multi_take(tensors, tensor_count, &table);

        tensors += taken;
        tensor_count -= taken;
        if (table.tensor_count > 0)
            error = launch_table(table);
    }
    return error;
}

/* One block per chunk. */
template <typename T> static dim3 multi_grid(const struct multi_table<T> &table)
{
    return dim3(table.chunk_first[table.tensor_count]);
}

/* The tensor of this block: the last one whose first chunk is this block or an earlier one. */
template <typename T> static __device__ uint32_t multi_find(const struct multi_table<T> &table)
{
    uint32_t low = 0, high = table.tensor_count;

    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;

        if (table.chunk_first[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The chunk of this block: elements [begin, end) of tensor `t`. */
struct multi_chunk {
    uint32_t t;
    size_t begin, end;
};

template <typename T>
static __device__ struct multi_chunk multi_chunk_of(const struct multi_table<T> &table)
{
    const uint32_t t = multi_find(table);
    const size_t begin = (size_t)(blockIdx.x - table.chunk_first[t]) * MULTI_CHUNK;

    return {t, begin, min(begin + MULTI_CHUNK, table.tensors[t].count)};
}

/* Calls f(i, n) for this thread's share of a chunk: `n` (1 to MULTI_PACK) elements from index i. */
template <typename F> static __device__ void multi_packs(const struct multi_chunk &chunk, F f)
{
    for (size_t i = chunk.begin + threadIdx.x * MULTI_PACK; i < chunk.end;
         i += MULTI_THREADS * MULTI_PACK)
        f(i, (uint32_t)min((size_t)MULTI_PACK, chunk.end - i));
}

template <typename T> struct alignas(sizeof(T) * MULTI_PACK) multi_pack {
    T v[MULTI_PACK];
};

template <typename T> static __device__ bool multi_is_aligned(const T *values)
{
    return (reinterpret_cast<uintptr_t>(values) % sizeof(struct multi_pack<T>)) == 0;
}

/* out[k] = values[i + k] for k < n, n from 1 to 4: one wide read where n is 4 and it is aligned. */
template <typename T>
static __device__ void multi_read(const T *values, size_t i, uint32_t n, T out[MULTI_PACK])
{
    if (n == MULTI_PACK && multi_is_aligned(values + i)) {
        *reinterpret_cast<struct multi_pack<T> *>(out) =
            *reinterpret_cast<const struct multi_pack<T> *>(values + i);
        return;
    }
    for (uint32_t k = 0; k < n; k++)
        out[k] = values[i + k];
}

template <typename T>
static __device__ void multi_write(T *values, size_t i, uint32_t n, const T in[MULTI_PACK])
{
    if (n == MULTI_PACK && multi_is_aligned(values + i)) {
        *reinterpret_cast<struct multi_pack<T> *>(values + i) =
            *reinterpret_cast<const struct multi_pack<T> *>(in);
        return;
    }
    for (uint32_t k = 0; k < n; k++)
        values[i + k] = in[k];
}

/* One tensor's parameters, momentum and half copy for `n` elements from index `i`:
 * *master = step(*master, gradient, momentum) for each.
 *   has_momentum: momentum is written; reads_momentum: also read first, else it starts at 0 */
template <typename G, typename H, typename T, typename S>
static __device__ void multi_momentum_step(const T &tensor, bool has_momentum, bool reads_momentum,
                                           size_t i, uint32_t n, S step)
{
    alignas(struct multi_pack<G>) G grad[MULTI_PACK];
    alignas(struct multi_pack<float>) float master[MULTI_PACK];
    alignas(struct multi_pack<float>) float momentum[MULTI_PACK] = {};
    alignas(struct multi_pack<H>) H half[MULTI_PACK];

    multi_read((const G *)tensor.grad, i, n, grad);
    multi_read(tensor.master, i, n, master);
    if (reads_momentum)
        multi_read(tensor.momentum, i, n, momentum);
    for (uint32_t k = 0; k < n; k++) {
        master[k] = step(master[k], as_float(grad[k]), &momentum[k]);
        round_to(master[k], &half[k]);
    }
    multi_write(tensor.master, i, n, master);
    if (has_momentum)
        multi_write(tensor.momentum, i, n, momentum);
    if (tensor.half != NULL)
        multi_write((H *)tensor.half, i, n, half);
}

#endif
