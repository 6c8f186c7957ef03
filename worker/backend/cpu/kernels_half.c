/* Compiled once per instruction set, as kernels.c. CPU_KERNELS_HALF is the name of the table. */
#include "worker/backend/cpu/kernels_half.h"

#include <string.h>

#include "kernels/half.h"
#include "worker/backend/cpu/kernels.h"

#define B CPU_BLOCK

typedef uint32_t lanes_bits __attribute__((vector_size(sizeof(uint32_t) * B), may_alias));
typedef uint16_t lanes_half __attribute__((vector_size(sizeof(uint16_t) * B), may_alias));

/* One block of one pixel; `count` is below B in a last block with padding. */
static inline void pack_block(const float *x, uint32_t count, uint16_t *y)
{
    const lanes_bits bits = *(const lanes_bits *)x;
    const lanes_half half = __builtin_convertvector(bits >> 16, lanes_half);

    memcpy(y, &half, count * sizeof *y);
}

static inline void unpack_block(const uint16_t *y, uint32_t count, float *x)
{
    lanes_half half = {0};

    memcpy(&half, y, count * sizeof *y);
    *(lanes_bits *)x = __builtin_convertvector(half, lanes_bits) << 16;
}

static uint32_t count_of(uint32_t channels, uint32_t block)
{
    return channels - block * B < B ? channels - block * B : B;
}

static uint32_t steps(uint32_t size, uint32_t step)
{
    return (size + step - 1) / step;
}

static void pack(const struct cpu_area *area, uint32_t channels, uint32_t step, const float *x,
                 uint16_t *y)
{
    const size_t rows = steps(area->height, step), columns = steps(area->width, step);

    for (size_t i = 0; i < area->images * rows; i++) {
        for (uint32_t b = 0; b < area->blocks; b++) {
            const size_t plane = i / rows * area->blocks + b;
            const float *in =
                x + (plane * area->height + i % rows * step) * area->width * (size_t)B;
            uint16_t *out = y + i * columns * channels + (size_t)b * B;
            const uint32_t count = count_of(channels, b);

            if (count == B)
                for (size_t p = 0; p < columns; p++)
                    pack_block(in + p * step * B, B, out + p * channels);
            else
                for (size_t p = 0; p < columns; p++)
                    pack_block(in + p * step * B, count, out + p * channels);
        }
    }
}

static void unpack_row(const uint16_t *y, size_t columns, uint32_t channels, uint32_t count,
                       uint32_t step, float *x)
{
    if (count == B)
        for (size_t p = 0; p < columns; p++)
            unpack_block(y + p * channels, B, x + p * step * B);
    else
        for (size_t p = 0; p < columns; p++)
            unpack_block(y + p * channels, count, x + p * step * B);
}

static void unpack(const struct cpu_area *area, uint32_t channels, uint32_t step, const uint16_t *y,
                   float *x)
{
    const size_t rows = steps(area->height, step), columns = steps(area->width, step);
    const size_t row_size = (size_t)area->width * B;

    for (size_t i = 0; i < (size_t)area->images * area->height; i++) {
        const size_t image = i / area->height, row = i % area->height;

        for (uint32_t b = 0; b < area->blocks; b++) {
            float *out = x + ((image * area->blocks + b) * area->height + row) * row_size;

            if (step > 1)
                memset(out, 0, row_size * sizeof *out);
            if (row % step == 0)
                unpack_row(y + (image * rows + row / step) * columns * channels + (size_t)b * B,
                           columns, channels, count_of(channels, b), step, out);
        }
    }
}

static void narrow(const float *x, size_t n, uint16_t *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (uint16_t)(half_float_bits(x[i]) >> 16);
}

static void widen(const uint16_t *y, size_t n, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = half_bits_float((uint32_t)y[i] << 16);
}

const struct cpu_half_kernels CPU_KERNELS_HALF = {
    .pack = pack,
    .unpack = unpack,
    .narrow = narrow,
    .widen = widen,
};
