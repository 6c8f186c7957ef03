/* Copies of checkpoints: the same bytes, whole or not at all, fenced; tokens that show who shares a
 * folder; what another job has left is set aside. */
#include "worker/checkpoint/copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/checkpoint/small_state.h"

enum { VALUES = 5000, CHUNK = 777 };

static char paths[2][1100]; /* the folders "from" and "to" */
static struct err err;

static void name_folders(void)
{
    (void)snprintf(paths[0], sizeof paths[0], "%.1000s/from", test_dir());
    (void)snprintf(paths[1], sizeof paths[1], "%.1000s/to", test_dir());
}

static struct checkpoint_dir *open_dir(int which, const char *job_id, uint32_t generation,
                                       int64_t step, bool only_job)
{
    const struct checkpoint_options options = {.path = paths[which],
                                               .job_id = job_id,
                                               .generation = generation,
                                               .keep = 2,
                                               .step = step,
                                               .only_job = only_job};
    struct checkpoint_dir *dir;
    struct err notice;

    name_folders();
    if (checkpoint_dir_open(&dir, &options, &notice, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return dir;
}

static void save(struct checkpoint_dir *dir, const char *job_id, uint32_t step)
{
    static float values[VALUES];
    const struct safetensors_tensor tensor = {.name = "weight",
                                              .type = SAFETENSORS_F32,
                                              .dims = {VALUES},
                                              .dim_count = 1,
                                              .values = values};
    struct checkpoint_state state = small_state(step);

    (void)snprintf(state.job_id, sizeof state.job_id, "%s", job_id);
    for (uint32_t i = 0; i < VALUES; i++)
        values[i] = (float)(step * 31 + i);
    if (checkpoint_save(dir, &state, &tensor, 1, &err) != STATUS_OK)
        FAIL("%s", err.text);
}

static bool exists(int which, const char *name)
{
    char path[1300];

    (void)snprintf(path, sizeof path, "%.1000s/%.200s", paths[which], name);
    return access(path, F_OK) == 0;
}

/* Temporary files in the folder "to". */
static int temps(void)
{
    DIR *dir = opendir(paths[1]);
    const struct dirent *entry;
    int n = 0;

    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL)
        n += strstr(entry->d_name, ".tmp") != NULL;
    (void)closedir(dir);
    return n;
}

static bool are_equal(const char *name)
{
    static char bytes[2][VALUES * 8];
    size_t counts[2];

    for (int i = 0; i < 2; i++) {
        char path[1300];
        FILE *file;

        (void)snprintf(path, sizeof path, "%.1000s/%.200s", paths[i], name);
        file = fopen(path, "rbe");
        if (file == NULL)
            return false;
        counts[i] = fread(bytes[i], 1, sizeof bytes[i], file);
        (void)fclose(file);
    }
    return counts[0] == counts[1] && counts[0] > 0 && memcmp(bytes[0], bytes[1], counts[0]) == 0;
}

/* Copies the checkpoint of `step`; changes the byte at `damage`, and leaves out what is behind
 * `limit`. */
static enum status copy_step(struct checkpoint_dir *to, uint32_t step, uint64_t damage,
                             uint64_t limit)
{
    struct checkpoint_source source;
    struct checkpoint_copy *copy;
    uint8_t chunk[CHUNK];
    enum status status;

    CHECK_EQ(checkpoint_source_open(&source, paths[0], step, &err), STATUS_OK);
    CHECK_EQ(checkpoint_copy_begin(&copy, to, step, &err), STATUS_OK);
    for (uint64_t at = 0; at < source.tensor_bytes && at < limit; at += CHUNK) {
        const uint64_t left = source.tensor_bytes - at;
        const size_t n = left < CHUNK ? (size_t)left : CHUNK;

        CHECK_EQ(checkpoint_source_read(&source, at, chunk, n, &err), STATUS_OK);
        if (damage >= at && damage < at + n)
            chunk[damage - at] ^= 1;
        checkpoint_copy_add(copy, chunk, n);
    }
    status = checkpoint_copy_end(&copy, source.state, source.state_bytes, &err);
    CHECK(copy == NULL);
    checkpoint_source_close(&source);
    return status;
}

TEST(a_copy_has_the_same_bytes_and_the_newest_are_kept)
{
    struct checkpoint_dir *from = open_dir(0, "7", 1, -1, false);
    struct checkpoint_dir *to = open_dir(1, "7", 1, -1, false);
    struct checkpoint checkpoint;

    for (uint32_t step = 1; step <= 3; step++) {
        save(from, "7", step);
        CHECK_EQ(copy_step(to, step, UINT64_MAX, UINT64_MAX), STATUS_OK);
    }
    CHECK(are_equal("step-00000003.safetensors") && are_equal("step-00000003.json"));
    CHECK(are_equal("step-00000002.safetensors") && are_equal("step-00000002.json"));
    CHECK(!exists(1, "step-00000001.json") && !exists(1, "step-00000001.safetensors"));
    CHECK_EQ(checkpoint_open_step(&checkpoint, paths[1], 3, &err), STATUS_OK);
    CHECK_EQ(checkpoint.state.step, 3);
    checkpoint_close(&checkpoint);
    checkpoint_dir_close(&from);
    checkpoint_dir_close(&to);
}

TEST(what_differs_or_is_cut_is_no_checkpoint)
{
    struct checkpoint_dir *from = open_dir(0, "7", 1, -1, false);
    struct checkpoint_dir *to = open_dir(1, "7", 1, -1, false);
    struct checkpoint_copy *copy;

    save(from, "7", 1);
    CHECK_EQ(copy_step(to, 1, UINT64_MAX, UINT64_MAX), STATUS_OK);
    save(from, "7", 2);
    CHECK_EQ(copy_step(to, 2, 9000, UINT64_MAX), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "damaged") != NULL);
    CHECK_EQ(copy_step(to, 2, UINT64_MAX, 9000), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "torn") != NULL);
    CHECK_EQ(checkpoint_copy_begin(&copy, to, 2, &err), STATUS_OK);
    checkpoint_copy_add(copy, "half", 4);
    CHECK_EQ(temps(), 1);
    checkpoint_copy_drop(&copy);
    CHECK_EQ(checkpoint_copy_begin(&copy, to, 2, &err), STATUS_OK);
    CHECK_EQ(checkpoint_copy_end(&copy, "{", 1, &err), STATUS_BAD_INPUT);
    CHECK_EQ(temps(), 0);
    CHECK(!exists(1, "step-00000002.safetensors") && !exists(1, "step-00000002.json"));
    CHECK(are_equal("step-00000001.safetensors"));
    checkpoint_dir_close(&from);
    checkpoint_dir_close(&to);
}

TEST(an_old_generation_cannot_copy)
{
    struct checkpoint_dir *from = open_dir(0, "7", 1, -1, false);
    struct checkpoint_dir *old = open_dir(1, "7", 1, -1, false), *new;

    save(from, "7", 1);
    new = open_dir(1, "7", 2, -1, false);
    CHECK_EQ(copy_step(old, 1, UINT64_MAX, UINT64_MAX), STATUS_CONFLICT);
    CHECK(!exists(1, "step-00000001.json") && temps() == 0);
    CHECK_EQ(copy_step(new, 1, UINT64_MAX, UINT64_MAX), STATUS_OK);
    checkpoint_dir_close(&from);
    checkpoint_dir_close(&old);
    checkpoint_dir_close(&new);
}

/* It also leaves alone what the new one is writing. */
TEST(an_old_generation_removes_nothing_of_the_new_one)
{
    struct checkpoint_dir *from = open_dir(0, "7", 1, -1, false);
    struct checkpoint_dir *old = open_dir(1, "7", 1, -1, false), *new;
    struct checkpoint_source source;
    struct checkpoint_copy *copy;
    static uint8_t bytes[VALUES * 8];

    save(from, "7", 1);
    new = open_dir(1, "7", 2, -1, false);
    CHECK_EQ(checkpoint_source_open(&source, paths[0], 1, &err), STATUS_OK);
    CHECK_EQ(checkpoint_source_read(&source, 0, bytes, source.tensor_bytes, &err), STATUS_OK);
    CHECK_EQ(checkpoint_copy_begin(&copy, new, 1, &err), STATUS_OK);
    CHECK_EQ(copy_step(old, 1, UINT64_MAX, UINT64_MAX), STATUS_CONFLICT);
    checkpoint_copy_add(copy, bytes, source.tensor_bytes);
    if (checkpoint_copy_end(&copy, source.state, source.state_bytes, &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK(are_equal("step-00000001.safetensors") && temps() == 0);
    checkpoint_source_close(&source);
    checkpoint_dir_close(&from);
    checkpoint_dir_close(&old);
    checkpoint_dir_close(&new);
}

TEST(what_is_missing_cannot_be_sent)
{
    struct checkpoint_dir *from = open_dir(0, "7", 1, -1, false);
    struct checkpoint_source source;
    char path[1300];

    CHECK_EQ(checkpoint_source_open(&source, paths[0], 1, &err), STATUS_NOT_FOUND);
    save(from, "7", 1);
    (void)snprintf(path, sizeof path, "%.1000s/step-00000001.safetensors", paths[0]);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(checkpoint_source_open(&source, paths[0], 1, &err), STATUS_NOT_FOUND);
    checkpoint_dir_close(&from);
}

TEST(tokens_show_who_shares_a_folder)
{
    CHECK_EQ(checkpoint_token_leave(paths[0], 5, 0, &err), STATUS_OK);
    CHECK_EQ(checkpoint_token_leave(paths[0], 5, 12, &err), STATUS_OK);
    CHECK(checkpoint_token_found(paths[0], 5, 0) && checkpoint_token_found(paths[0], 5, 12));
    CHECK(!checkpoint_token_found(paths[0], 5, 1) && !checkpoint_token_found(paths[0], 6, 0));
    CHECK(!checkpoint_token_found(paths[1], 5, 0));
    checkpoint_token_remove(paths[0], 5, 0);
    checkpoint_token_remove(paths[0], 5, 12);
    CHECK(!checkpoint_token_found(paths[0], 5, 0) && !checkpoint_token_found(paths[0], 5, 12));
    CHECK_EQ(checkpoint_token_leave("/dev/null/x", 5, 0, &err), STATUS_IO);
    CHECK_EQ(checkpoint_token_leave("", 5, 0, &err), STATUS_TOO_BIG);
}

TEST(a_token_of_a_killed_rank_is_removed_after_an_hour)
{
    const time_t old = time(NULL) - 3700;
    const struct timespec times[2] = {{.tv_sec = old}, {.tv_sec = old}};
    char token[1300];
    struct checkpoint_dir *dir = open_dir(0, "7", 8, -1, false);

    checkpoint_dir_close(&dir);
    CHECK_EQ(checkpoint_token_leave(paths[0], 5, 0, &err), STATUS_OK);
    CHECK_EQ(checkpoint_token_leave(paths[0], 6, 0, &err), STATUS_OK);
    (void)snprintf(token, sizeof token, "%.1000s/.node-0000000000000005-0", paths[0]);
    CHECK_EQ(utimensat(AT_FDCWD, token, times, 0), 0);
    dir = open_dir(0, "7", 9, -1, false);
    CHECK(!checkpoint_token_found(paths[0], 5, 0));
    CHECK(checkpoint_token_found(paths[0], 6, 0)); /* perhaps of a meeting */
    checkpoint_token_remove(paths[0], 6, 0);
    checkpoint_dir_close(&dir);
}

static void count_skipped(void *user, const struct err *why)
{
    CHECK(strstr(why->text, "it is of job 8, this is job 7") != NULL);
    ++*(int *)user;
}

TEST(other_jobs_are_passed_over_and_set_aside)
{
    struct checkpoint_dir *dir = open_dir(0, "7", 1, -1, false);
    int skipped = 0;
    const struct checkpoint_choice own = {
        .job_id = "7", .skipped = count_skipped, .user = &skipped};
    struct checkpoint checkpoint;

    save(dir, "7", 10);
    save(dir, "8", 20);
    checkpoint_dir_close(&dir);
    CHECK_EQ(checkpoint_open_newest(&checkpoint, paths[0], &own, &err), STATUS_OK);
    CHECK_EQ(checkpoint.state.step, 10);
    CHECK_EQ(skipped, 1);
    checkpoint_close(&checkpoint);
    dir = open_dir(0, "8", 2, 20, true);
    CHECK(exists(0, "step-00000020.json") && !exists(0, "step-00000010.json"));
    CHECK(exists(0, "earlier-1/step-00000010.json"));
    checkpoint_dir_close(&dir);
}

TEST_MAIN
