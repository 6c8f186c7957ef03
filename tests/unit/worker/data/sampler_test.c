/* The sampler against torch's DistributedSampler. */
#include "worker/data/sampler.h"

#include <stdlib.h>

#include "tests/unit/worker/data/golden.h"

static void check_golden(const char *name)
{
    cJSON *golden = golden_read(name);
    const cJSON *epochs = cJSON_GetObjectItem(golden, "sampler"), *entry;
    struct sampler_options options = {.image_count = 60000,
                                      .world =
                                          (uint32_t)cJSON_GetObjectItem(golden, "world")->valueint,
                                      .shuffle = true};
    struct sampler sampler;
    uint64_t epoch = 0;
    char hex[65];

    CHECK_EQ(sampler_init(&sampler, &options, NULL), STATUS_OK);
    cJSON_ArrayForEach(entry, epochs)
    {
        CHECK(sampler.count > 0);
        int64_t *indices = calloc(sampler.count, sizeof *indices);
        CHECK(indices != NULL);
        sampler_set_epoch(&sampler, epoch++);
        for (size_t i = 0; i < sampler.count; i++)
            indices[i] = sampler_index(&sampler, i);
        golden_sha256(indices, sampler.count * sizeof *indices, hex);
        free(indices);
        CHECK_STR(hex, cJSON_GetObjectItem(entry, "sha256_int64")->valuestring);
    }
    CHECK_EQ(epoch, 3);
    sampler_close(&sampler);
    cJSON_Delete(golden);
}

TEST(one_rank_is_torchs)
{
    check_golden("convnet-mnist-1rank.json");
}

TEST(four_ranks_are_torchs)
{
    check_golden("convnet-mnist-4ranks.json");
}

/* What torch.utils.data.DistributedSampler(range(n), world, rank, shuffle, seed=3, drop_last) gave
 * with set_epoch(2); PyTorch 2.15. */
static const struct {
    size_t n;
    uint32_t world, rank;
    bool shuffle, drop_last;
    size_t count;
    int64_t expected[6];
} cases[] = {
    {10, 3, 0, true, false, 4, {1, 6, 0, 7}},
    {10, 3, 2, true, false, 4, {9, 5, 8, 4}},
    {10, 3, 2, true, true, 3, {9, 5, 8}},
    {10, 4, 3, true, true, 2, {6, 2}},
    {3, 8, 5, true, false, 1, {0}},
    {2, 7, 6, true, false, 1, {1}},
    {1, 4, 3, true, false, 1, {0}},
    {9, 3, 1, true, true, 3, {7, 5, 0}},
    {2, 4, 1, true, true, 0, {0}},
    {7, 2, 1, false, false, 4, {1, 3, 5, 0}},
    {7, 2, 1, false, true, 3, {1, 3, 5}},
    {5, 1, 0, true, false, 5, {1, 3, 0, 4, 2}},
};

TEST(padding_and_dropping_are_torchs)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sampler_options options = {cases[i].n, cases[i].rank,    cases[i].world,
                                          3,          cases[i].shuffle, cases[i].drop_last};
        struct sampler sampler;
        CHECK_EQ(sampler_init(&sampler, &options, NULL), STATUS_OK);
        CHECK_EQ(sampler.count, cases[i].count);
        sampler_set_epoch(&sampler, 2);
        for (size_t k = 0; k < sampler.count; k++)
            CHECK_EQ(sampler_index(&sampler, k), cases[i].expected[k]);
        sampler_close(&sampler);
    }
}

TEST(impossible_sizes_are_refused)
{
    struct sampler_options options = {.image_count = 0, .world = 1};
    struct sampler sampler;
    struct err err;

    CHECK_EQ(sampler_init(&sampler, &options, &err), STATUS_BAD_INPUT);
    options.image_count = (size_t)SAMPLER_IMAGES_MAX + 1;
    CHECK_EQ(sampler_init(&sampler, &options, &err), STATUS_BAD_INPUT);
}

TEST_MAIN
