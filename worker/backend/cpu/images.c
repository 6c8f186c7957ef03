/* The images of a step into the layout of the network's input. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <string.h>

/* Row-major [n][channels][pixels] into channel blocks; with `widens` [n][pixels] into every
 * channel. */
static void block_images(const struct cpu *cpu, const float *images)
{
    const struct cpu_value *value = &cpu->layers[0].out;
    const size_t pixels = (size_t)value->dims[1] * value->dims[2], block = cpu->kernels->block;

    if (value->dims[0] % block != 0) /* the channels of padding */
        memset(value->data, 0, cpu->n * value->image_size * sizeof(float));
    for (size_t i = 0; i < cpu->n; i++) {
        for (size_t c = 0; c < value->dims[0]; c++) {
            const float *from = images + (cpu->widens ? i : i * value->dims[0] + c) * pixels;
            float *to =
                value->data + i * value->image_size + c / block * block * pixels + c % block;

            for (size_t p = 0; p < pixels; p++)
                to[p * block] = from[p];
        }
    }
}

/* Row-major [n][pixels] into every channel. */
static void widen_images(const struct cpu *cpu, const float *images)
{
    const struct cpu_value *value = &cpu->layers[0].out;
    const size_t pixels = (size_t)value->dims[1] * value->dims[2];

    for (size_t plane = 0; plane < (size_t)cpu->n * value->dims[0]; plane++)
        memcpy(value->data + plane * pixels, images + plane / value->dims[0] * pixels,
               pixels * sizeof(float));
}

void cpu_images_take(struct cpu *cpu, const float *images)
{
    const struct cpu_value *input = &cpu->layers[0].out;

    assert(cpu->n > 0 && cpu->n <= cpu->batch_max);
    if (input->blocked)
        block_images(cpu, images);
    else if (cpu->widens)
        widen_images(cpu, images);
    else
        memcpy(input->data, images, cpu->n * input->image_size * sizeof(float));
}
