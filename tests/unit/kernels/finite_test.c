/* kernel_finite_ref finds a non-finite value at any index of any tensor, and reports nothing
 * else. */
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#include "tests/lib/test.h"

#define COUNT_MAX 67

static const size_t counts[] = {1, 2, 3, 4, 5, 31, 32, 33, COUNT_MAX};

static uint32_t look(const float *values, size_t count)
{
    struct kernel_values tensors[] = {{.values = NULL, .count = 0},
                                      {.values = values, .count = count}};
    uint32_t found = 0;

    kernel_finite_ref(tensors, 2, KERNEL_F32, &found);
    return found;
}

TEST(f32_every_place)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    float values[COUNT_MAX + 2];

    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (size_t i = 0; i < COUNT_MAX + 2; i++)
            values[i] = i % 2 ? 3.4028235e38F : -1e-45F;
        values[0] = values[counts[c] + 1] = NAN; /* guards: right outside, not to be read */
        CHECK_EQ(look(values + 1, counts[c]), 0);
        for (size_t i = 0; i < counts[c]; i++) {
            float kept = values[i + 1];

            values[i + 1] = bad[i % 4];
            CHECK_EQ(look(values + 1, counts[c]), 1);
            values[i + 1] = kept;
        }
    }
}

TEST(halves)
{
    uint16_t values[5] = {0x7bff, 0x0001, 0x8000, 0xfbff, 0x03ff};
    struct kernel_values tensor = {.values = values, .count = 5};
    uint32_t found = 0;

    kernel_finite_ref(&tensor, 1, KERNEL_F16, &found);
    CHECK_EQ(found, 0);
    kernel_finite_ref(&tensor, 1, KERNEL_BF16, &found);
    CHECK_EQ(found, 0); /* 0x7bff is an ordinary bfloat16 */
    values[4] = 0x7c00;
    kernel_finite_ref(&tensor, 1, KERNEL_BF16, &found);
    CHECK_EQ(found, 0); /* and 0x7c00 too: infinity is 0x7f80 */
    kernel_finite_ref(&tensor, 1, KERNEL_F16, &found);
    CHECK_EQ(found, 1);
    found = 0;
    values[4] = 0xff80;
    kernel_finite_ref(&tensor, 1, KERNEL_BF16, &found);
    CHECK_EQ(found, 1);
}

TEST(never_cleared)
{
    float value = 1.0F;
    struct kernel_values tensor = {.values = &value, .count = 1};
    uint32_t found = 1;

    kernel_finite_ref(&tensor, 1, KERNEL_F32, &found);
    CHECK_EQ(found, 1);
    kernel_finite_ref(NULL, 0, KERNEL_F32, &found);
    CHECK_EQ(found, 1);
}

TEST_MAIN
