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
        struct sampler_options options = {.image_count = cases[i].n,
                                          .rank = cases[i].rank,
                                          .world = cases[i].world,
                                          .seed = 3,
                                          .shuffle = cases[i].shuffle,
                                          .drop_last = cases[i].drop_last};
        struct sampler sampler;
        CHECK_EQ(sampler_init(&sampler, &options, NULL), STATUS_OK);
        CHECK_EQ(sampler.count, cases[i].count);
        sampler_set_epoch(&sampler, 2);
        for (size_t k = 0; k < sampler.count; k++)
            CHECK_EQ(sampler_index(&sampler, k), cases[i].expected[k]);
        sampler_close(&sampler);
    }
}

/* -- worlds that change within an epoch -- */

enum { IMAGES = 250 };

/* Counts the images that the ranks of `part` see, after the parts before it. */
static void see(const struct sampler_options *with, const struct sampler_part *parts, size_t before,
                uint32_t seen[IMAGES])
{
    const struct sampler_part *part = &parts[before];
    const size_t group = (size_t)part->batch * part->accumulation_steps;

    for (uint32_t rank = 0; rank < part->world; rank++) {
        struct sampler_options options = *with;
        struct sampler sampler;

        options.rank = rank;
        options.world = part->world;
        CHECK_EQ(sampler_init(&sampler, &options, NULL), STATUS_OK);
        sampler_set_epoch(&sampler, 4);
        CHECK_EQ(sampler_skip(&sampler, parts, before, NULL), STATUS_OK);
        for (size_t i = 0; i < sampler.count && i < part->steps * group; i++)
            seen[sampler_index(&sampler, i)]++;
        sampler_close(&sampler);
    }
}

/* 4 ranks, then 2, 3, 8 and 1: each image once, and no more of them twice than pad the last share. */
static void check_changes(const struct sampler_options *options, const struct sampler_part *parts,
                          size_t count)
{
    uint32_t seen[IMAGES] = {0}, twice = 0;

    for (size_t i = 0; i < count; i++)
        see(options, parts, i, seen);
    for (size_t i = 0; i < IMAGES; i++) {
        CHECK(seen[i] >= 1);
        CHECK(seen[i] <= 2);
        twice += seen[i] - 1;
    }
    CHECK(twice < parts[count - 1].world);
}

/* The order backwards: whole, and the same on all ranks. */
static void backwards(void *user, uint64_t epoch, int64_t *order, size_t image_count)
{
    CHECK(user != NULL && epoch <= 4);
    for (size_t i = 0; i < image_count; i++)
        order[i] = (int64_t)(image_count - 1 - i);
}

TEST(each_image_is_seen_once_though_the_world_changes)
{
    static const struct sampler_part parts[] = {
        {4, 4, 1, 3}, {2, 4, 2, 2}, {3, 5, 1, 4}, {8, 1, 1, 3}, {7, 4, 1, 100}};
    static const struct sampler_part whole[] = {{2, 10, 1, 13},
                                                {3, 4, 1, 100}}; /* nothing is left */
    struct sampler_options options = {.image_count = IMAGES, .seed = 3, .shuffle = true};
    char user = 0;

    for (int contiguous = 0; contiguous < 2; contiguous++) {
        options.contiguous = contiguous > 0;
        options.make_order = NULL;
        check_changes(&options, parts, 5);
        check_changes(&options, whole, 2);
        options.make_order = backwards;
        options.user = &user;
        check_changes(&options, parts, 5);
    }
}

/* A world that skips its own finished steps continues with the images that it would have seen
 * anyway. */
TEST(the_same_world_goes_on_as_if_nothing_was)
{
    const struct sampler_options options = {
        .image_count = IMAGES, .rank = 2, .world = 3, .seed = 3, .shuffle = true};
    const struct sampler_part part = {3, 4, 1, 5};
    struct sampler whole, rest;

    CHECK_EQ(sampler_init(&whole, &options, NULL), STATUS_OK);
    CHECK_EQ(sampler_init(&rest, &options, NULL), STATUS_OK);
    CHECK_EQ(sampler_skip(&rest, &part, 1, NULL), STATUS_OK);
    CHECK_EQ(rest.count, whole.count - 20);
    for (size_t i = 0; i + 1 < rest.count; i++) /* the last one pads */
        CHECK_EQ(sampler_index(&rest, i), sampler_index(&whole, i + 20));
    sampler_close(&whole);
    sampler_close(&rest);
}

TEST(pieces_of_the_order_are_contiguous)
{
    struct sampler_options options = {.image_count = 10, .rank = 2, .world = 3, .contiguous = true};
    static const int64_t expected[] = {8, 9, 0, 1};
    struct sampler sampler;

    CHECK_EQ(sampler_init(&sampler, &options, NULL), STATUS_OK);
    CHECK_EQ(sampler.count, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ(sampler_index(&sampler, i), expected[i]);
    sampler_close(&sampler);
}

TEST(steps_that_cannot_be_are_refused)
{
    const struct sampler_options options = {.image_count = 10, .world = 1};
    const struct sampler_part parts[] = {{2, 2, 1, 3}, {1, 1, 1, 1}};
    struct sampler sampler;
    struct err err;

    CHECK_EQ(sampler_init(&sampler, &options, NULL), STATUS_OK);
    CHECK_EQ(sampler_skip(&sampler, parts, 2, &err), STATUS_BAD_INPUT);
    sampler_close(&sampler);
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
