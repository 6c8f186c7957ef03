/* best and latest: names for checkpoints of a folder. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/checkpoint/small_state.h"
#include "worker/checkpoint/checkpoint.h"

static void save(struct checkpoint_dir *dir, uint32_t step)
{
    const float weight[1] = {(float)step};
    const struct safetensors_tensor tensor = {
        .name = "weight", .type = SAFETENSORS_F32, .dims = {1}, .dim_count = 1, .values = weight};
    const struct checkpoint_state state = small_state(step);
    struct err err;

    if (checkpoint_save(dir, &state, &tensor, 1, &err) != STATUS_OK)
        FAIL("%s", err.text);
}

static enum status mark(struct checkpoint_dir *dir, uint32_t step, double value)
{
    const struct checkpoint_best best = {.step = step, .metric = "val_acc1", .value = value};

    return checkpoint_best_mark(dir, &best, NULL);
}

/* -1: none */
static int64_t best_step(void)
{
    struct checkpoint_best best;

    return checkpoint_best_read(test_dir(), &best, NULL) == STATUS_OK ? (int64_t)best.step : -1;
}

static const char *path_of(const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    return path;
}

/* The step of the checkpoint that a path names. */
static int64_t opened(const char *name)
{
    struct checkpoint checkpoint = {.tensors.fd = -1};
    struct err err;
    int64_t step;

    if (checkpoint_open(&checkpoint, path_of(name), &err) != STATUS_OK)
        return -1;
    step = checkpoint.state.step;
    checkpoint_close(&checkpoint);
    return step;
}

/* "step-00000002.safetensors" */
static void check_link(const char *name, const char *expected)
{
    char target[128] = "";

    CHECK(readlink(path_of(name), target, sizeof target - 1) > 0);
    CHECK_STR(target, expected);
}

TEST(the_best_outlives_the_newest)
{
    struct checkpoint_dir *dir = small_dir(1, -1);
    struct checkpoint_best best;

    for (uint32_t step = 1; step <= 6; step++) {
        save(dir, step);
        if (step == 2)
            CHECK_EQ(mark(dir, step, 97.5), STATUS_OK);
    }
    CHECK_EQ(checkpoint_best_read(test_dir(), &best, NULL), STATUS_OK);
    CHECK_EQ(best.step, 2);
    CHECK_STR(best.metric, "val_acc1");
    CHECK(best.value == 97.5);
    CHECK_EQ(access(path_of("step-00000002.safetensors"), R_OK), 0);
    CHECK(access(path_of("step-00000003.json"), F_OK) != 0);
    CHECK_EQ(access(path_of("step-00000005.json"), R_OK),
             0); /* --checkpoint-keep does not count it */
    CHECK_EQ(opened("best.json"), 2);
    CHECK_EQ(opened("best.safetensors"), 2);
    CHECK_EQ(opened("latest.json"), 6);
    check_link("best.safetensors", "step-00000002.safetensors");
    check_link("latest.safetensors", "step-00000006.safetensors");
    CHECK_EQ(mark(dir, 6, 98), STATUS_OK);
    save(dir, 7);
    CHECK(access(path_of("step-00000002.json"), F_OK) != 0);
    CHECK_EQ(opened("best.json"), 6);
    checkpoint_dir_close(&dir);
}

/* Else a resume would take an equal validation for a better one. */
TEST(the_value_of_the_best_is_exact)
{
    struct checkpoint_dir *dir = small_dir(1, -1);
    struct checkpoint_best best;

    save(dir, 1);
    CHECK_EQ(mark(dir, 1, 100.0 / 11), STATUS_OK);
    CHECK_EQ(checkpoint_best_read(test_dir(), &best, NULL), STATUS_OK);
    CHECK(best.value == 100.0 / 11);
    checkpoint_dir_close(&dir);
}

TEST(what_is_not_there_is_not_the_best)
{
    struct checkpoint_dir *dir = small_dir(1, -1), *newer;

    CHECK_EQ(best_step(), -1);
    CHECK_EQ(opened("best.json"), -1);
    save(dir, 1);
    CHECK_EQ(mark(dir, 2, 1), STATUS_NOT_FOUND);
    CHECK_EQ(mark(dir, 1, 1), STATUS_OK);
    CHECK_EQ(unlink(path_of("step-00000001.json")), 0);
    CHECK_EQ(best_step(), -1);
    save(dir, 2);
    newer = small_dir(2, 2);
    CHECK_EQ(mark(dir, 2, 2), STATUS_CONFLICT);
    checkpoint_dir_close(&dir);
    checkpoint_dir_close(&newer);
}

/* Checkpoints after the one that training goes on from are another run's, and so is a best among them. */
TEST(a_later_best_is_set_aside)
{
    struct checkpoint_dir *dir = small_dir(1, -1);

    save(dir, 1);
    save(dir, 2);
    CHECK_EQ(mark(dir, 2, 1), STATUS_OK);
    checkpoint_dir_close(&dir);
    dir = small_dir(2, 1);
    CHECK_EQ(best_step(), -1);
    CHECK_EQ(opened("latest.json"), 1);
    CHECK_EQ(opened("earlier-1/best.safetensors"), 2);
    CHECK_EQ(mark(dir, 1, 1), STATUS_OK);
    checkpoint_dir_close(&dir);
    dir = small_dir(3, 1); /* it stays where training goes on from it, or after it */
    CHECK_EQ(best_step(), 1);
    checkpoint_dir_close(&dir);
}

TEST(bad_marks_are_refused)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{\"schema\":\"ddp.mark.v1\"}",
        "{\"schema\":\"ddp.mark.v1\",\"step\":1}",
        "{\"schema\":\"ddp.mark.v1\",\"step\":-1,\"metric\":\"a\",\"value\":1}",
        "{\"schema\":\"ddp.mark.v1\",\"step\":1e9,\"metric\":\"a\",\"value\":1}",
        "{\"schema\":\"ddp.mark.v1\",\"step\":1,\"metric\":\"a\",\"value\":1e999}",
        "{\"schema\":\"ddp.mark.v2\",\"step\":1,\"metric\":\"a\",\"value\":1}",
    };
    struct checkpoint_dir *dir = small_dir(1, -1);

    save(dir, 1);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct checkpoint_best best;
        struct err err = {0};
        FILE *file = fopen(path_of("best.json"), "w");

        CHECK(file != NULL && fputs(texts[i], file) >= 0 && fclose(file) == 0);
        if (checkpoint_best_read(test_dir(), &best, &err) != STATUS_BAD_INPUT)
            FAIL("taken: %s", texts[i]);
        CHECK(strstr(err.text, "best.json") != NULL);
        save(dir, 2 + (uint32_t)i); /* removing old ones copes */
    }
    CHECK(access(path_of("step-00000001.json"), F_OK) == 0); /* it may be the best */
    CHECK(unlink(path_of("best.json")) == 0);
    save(dir, 90);
    CHECK(access(path_of("step-00000001.json"), F_OK) != 0);
    checkpoint_dir_close(&dir);
}

/* Its file is there and cannot be opened (here: a link; else the rights, or the disk): that is no proof
 * that it has ended. */
TEST(an_owner_of_whom_nothing_is_known_stays)
{
    const char name[] = "generation 1 of job 3 (0123456789abcdef)\njob 3 of x\nprocess 1 on y\n";
    const struct checkpoint_options options = {
        .path = test_dir(), .job_id = "7", .generation = 1, .keep = 2, .step = -1};
    struct checkpoint_dir *dir = small_dir(1, -1);
    struct err notice = {0}, err = {0};
    FILE *file;

    checkpoint_dir_close(&dir);
    CHECK(symlink("nowhere", path_of(".lock-0123456789abcdef")) == 0);
    file = fopen(path_of(".lock"), "w");
    CHECK(file != NULL && fputs(name, file) >= 0 && fclose(file) == 0);
    CHECK_EQ(checkpoint_dir_open(&dir, &options, &notice, &err), STATUS_BUSY);
    CHECK(unlink(path_of(".lock-0123456789abcdef")) == 0);
    dir = small_dir(1, -1);
    checkpoint_dir_close(&dir);
}

/* Whoever may write in the folder could put it there. */
TEST(a_link_in_place_of_a_temporary_mark_is_not_followed)
{
    struct checkpoint_dir *dir = small_dir(1, -1);
    char text[16] = "";
    FILE *file = fopen(path_of("theirs"), "w");

    CHECK(file != NULL && fputs("theirs", file) >= 0 && fclose(file) == 0);
    CHECK(symlink("theirs", path_of("latest.json.tmp")) == 0);
    save(dir, 1);
    file = fopen(path_of("theirs"), "r");
    CHECK(file != NULL && fgets(text, sizeof text, file) != NULL && fclose(file) == 0);
    CHECK_STR(text, "theirs");
    CHECK_EQ(opened("latest.json"), 1);
    checkpoint_dir_close(&dir);
}

TEST_MAIN
