/* Copies of values in another order. See order.h. */
#include "worker/backend/cpu/order.h"

#include <assert.h>
#include <string.h>

#include "kernels/half.h"

/* Elements between two channels and between two pixels of an image of a copy. */
struct steps {
    size_t channel, pixel;
};

static size_t pixels_of(const struct cpu_value *value)
{
    return (size_t)value->dims[1] * value->dims[2];
}

static struct steps steps_of(const struct cpu_value *value, enum cpu_order order)
{
    assert(order == CPU_CHANNELS_LAST || order == CPU_ROW_MAJOR);
    return order == CPU_CHANNELS_LAST ? (struct steps){1, value->dims[0]}
                                      : (struct steps){pixels_of(value), 1};
}

struct cpu_shape cpu_order_shape(const struct cpu_value *value, enum cpu_order order, uint32_t n)
{
    return (struct cpu_shape){.dim_count = 4,
                              .dims = {n, value->dims[0], value->dims[1], value->dims[2]},
                              .order = order};
}

size_t cpu_order_bytes(const struct cpu_value *value, uint32_t n)
{
    return n * pixels_of(value) * value->dims[0] * sizeof(float);
}

/* Converts rows of channels; inlined with a constant block, so that a whole block is one vector. */
static inline void read_block(const float *from, size_t pixels, size_t block, size_t count,
                              struct steps steps, float *to)
{
    if (steps.channel == 1 && count == block) {
        for (size_t p = 0; p < pixels; p++)
            memcpy(to + p * steps.pixel, from + p * block, block * sizeof *to);
        return;
    }
    for (size_t p = 0; p < pixels; p++)
        for (size_t c = 0; c < count; c++)
            to[p * steps.pixel + c * steps.channel] = from[p * block + c];
}

static inline void write_block(const float *from, struct steps steps, size_t pixels, size_t block,
                               size_t count, float *to)
{
    if (steps.channel == 1 && count == block) {
        for (size_t p = 0; p < pixels; p++)
            memcpy(to + p * block, from + p * steps.pixel, block * sizeof *to);
        return;
    }
    for (size_t p = 0; p < pixels; p++) {
        for (size_t c = 0; c < count; c++)
            to[p * block + c] = from[p * steps.pixel + c * steps.channel];
        for (size_t c = count; c < block; c++)
            to[p * block + c] = 0.0F;
    }
}

/* Channels of block `index` without padding. */
static size_t channels_of(const struct cpu_value *value, size_t block, size_t index)
{
    const size_t left = value->dims[0] - index * block;

    return left < block ? left : block;
}

static void read_blocks(const struct cpu_value *value, size_t block, const float *image,
                        struct steps steps, float *copy)
{
    const size_t pixels = pixels_of(value);

    for (size_t b = 0; b < value->blocks; b++) {
        const float *from = image + b * pixels * block;
        const size_t count = channels_of(value, block, b);
        float *to = copy + b * block * steps.channel;

        if (block == 16)
            read_block(from, pixels, 16, count, steps, to);
        else
            read_block(from, pixels, 8, count, steps, to);
    }
}

static void write_blocks(const struct cpu_value *value, size_t block, const float *copy,
                         struct steps steps, float *image)
{
    const size_t pixels = pixels_of(value);

    for (size_t b = 0; b < value->blocks; b++) {
        const float *from = copy + b * block * steps.channel;
        const size_t count = channels_of(value, block, b);
        float *to = image + b * pixels * block;

        if (block == 16)
            write_block(from, steps, pixels, 16, count, to);
        else
            write_block(from, steps, pixels, 8, count, to);
    }
}

/* Transposes one image, [rows][columns] to [columns][rows]. */
static void transpose(const float *from, size_t rows, size_t columns, float *to)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            to[c * rows + r] = from[r * columns + c];
}

/* For bf16 values, or fp32 values in rows: converts each image from or to channels last. */
static void read_rows(const struct cpu *cpu, const struct cpu_value *value, const float *image,
                      enum cpu_order order, float *copy)
{
    const size_t pixels = pixels_of(value), channels = value->dims[0];

    if (value->type == CPU_BF16 && order == CPU_CHANNELS_LAST)
        cpu->kernels->bf16->widen(cpu_bf16_const(image), pixels * channels, copy);
    else if (value->type == CPU_BF16)
        for (size_t p = 0; p < pixels; p++)
            for (size_t c = 0; c < channels; c++)
                copy[c * pixels + p] = half_bf16_to(cpu_bf16_const(image)[p * channels + c]);
    else if (order == CPU_CHANNELS_LAST)
        transpose(image, channels, pixels, copy);
    else
        memcpy(copy, image, pixels * channels * sizeof *copy);
}

static void write_rows(const struct cpu *cpu, const struct cpu_value *value, const float *copy,
                       enum cpu_order order, float *image)
{
    const size_t pixels = pixels_of(value), channels = value->dims[0];

    if (value->type == CPU_BF16 && order == CPU_CHANNELS_LAST)
        cpu->kernels->bf16->narrow(copy, pixels * channels, cpu_bf16(image));
    else if (value->type == CPU_BF16)
        for (size_t p = 0; p < pixels; p++)
            for (size_t c = 0; c < channels; c++)
                cpu_bf16(image)[p * channels + c] = half_bf16_from(copy[c * pixels + p]);
    else if (order == CPU_CHANNELS_LAST)
        transpose(copy, pixels, channels, image);
    else
        memcpy(image, copy, pixels * channels * sizeof *copy);
}

void cpu_order_read(const struct cpu *cpu, const struct cpu_value *value, uint32_t n,
                    const float *memory, enum cpu_order order, float *copy)
{
    const struct steps steps = steps_of(value, order);
    const size_t bytes = cpu_value_bytes(value, 1), count = pixels_of(value) * value->dims[0];

    for (size_t i = 0; i < n; i++) {
        const float *image = (const float *)(const void *)((const char *)memory + i * bytes);

        if (value->blocked)
            read_blocks(value, cpu->kernels->block, image, steps, copy + i * count);
        else
            read_rows(cpu, value, image, order, copy + i * count);
    }
}

void cpu_order_write(const struct cpu *cpu, const struct cpu_value *value, uint32_t n,
                     const float *copy, enum cpu_order order, float *memory)
{
    const struct steps steps = steps_of(value, order);
    const size_t count = pixels_of(value) * value->dims[0];

    for (size_t i = 0; i < n; i++) {
        float *image = cpu_image_at(value, memory, i);

        if (value->blocked)
            write_blocks(value, cpu->kernels->block, copy + i * count, steps, image);
        else
            write_rows(cpu, value, copy + i * count, order, image);
    }
}
