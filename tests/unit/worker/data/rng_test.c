/* The generator against PyTorch's own draws. */
#include "worker/data/rng.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/worker/data/golden.h"

/* at::normal_fill's AVX2 path has its own logarithm and sine: a few units in the last place of
 * values up to 4. */
static const double VECTOR_NORMAL_TOLERANCE = 5e-7;

static void check_values(const cJSON *golden, const char *name, const float *values, size_t n,
                         double tolerance)
{
    const cJSON *list = cJSON_GetObjectItem(golden, name);

    CHECK_EQ(cJSON_GetArraySize(list), n);
    for (size_t i = 0; i < n; i++)
        CHECK_NEAR(values[i], cJSON_GetArrayItem(list, (int)i)->valuedouble, tolerance);
}

TEST(uniform_and_normal_are_torchs)
{
    cJSON *golden = golden_read("generator.json");
    struct rng rng;
    float values[24];

    rng_seed(&rng, 0);
    rng_uniform_f32(&rng, 0, 1, values, 8);
    check_values(golden, "uniform_f32_seed0", values, 8, 0);
    rng_seed(&rng, 0);
    rng_normal_f32(&rng, 0, 1, values, 3); /* odd: the second of a pair waits for the next call */
    rng_normal_f32(&rng, 0, 1, values + 3, 5);
    check_values(golden, "normal_f32_seed0_8", values, 8, 0);
    rng_seed(&rng, 0);
    rng_normal_f32(&rng, 0, 1, values, 24); /* not a multiple of 16: the tail is redrawn */
    check_values(golden, "normal_f32_seed0_24", values, 24, VECTOR_NORMAL_TOLERANCE);
    cJSON_Delete(golden);
}

TEST(words_are_torchs)
{
    cJSON *golden = golden_read("generator.json");
    const cJSON *list = cJSON_GetObjectItem(golden, "mt_u32_seed0_random_int32");
    struct rng rng;

    rng_seed(&rng, 0);
    for (int i = 0; i < 8; i++) { /* torch takes 64 bits and keeps the low 31 */
        (void)rng_u32(&rng);
        CHECK_NEAR(rng_u32(&rng) & 0x7fffffffU, cJSON_GetArrayItem(list, i)->valuedouble, 0);
    }
    cJSON_Delete(golden);
}

TEST(permutations_are_torchs)
{
    cJSON *golden = golden_read("randperm.json");
    const cJSON *entry;
    struct rng rng;
    char hex[65];

    cJSON_ArrayForEach(entry, golden)
    {
        size_t n = (size_t)cJSON_GetObjectItem(entry, "n")->valuedouble;
        int64_t *order = calloc(n, sizeof *order);
        CHECK(order != NULL);
        rng_seed(&rng, (uint64_t)cJSON_GetObjectItem(entry, "seed")->valuedouble);
        rng_permute(&rng, order, n);
        golden_sha256(order, n * sizeof *order, hex);
        free(order);
        CHECK_STR(hex, cJSON_GetObjectItem(entry, "sha256_int64")->valuestring);
    }
    cJSON_Delete(golden);
}

TEST(known_words_of_the_twister)
{
    struct rng rng;

    rng_seed(&rng, 0);
    CHECK_EQ(rng_u32(&rng), 2357136044U); /* mt19937ar with seed 0 */
    rng_seed(&rng, 5489);
    for (int i = 0; i < 9999; i++)
        (void)rng_u32(&rng);
    CHECK_EQ(rng_u32(&rng), 4123659995U); /* C++ standard, [rand.predef]: the 10000th word */
}

TEST(skipped_words_are_those_that_would_be_drawn)
{
    static const size_t counts[] = {0, 1, 623, 624, 625, 5000};
    struct rng drawn, skipped;

    rng_seed(&drawn, 3);
    rng_seed(&skipped, 3);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (size_t k = 0; k < counts[i]; k++)
            (void)rng_u32(&drawn);
        rng_skip(&skipped, counts[i]);
        CHECK_EQ(rng_u32(&skipped), rng_u32(&drawn));
    }
}

TEST(empty_draws)
{
    struct rng rng, before;

    rng_seed(&rng, 7);
    before = rng;
    rng_permute(&rng, NULL, 0);
    rng_uniform_f32(&rng, 0, 1, NULL, 0);
    rng_normal_f32(&rng, 0, 1, NULL, 0);
    CHECK_BYTES(rng.state, before.state, sizeof rng.state);
    CHECK_EQ(rng.next, before.next);
}

TEST_MAIN
