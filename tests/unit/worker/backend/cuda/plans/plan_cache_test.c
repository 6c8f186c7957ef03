/* The cache of plans on disk, alone and under a plan set: plans are saved and read back; damaged,
 * foreign and half-written files are replaced with a note; a folder that others may write is not
 * used. */
#include "worker/backend/cuda/plans/plan_cache.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/backend/cuda/plans/plans_tools.h"

static char notes[1024]; /* the last one */

static void take_note(void *user, const char *text)
{
    (void)user;
    (void)snprintf(notes, sizeof notes, "%s", text);
}

static const char *cache_folder(void)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%.480s/a/b", test_dir());
    return path;
}

/* The paths of all files in the folder; returns how many. */
static uint32_t files_of(const char *folder, char paths[][640], uint32_t limit)
{
    DIR *dir = opendir(folder);
    uint32_t count = 0;

    CHECK(dir != NULL);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        if (entry->d_name[0] != '.' && count < limit)
            (void)snprintf(paths[count++], 640, "%s/%s", folder, entry->d_name);
    CHECK_EQ(closedir(dir), 0);
    return count;
}

TEST(kept_and_read_back)
{
    struct plan_cache cache;
    char why[320], *text;
    size_t bytes = 0;

    CHECK(plan_cache_open(&cache, cache_folder(), why, sizeof why));
    CHECK_EQ(plan_cache_read(&cache, "one", &text, &bytes), PLAN_CACHE_NONE);
    CHECK(plan_cache_write(&cache, "one", "{\"a\": 1}", 8));
    CHECK(plan_cache_write(&cache, "two", "x\ny\0z", 5));
    CHECK_EQ(plan_cache_read(&cache, "one", &text, &bytes), PLAN_CACHE_FOUND);
    CHECK_EQ(bytes, 8);
    CHECK_STR(text, "{\"a\": 1}");
    free(text);
    CHECK_EQ(plan_cache_read(&cache, "two", &text, &bytes), PLAN_CACHE_FOUND);
    CHECK_EQ(bytes, 5);
    CHECK_BYTES(text, "x\ny\0z", 5);
    free(text);
    CHECK(plan_cache_write(&cache, "one", "new", 3));
    CHECK_EQ(plan_cache_read(&cache, "one", &text, &bytes), PLAN_CACHE_FOUND);
    CHECK_STR(text, "new");
    free(text);
    CHECK_EQ(plan_cache_read(&cache, "three", &text, &bytes), PLAN_CACHE_NONE);
}

/* Every truncation and every changed byte of a file is seen. */
TEST(every_damage_is_seen)
{
    struct plan_cache cache;
    char why[320], paths[4][640], file_bytes[256], *text;
    size_t bytes = 0, length;
    FILE *file;

    CHECK(plan_cache_open(&cache, cache_folder(), why, sizeof why));
    CHECK(plan_cache_write(&cache, "key of a plan", "{\"engine\": 7}", 13));
    CHECK_EQ(files_of(cache.folder, paths, 4), 1);
    file = fopen(paths[0], "rb");
    CHECK(file != NULL);
    length = fread(file_bytes, 1, sizeof file_bytes, file);
    CHECK_EQ(fclose(file), 0);
    for (size_t at = 0; at < 2 * length; at++) {
        const bool cuts = at >= length;

        file = fopen(paths[0], "wb");
        CHECK(file != NULL);
        if (!cuts)
            file_bytes[at] ^= 0x41;
        CHECK_EQ(fwrite(file_bytes, 1, cuts ? at - length : length, file),
                 cuts ? at - length : length);
        CHECK_EQ(fclose(file), 0);
        if (!cuts)
            file_bytes[at] ^= 0x41;
        CHECK_EQ(plan_cache_read(&cache, "key of a plan", &text, &bytes), PLAN_CACHE_DAMAGED);
        CHECK(text == NULL);
    }
}

TEST(folder_of_others_is_not_used)
{
    struct plan_cache cache;
    char why[320] = "", *text;
    size_t bytes;

    CHECK_EQ(mkdir(test_dir(), 0700) < 0, true); /* it is there */
    CHECK_EQ(chmod(test_dir(), 0777), 0);
    CHECK(!plan_cache_open(&cache, test_dir(), why, sizeof why));
    CHECK(strstr(why, test_dir()) != NULL);
    CHECK(!plan_cache_write(&cache, "one", "x", 1));
    CHECK_EQ(plan_cache_read(&cache, "one", &text, &bytes), PLAN_CACHE_NONE);
    CHECK_EQ(chmod(test_dir(), 0700), 0);
}

TEST(file_in_place_of_the_folder)
{
    struct plan_cache cache;
    char why[320] = "", path[512];
    FILE *file;

    (void)snprintf(path, sizeof path, "%.480s/file", test_dir());
    file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK_EQ(fclose(file), 0);
    CHECK(!plan_cache_open(&cache, path, why, sizeof why));
    (void)snprintf(path, sizeof path, "%.480s/file/below", test_dir());
    CHECK(!plan_cache_open(&cache, path, why, sizeof why));
    CHECK(strstr(why, "Not a directory") != NULL);
}

static uint32_t timed_convs; /* of the last build, whose time is 7.25 us */

/* Builds the ConvNet's plans; how many convolutions there are, and how many of them were kept. */
static uint32_t build_convnet(uint32_t *kept)
{
    struct plan_options options = {.cache_folder = cache_folder(), .note = take_note, .threads = 2};
    struct plan_set *set = open_set(&cuda_plans, options, 90);
    uint32_t count, convs = 0;
    struct plan_request *requests = model_requests("convnet", 28, 100, 2, GRAPH_F16, false, &count);
    struct err err;

    notes[0] = '\0';
    *kept = timed_convs = 0;
    CHECK_EQ(cuda_plans.build(set, requests, count, &err), STATUS_OK);
    for (uint32_t i = 0; i < count; i++) {
        if (requests[i].kind > PLAN_CONV_WGRAD)
            continue;
        CHECK_EQ(cuda_plans.info(set, i)->status, STATUS_OK);
        convs++;
        *kept += cuda_plans.info(set, i)->from_cache;
        timed_convs += cuda_plans.info(set, i)->time_us == 7.25F;
    }
    cuda_plans.close(&set);
    free(requests);
    return convs;
}

TEST(second_set_takes_from_the_cache)
{
    char paths[16][640];
    uint32_t kept;
    FILE *file;

    CHECK_EQ(build_convnet(&kept), 5);
    CHECK_EQ(kept, 0);
    CHECK_EQ(build_convnet(&kept), 5);
    CHECK_EQ(kept, 5);
    CHECK_STR(notes, "");
    CHECK_EQ(files_of(cache_folder(), paths, 16), 5);
    CHECK_EQ(truncate(paths[0], 100), 0);
    file = fopen(paths[1], "wb");
    CHECK(file != NULL);
    CHECK(fputs("not a plan", file) >= 0);
    CHECK_EQ(fclose(file), 0);
    CHECK_EQ(build_convnet(&kept), 5);
    CHECK_EQ(kept, 3);
    CHECK(strstr(notes, "2 plans in") != NULL);
    CHECK_EQ(build_convnet(&kept), 5);
    CHECK_EQ(kept, 5);
    CHECK_STR(notes, "");
}

/* The key of a file of the cache: its second line. */
static void key_of(const char *path, char key[PLAN_CACHE_KEY_MAX + 2])
{
    FILE *file = fopen(path, "r");

    CHECK(file != NULL);
    CHECK(fgets(key, PLAN_CACHE_KEY_MAX + 2, file) != NULL);
    CHECK(fgets(key, PLAN_CACHE_KEY_MAX + 2, file) != NULL);
    CHECK_EQ(fclose(file), 0);
    key[strlen(key) - 1] = '\0';
}

/* A file that is whole but whose JSON this cuDNN refuses, or that has no time. */
TEST(foreign_plan_is_made_anew)
{
    static const char *const texts[] = {"time_us 1.000\n{\"version\": 99}", "{\"version\": 99}",
                                        "time_us 1.000"};
    char paths[16][640];
    struct plan_cache cache;
    char why[320], key[PLAN_CACHE_KEY_MAX + 2];
    uint32_t kept;

    CHECK_EQ(build_convnet(&kept), 5);
    CHECK_EQ(files_of(cache_folder(), paths, 16), 5);
    key_of(paths[0], key);
    CHECK(plan_cache_open(&cache, cache_folder(), why, sizeof why));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK(plan_cache_write(&cache, key, texts[i], strlen(texts[i])));
        CHECK_EQ(build_convnet(&kept), 5);
        CHECK_EQ(kept, 4);
        CHECK(strstr(notes, "1 plans in") != NULL);
    }
}

/* The time measured when the plan was made is saved and read back with it. */
TEST(times_are_kept)
{
    static const char line[] = "time_us 7.250\n";
    char paths[16][640], why[320], key[PLAN_CACHE_KEY_MAX + 2];
    struct plan_cache cache;
    uint32_t kept;
    size_t bytes = 0;
    char *text;

    CHECK_EQ(build_convnet(&kept), 5);
    CHECK_EQ(timed_convs, 0); /* there was no device */
    CHECK_EQ(files_of(cache_folder(), paths, 16), 5);
    key_of(paths[0], key);
    CHECK(plan_cache_open(&cache, cache_folder(), why, sizeof why));
    CHECK_EQ(plan_cache_read(&cache, key, &text, &bytes), PLAN_CACHE_FOUND);
    CHECK(strncmp(text, "time_us 0.000\n", strlen(line)) == 0);
    memcpy(text, line, strlen(line));
    CHECK(plan_cache_write(&cache, key, text, bytes));
    free(text);
    CHECK_EQ(build_convnet(&kept), 5);
    CHECK_EQ(kept, 5);
    CHECK_EQ(timed_convs, 1);
}

TEST_MAIN
