/* Stores the images of a step in the layout of the network's input. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <string.h>

/* Row-major [n][channels][pixels] to channel blocks; with `widens` [n][pixels] to every channel. */
static void block_images(const struct cpu *cpu, const float *images)
{
    const struct cpu_value *value = &cpu->layers[0].out;
    const size_t pixels = (size_t)value->dims[1] * value->dims[2], block = cpu->kernels->block;

    if (value->dims[0] % block != 0) /* set padding channels to 0 */
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

/* Copies row-major [n][pixels] to every channel. */
static void widen_images(const struct cpu *cpu, const float *images)
{
    const struct cpu_value *value = &cpu->layers[0].out;
    const size_t pixels = (size_t)value->dims[1] * value->dims[2];

    for (size_t plane = 0; plane < (size_t)cpu->n * value->dims[0]; plane++)
        memcpy(value->data + plane * pixels, images + plane / value->dims[0] * pixels,
               pixels * sizeof(float));
}

/* The value of each byte, by channel; one table for all channels if nothing is normalised. */
struct meaning {
    float of[NET_NORMAL_CHANNELS][256];
    uint32_t channels;
};

static void find_meaning(struct meaning *meaning, const struct net_normal *normal,
                         uint32_t channels)
{
    meaning->channels = normal != NULL ? channels : 1;
    assert(meaning->channels <= NET_NORMAL_CHANNELS);
    for (uint32_t c = 0; c < meaning->channels; c++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            const float value = (float)byte / 255.0F;

            meaning->of[c][byte] =
                normal != NULL ? (value - normal->mean[c]) / normal->std[c] : value;
        }
}

/* Row-major [n][pixels][channels] to the planes or the channel blocks of the input. */
static void take_bytes(const struct cpu *cpu, const struct net_images *images)
{
    const struct cpu_value *value = &cpu->layers[0].out;
    const size_t pixels = (size_t)value->dims[1] * value->dims[2], channels = value->dims[0];
    const size_t step = value->blocked ? cpu->kernels->block : 1;
    const size_t from_step = cpu->widens ? 1 : channels;
    struct meaning meaning;

    find_meaning(&meaning, images->normal, value->dims[0]);
    if (channels % step != 0) /* set padding channels to 0 */
        memset(value->data, 0, cpu->n * value->image_size * sizeof(float));
    for (size_t i = 0; i < cpu->n; i++)
        for (size_t c = 0; c < channels; c++) {
            const float *of = meaning.of[c < meaning.channels ? c : 0];
            const uint8_t *from = images->bytes + i * pixels * from_step + (cpu->widens ? 0 : c);
            float *to = value->data + i * value->image_size + c / step * step * pixels + c % step;

            for (size_t p = 0; p < pixels; p++)
                to[p * step] = of[from[p * from_step]];
        }
}

static void take_floats(const struct cpu *cpu, const float *images)
{
    const struct cpu_value *input = &cpu->layers[0].out;

    if (input->blocked)
        block_images(cpu, images);
    else if (cpu->widens)
        widen_images(cpu, images);
    else
        memcpy(input->data, images, cpu->n * input->image_size * sizeof(float));
}

void cpu_images_take(struct cpu *cpu, const struct net_images *images)
{
    assert(cpu->n > 0 && cpu->n <= cpu->batch_max);
    if (images->bytes != NULL)
        take_bytes(cpu, images);
    else
        take_floats(cpu, images->floats);
}
