/* Copies of values into another memory order: every element goes to its place, there and back, and
 * padding becomes 0. */
#include <math.h>
#include <stdlib.h>

#include "kernels/half.h"
#include "tests/lib/test.h"
#include "worker/backend/cpu/order.h"

enum { IMAGES = 2, HEIGHT = 3, WIDTH = 5, PIXELS = HEIGHT * WIDTH, FLOATS = 4096 };

static float memory[FLOATS], copy[FLOATS], back[FLOATS];

/* Where element (image, channel, pixel) of a value is, in elements. */
static size_t place_of(const struct cpu_value *value, size_t block, size_t i, size_t c, size_t p)
{
    if (value->type == CPU_BF16)
        return (i * PIXELS + p) * value->dims[0] + c;
    if (!value->blocked)
        return (i * value->dims[0] + c) * PIXELS + p;
    return ((i * value->blocks + c / block) * PIXELS + p) * block + c % block;
}

static size_t copy_place_of(const struct cpu_value *value, enum cpu_order order, size_t i, size_t c,
                            size_t p)
{
    return order == CPU_CHANNELS_LAST ? (i * PIXELS + p) * value->dims[0] + c
                                      : (i * value->dims[0] + c) * PIXELS + p;
}

static float element(const struct cpu_value *value, const float *from, size_t at)
{
    return value->type == CPU_BF16 ? half_bf16_to(cpu_bf16_const(from)[at]) : from[at];
}

/* Numbers below 256, which bf16 has too. */
static float number_of(size_t i, size_t c, size_t p)
{
    return (float)((i * 97 + c * 15 + p) % 251 + 1);
}

static void fill(const struct cpu_value *value, size_t block)
{
    for (size_t i = 0; i < FLOATS; i++)
        memory[i] = copy[i] = back[i] = NAN;
    for (size_t i = 0; i < IMAGES; i++)
        for (size_t c = 0; c < value->dims[0]; c++)
            for (size_t p = 0; p < PIXELS; p++) {
                const size_t at = place_of(value, block, i, c, p);

                if (value->type == CPU_BF16)
                    cpu_bf16(memory)[at] = half_bf16_from(number_of(i, c, p));
                else
                    memory[at] = number_of(i, c, p);
            }
}

static void check_padding(const struct cpu_value *value, size_t block)
{
    for (size_t i = 0; i < IMAGES && value->blocked; i++)
        for (size_t c = value->dims[0]; c < value->blocks * block; c++)
            for (size_t p = 0; p < PIXELS; p++)
                CHECK(back[place_of(value, block, i, c, p)] == 0.0F);
}

static void check(const struct cpu_kernels *kernels, struct cpu_value value, enum cpu_order order)
{
    const struct cpu cpu = {.kernels = kernels};
    const size_t block = kernels->block;

    value.dims[1] = HEIGHT;
    value.dims[2] = WIDTH;
    value.blocks = value.blocked ? (uint32_t)((value.dims[0] + block - 1) / block) : 0;
    value.image_size = PIXELS * (value.blocked ? value.blocks * block : value.dims[0]);
    CHECK(IMAGES * value.image_size <= FLOATS);
    CHECK_EQ(cpu_order_bytes(&value, IMAGES), IMAGES * PIXELS * value.dims[0] * sizeof(float));
    fill(&value, block);
    cpu_order_read(&cpu, &value, IMAGES, memory, order, copy);
    cpu_order_write(&cpu, &value, IMAGES, copy, order, back);
    for (size_t i = 0; i < IMAGES; i++)
        for (size_t c = 0; c < value.dims[0]; c++)
            for (size_t p = 0; p < PIXELS; p++) {
                CHECK(copy[copy_place_of(&value, order, i, c, p)] == number_of(i, c, p));
                CHECK(element(&value, back, place_of(&value, block, i, c, p)) ==
                      number_of(i, c, p));
            }
    check_padding(&value, block);
}

static void check_value(struct cpu_value value)
{
    static const enum cpu_order orders[] = {CPU_CHANNELS_LAST, CPU_ROW_MAJOR};

    for (size_t k = 0; k < 2; k++) {
        check(&cpu_kernels_generic, value, orders[k]);
#if defined(__x86_64__)
        check(&cpu_kernels_avx512, value, orders[k]); /* blocks of 16; no vector code of it runs */
#endif
    }
}

TEST(blocks_and_parts_of_blocks)
{
    static const uint32_t channels[] = {1, 7, 8, 9, 16, 17, 33};

    for (size_t k = 0; k < sizeof channels / sizeof channels[0]; k++)
        check_value((struct cpu_value){.blocked = true, .dims = {channels[k]}});
}

TEST(rows)
{
    check_value((struct cpu_value){.dims = {1}});
    check_value((struct cpu_value){.dims = {3}});
}

TEST(bf16)
{
    static const enum cpu_order orders[] = {CPU_CHANNELS_LAST, CPU_ROW_MAJOR};

    for (size_t k = 0; k < 2; k++)
        check(&cpu_kernels_generic, (struct cpu_value){.type = CPU_BF16, .dims = {11}}, orders[k]);
}

TEST_MAIN
