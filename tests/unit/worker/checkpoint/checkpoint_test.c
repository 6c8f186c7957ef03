/* Checkpoints: complete or absent, newest first, fenced, and tolerant of a full disk. */
#include "worker/checkpoint/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"

static struct checkpoint_state state_at(uint32_t step)
{
    return (struct checkpoint_state){.job_id = "7",
                                     .generation = 2,
                                     .epoch = 1,
                                     .step_in_epoch = step,
                                     .step = step,
                                     .arch = "convnet",
                                     .data = "digits",
                                     .image_count = 60000,
                                     .data_hash = UINT64_MAX - 1,
                                     .world = 4,
                                     .batch = 100,
                                     .accumulation_steps = 2,
                                     .parts = {{2, 100, 1, 5}, {3, 50, 4, 1}},
                                     .part_count = step > 6 ? 2 : 0,
                                     .seed = UINT64_MAX,
                                     .has_momentum = true,
                                     .opt_level = "O2",
                                     .optimizer = "adamw",
                                     .loss_scale = 0x1.23456p-11F,
                                     .unskipped = 1999,
                                     .skipped_in_a_row = 3};
}

static struct checkpoint_dir *open_keeping(uint32_t generation, int64_t step, uint32_t keep)
{
    struct checkpoint_options options = {
        .path = test_dir(), .job_id = "7", .generation = generation, .keep = keep, .step = step};
    struct checkpoint_dir *dir;
    struct err notice, err;

    if (checkpoint_dir_open(&dir, &options, &notice, &err) != STATUS_OK)
        FAIL("%s", err.text);
    return dir;
}

static struct checkpoint_dir *open_dir(uint32_t generation, int64_t step)
{
    return open_keeping(generation, step, 2);
}

static enum status save(struct checkpoint_dir *dir, uint32_t step, struct err *err)
{
    const float weight[3] = {(float)step, 2, 3};
    const struct safetensors_tensor tensor = {
        .name = "weight", .type = SAFETENSORS_F32, .dims = {3}, .dim_count = 1, .values = weight};
    struct checkpoint_state state = state_at(step);

    return checkpoint_save(dir, &state, &tensor, 1, err);
}

static void count_skipped(void *user, const struct err *why)
{
    CHECK(why->text[0] != '\0');
    ++*(int *)user;
}

/* The step of the newest, after `*skipped` others; -1: none. */
static int64_t newest(int *skipped)
{
    const struct checkpoint_state like = state_at(0);
    const struct checkpoint_choice choice = {
        .like = &like, .skipped = count_skipped, .user = skipped};
    struct checkpoint checkpoint;
    struct err err;
    int64_t step;
    float weight[3];

    *skipped = 0;
    if (checkpoint_open_newest(&checkpoint, test_dir(), &choice, &err) != STATUS_OK)
        return -1;
    step = checkpoint.state.step;
    CHECK_EQ(safetensors_read(&checkpoint.tensors, safetensors_find(&checkpoint.tensors, "weight"),
                              weight, &err),
             STATUS_OK);
    CHECK(weight[0] == (float)step);
    checkpoint_close(&checkpoint);
    return step;
}

static const char *path_of(const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    return path;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK_EQ(fclose(file), 0);
}

static int files_with(const char *part)
{
    DIR *dir = opendir(test_dir());
    const struct dirent *entry;
    int n = 0;

    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL)
        n += strstr(entry->d_name, part) != NULL;
    (void)closedir(dir);
    return n;
}

TEST(state_goes_there_and_back)
{
    struct checkpoint_state state = state_at(12), again;
    const char *sha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    char *text = checkpoint_state_print(&state, 4711, sha), sha_again[65];
    uint64_t bytes;
    struct err err = {0};

    CHECK(text != NULL);
    if (checkpoint_state_parse(&again, &bytes, sha_again, "test", text, strlen(text), &err) !=
        STATUS_OK)
        FAIL("%s", err.text);
    CHECK_STR(again.job_id, "7");
    CHECK_STR(again.arch, "convnet");
    CHECK_EQ(again.seed, UINT64_MAX);
    CHECK_EQ(again.step, 12);
    CHECK_EQ(again.image_count, 60000);
    CHECK_EQ(again.data_hash, UINT64_MAX - 1);
    CHECK(again.has_momentum);
    CHECK_STR(again.opt_level, "O2");
    CHECK_STR(again.optimizer, "adamw");
    CHECK(again.loss_scale == 0x1.23456p-11F);
    CHECK_EQ(again.unskipped, 1999);
    CHECK_EQ(again.skipped_in_a_row, 3);
    CHECK_EQ(again.part_count, 2);
    CHECK_BYTES(again.parts, state.parts, 2 * sizeof state.parts[0]);
    CHECK(!again.is_unchecked);
    CHECK_EQ(bytes, 4711);
    CHECK_STR(sha_again, sha);
    free(text);
}

/* To the last bit, since a tie decides whether training ends early. cJSON prints these with 15 digits, and
 * the checksum is over what it prints, as readers of earlier versions compute it. */
TEST(numbers_of_a_state_are_exact)
{
    struct checkpoint_state state = state_at(12), again;
    const char *sha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    char *text, sha_again[65];
    uint64_t bytes;
    struct err err = {0};

    state.early_best = 100.0 / 11;
    state.schedule.plateau_best = -100.0 / 11;
    state.schedule.plateau_lr = 0.1 * 0.1;
    text = checkpoint_state_print(&state, 4711, sha);
    CHECK(text != NULL);
    if (checkpoint_state_parse(&again, &bytes, sha_again, "test", text, strlen(text), &err) !=
        STATUS_OK)
        FAIL("%s", err.text);
    CHECK(again.early_best == state.early_best);
    CHECK(again.schedule.plateau_best == state.schedule.plateau_best);
    CHECK(again.schedule.plateau_lr == state.schedule.plateau_lr);
    CHECK(!again.is_unchecked);
    free(text);
}

/* Files of the first version have none of the fields that came later. */
TEST(an_older_state_is_read)
{
    const char *text = "{\"schema\":\"ddp.checkpoint.v1\",\"job_id\":\"\",\"generation\":1,"
                       "\"epoch\":0,\"step_in_epoch\":5,\"step\":5,\"arch\":\"convnet\","
                       "\"data\":\"digits\",\"image_count\":100,\"world\":1,\"batch\":10,"
                       "\"seed\":\"0\",\"has_momentum\":true,\"safetensors_bytes\":1,"
                       "\"safetensors_sha256\":\"0123456789abcdef0123456789abcdef"
                       "0123456789abcdef0123456789abcdef\"}";
    struct checkpoint_state state;
    char sha[65];
    uint64_t bytes;
    struct err err = {0};

    if (checkpoint_state_parse(&state, &bytes, sha, "test", text, strlen(text), &err) != STATUS_OK)
        FAIL("%s", err.text);
    CHECK_EQ(state.step, 5);
    CHECK_EQ(state.accumulation_steps, 1);
    CHECK_STR(state.optimizer, "sgd");
    CHECK(state.is_unchecked);
    CHECK_EQ(state.part_count, 0);
    CHECK_STR(state.opt_level, "O0");
    CHECK(state.loss_scale == 1.0F);
}

/* A state without the checksum of itself, as older versions wrote it; owned by the caller. */
static char *unchecked(const struct checkpoint_state *state, const char *sha256)
{
    char *text = checkpoint_state_print(state, 4711, sha256), *sum;

    CHECK(text != NULL);
    sum = strstr(text, ",\n\t\"state_sha256\"");
    CHECK(sum != NULL);
    (void)memcpy(sum, "\n}", 3);
    return text;
}

/* Any other letter anywhere but in white space. */
TEST(a_state_that_was_edited_is_refused)
{
    const struct checkpoint_state state = state_at(12);
    const char *sha = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    char *text = checkpoint_state_print(&state, 4711, sha), sha_again[65];
    struct checkpoint_state again;
    uint64_t bytes;
    struct err err = {0};

    for (size_t i = 0; i < strlen(text); i++) {
        const char was = text[i];

        if (was == '\n' || was == '\t' || was == ' ')
            continue;
        text[i] = was == '1' ? '2' : '1';
        if (checkpoint_state_parse(&again, &bytes, sha_again, "test", text, strlen(text), &err) !=
            STATUS_BAD_INPUT)
            FAIL("taken: %s", text);
        CHECK(strstr(err.text, "test: ") != NULL);
        text[i] = was;
    }
    CHECK_EQ(checkpoint_state_parse(&again, &bytes, sha_again, "test", text, strlen(text), &err),
             STATUS_OK);
    free(text);
}

/* Each replacement of a part of a good state must be refused. */
TEST(bad_states_are_refused)
{
    static const struct {
        const char *from, *to;
    } changes[] = {
        {"ddp.checkpoint.v1", "ddp.checkpoint.v2"},
        {"\"schema\"", "\"Schema\""},
        {"\"step\"", "\"steps\""},
        {"\"step\":\t12", "\"step\":\t-1"},
        {"\"step\":\t12", "\"step\":\t1.5"},
        {"\"step\":\t12", "\"step\":\t\"12\""},
        {"\"step\":\t12", "\"step\":\t100000000"},
        {"\"step\":\t12", "\"step\":\t1e400"},
        {"\"world\":\t4", "\"world\":\t0"},
        {"\"world\":\t4", "\"world\":\t4,\"world\":\t4"},
        {"\"world\":\t4", "\"world\":\t4,\"more\":\t4"},
        {"18446744073709551615", "18446744073709551616"},
        {"18446744073709551615", "-1"},
        {"18446744073709551615", ""},
        {"\"arch\":\t\"convnet\"", "\"arch\":\tnull"},
        {"convnet", "con\\u0000vnet"},
        {"convnet", "con\\nvnet"},
        {"convnet", "convnetconvnetconvnetconvnetconvnetconvnetconvnetconvnetconvnetconvnet"},
        {"true", "1"},
        {"[2, 100, 1, 5]", "[2, 100, 1]"},
        {"[2, 100, 1, 5]", "[2, 100, 1, 50]"},
        {"[2, 100, 1, 5]", "[0, 100, 1, 5]"},
        {"[2, 100, 1, 5]", "[40000, 100, 1, 5]"},
        {"[2, 100, 1, 5]", "7"},
        {"\"loss_scale\":\t", "\"loss_scale\":\t0.0000000000000000000000000000000000000000000000"},
        {"aaaa", "AAAA"},
        {"aaaa", "aaa"},
        {"}", ""},
        {"}", "}}"},
        {"{", "[{"},
    };
    struct checkpoint_state state = state_at(12), again;
    const char *sha = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    char *good = unchecked(&state, sha), sha_again[65], bad[2048];
    uint64_t bytes;

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct err err = {0};
        const char *at = strstr(good, changes[i].from);
        if (at == NULL)
            FAIL("%s is not in %s", changes[i].from, good);
        (void)snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - good), good, changes[i].to,
                       at + strlen(changes[i].from));
        if (checkpoint_state_parse(&again, &bytes, sha_again, "test", bad, strlen(bad), &err) !=
            STATUS_BAD_INPUT)
            FAIL("taken: %s", bad);
        CHECK(strstr(err.text, "test: ") != NULL);
    }
    for (size_t n = 0; n < strlen(good); n++)
        CHECK_EQ(checkpoint_state_parse(&again, &bytes, sha_again, "test", good, n, NULL),
                 STATUS_BAD_INPUT);
    free(good);
}

TEST(newest_two_are_kept)
{
    struct checkpoint_dir *dir = open_dir(2, -1);
    int skipped;

    for (uint32_t step = 100; step <= 500; step += 100)
        CHECK_EQ(save(dir, step, NULL), STATUS_OK);
    CHECK_EQ(files_with("step-"), 4);
    CHECK_EQ(files_with("latest."), 2);
    CHECK_EQ(files_with(".tmp"), 0);
    CHECK_EQ(access(path_of("step-00000500.safetensors"), R_OK), 0);
    CHECK_EQ(newest(&skipped), 500);
    CHECK_EQ(skipped, 0);
    checkpoint_dir_close(&dir);
}

TEST(torn_ones_are_passed_over)
{
    struct checkpoint_dir *dir = open_dir(2, -1);
    char byte = 'x';
    int skipped, fd;

    CHECK_EQ(newest(&skipped), -1); /* empty folder */
    CHECK_EQ(save(dir, 100, NULL), STATUS_OK);
    CHECK_EQ(save(dir, 200, NULL), STATUS_OK);
    CHECK_EQ(truncate(path_of("step-00000200.safetensors"), 100), 0);
    CHECK_EQ(newest(&skipped), 100);
    CHECK_EQ(skipped, 1);
    CHECK_EQ(save(dir, 200, NULL), STATUS_OK); /* made anew */
    CHECK_EQ(newest(&skipped), 200);
    fd = open(path_of("step-00000200.safetensors"), O_RDWR);
    CHECK_EQ(pwrite(fd, &byte, 1, 90), 1); /* the size is right, the sum is not */
    (void)close(fd);
    CHECK_EQ(newest(&skipped), 100);
    CHECK_EQ(truncate(path_of("step-00000200.json"), 20), 0);
    CHECK_EQ(newest(&skipped), 100);
    CHECK_EQ(unlink(path_of("step-00000100.safetensors")), 0);
    CHECK_EQ(newest(&skipped), -1);
    CHECK_EQ(skipped, 2);
    checkpoint_dir_close(&dir);
}

/* Empty files, a folder, weights of another checkpoint, and a state under another checkpoint's
 * name: each is reported, and the checkpoint before it is used. */
TEST(foreign_and_swapped_ones_are_passed_over)
{
    struct checkpoint_dir *dir = open_keeping(2, -1, 100);
    char from[512];
    int skipped;

    for (uint32_t step = 1; step <= 6; step++)
        CHECK_EQ(save(dir, step, NULL), STATUS_OK);
    write_text(path_of("step-00000006.json"), "");
    write_text(path_of("step-00000005.safetensors"), "");
    (void)snprintf(from, sizeof from, "%s", path_of("step-00000002.safetensors"));
    CHECK_EQ(rename(from, path_of("step-00000004.safetensors")), 0);
    CHECK_EQ(unlink(path_of("step-00000003.safetensors")), 0);
    CHECK_EQ(mkdir(path_of("step-00000003.safetensors"), 0700), 0);
    (void)snprintf(from, sizeof from, "%s", path_of("step-00000001.json"));
    CHECK_EQ(link(from, path_of("step-00000007.json")), 0);
    CHECK_EQ(newest(&skipped), 1);
    CHECK_EQ(skipped, 6);
    checkpoint_dir_close(&dir);
}

/* Empty, they are not known to be ours: own_test.c has those that are. */
TEST(leftovers_do_not_stay)
{
    static const char *const leftovers[] = {"step-00000300.safetensors.tmp",
                                            "step-00000300.json.tmp", "step-00000400.safetensors"};
    struct checkpoint_dir *dir = open_dir(2, -1);

    CHECK_EQ(save(dir, 100, NULL), STATUS_OK);
    checkpoint_dir_close(&dir);
    for (size_t i = 0; i < 3; i++)
        CHECK(close(open(path_of(leftovers[i]), O_CREAT | O_WRONLY, 0600)) == 0);
    CHECK(close(open(path_of("step-notes.txt"), O_CREAT | O_WRONLY, 0600)) == 0);
    dir = open_dir(3, 100);
    for (size_t i = 0; i < 3; i++) {
        char aside[64];

        (void)snprintf(aside, sizeof aside, "earlier-1/%s", leftovers[i]);
        CHECK(access(path_of(leftovers[i]), F_OK) != 0 && access(path_of(aside), F_OK) == 0);
    }
    CHECK(access(path_of("step-notes.txt"), F_OK) == 0); /* not ours, not touched */
    CHECK(access(path_of("step-00000100.json"), F_OK) == 0);
    checkpoint_dir_close(&dir);
}

TEST(an_old_generation_is_fenced)
{
    struct checkpoint_dir *old = open_dir(1, -1), *new;
    struct err err = {0};
    int skipped;

    CHECK_EQ(save(old, 100, NULL), STATUS_OK);
    new = open_dir(2, 100);
    CHECK_EQ(save(old, 200, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "taken over by generation 2") != NULL);
    CHECK(strstr(err.text, "this is generation 1") != NULL);
    CHECK_EQ(newest(&skipped), 100);
    CHECK_EQ(files_with(".tmp"), 0);
    CHECK_EQ(save(new, 200, NULL), STATUS_OK);
    CHECK_EQ(newest(&skipped), 200);
    checkpoint_dir_close(&old);
    checkpoint_dir_close(&new);
}

TEST(another_runs_checkpoints_are_set_aside)
{
    struct checkpoint_dir *dir = open_dir(1, -1);
    struct checkpoint_options options = {
        .path = test_dir(), .job_id = "", .generation = 1, .keep = 2, .step = 150};
    struct err notice, err;
    int skipped;

    CHECK_EQ(save(dir, 100, NULL), STATUS_OK);
    CHECK_EQ(save(dir, 200, NULL), STATUS_OK);
    checkpoint_dir_close(&dir);
    CHECK_EQ(checkpoint_dir_open(&dir, &options, &notice, &err), STATUS_OK);
    CHECK(strstr(notice.text, "earlier-1") != NULL);
    CHECK_EQ(newest(&skipped), 100);
    CHECK_EQ(access(path_of("earlier-1/step-00000200.json"), F_OK), 0);
    checkpoint_dir_close(&dir);
    options.step = -1;
    CHECK_EQ(checkpoint_dir_open(&dir, &options, &notice, &err), STATUS_OK);
    CHECK_EQ(newest(&skipped), -1);
    CHECK_EQ(access(path_of("earlier-2/step-00000100.safetensors"), F_OK), 0);
    checkpoint_dir_close(&dir);
}

/* Two live runs in one folder: the second is refused unless it asks to take over. */
TEST(a_living_owner_is_left_in_place)
{
    struct checkpoint_options options = {
        .path = test_dir(), .job_id = "7", .cluster = "c", .generation = 1, .keep = 2, .step = -1};
    struct checkpoint_dir *first, *second;
    struct err notice, err;

    CHECK_EQ(checkpoint_dir_open(&first, &options, &notice, &err), STATUS_OK);
    options.cluster = "d"; /* its server's job 7 is another job */
    CHECK_EQ(checkpoint_dir_open(&second, &options, &notice, &err), STATUS_BUSY);
    CHECK(strstr(err.text, "generation 1 of job 7") != NULL &&
          strstr(err.text, "process ") != NULL);
    options.job_id = options.cluster = ""; /* by hand */
    CHECK_EQ(checkpoint_dir_open(&second, &options, &notice, &err), STATUS_BUSY);
    CHECK_EQ(save(first, 100, NULL), STATUS_OK);
    options.job_id = "7";
    options.cluster = "c";
    options.generation = 2; /* of the same job: the first is a leftover */
    CHECK_EQ(checkpoint_dir_open(&second, &options, &notice, &err), STATUS_OK);
    CHECK_EQ(save(first, 200, &err), STATUS_CONFLICT);
    checkpoint_dir_close(&first);
    options.job_id = "8";
    CHECK_EQ(checkpoint_dir_open(&first, &options, &notice, &err), STATUS_BUSY);
    options.takes_over = true;
    CHECK_EQ(checkpoint_dir_open(&first, &options, &notice, &err), STATUS_OK);
    CHECK_EQ(save(second, 200, &err), STATUS_CONFLICT);
    checkpoint_dir_close(&second);
    checkpoint_dir_close(&first);
    options.takes_over = false;
    options.job_id = "9"; /* no owner is alive any more */
    CHECK_EQ(checkpoint_dir_open(&first, &options, &notice, &err), STATUS_OK);
    checkpoint_dir_close(&first);
}

/* An owner that was killed has left its name and its file. */
/* If the lock or the folder is removed, a second owner can get in: the first must stop writing. */
TEST(an_owner_whose_lock_was_removed_writes_no_more)
{
    struct checkpoint_dir *first = open_dir(1, -1), *second;
    struct err err;

    CHECK_EQ(save(first, 100, NULL), STATUS_OK);
    CHECK_EQ(unlink(path_of(".lock")), 0);
    CHECK_EQ(save(first, 200, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "was removed or replaced") != NULL);
    second = open_dir(1, -1);
    CHECK_EQ(save(second, 300, NULL), STATUS_OK);
    CHECK_EQ(save(first, 400, &err), STATUS_CONFLICT);
    checkpoint_dir_close(&first);
    checkpoint_dir_close(&second);
}

TEST(a_dead_owner_is_replaced)
{
    const char name[] = "generation 1 of job 3 (0123456789abcdef)\njob 3 of x\nprocess 1 on y\n";
    struct checkpoint_dir *dir = open_dir(1, -1);

    checkpoint_dir_close(&dir);
    write_text(path_of(".lock-0123456789abcdef"), "");
    write_text(path_of(".lock"), name);
    dir = open_dir(1, -1);
    CHECK_EQ(access(path_of(".lock-0123456789abcdef"), F_OK), -1);
    CHECK_EQ(save(dir, 100, NULL), STATUS_OK);
    checkpoint_dir_close(&dir);
}

TEST(another_kind_of_run_is_a_conflict)
{
    struct checkpoint_dir *dir = open_dir(1, -1);
    struct checkpoint_state like = state_at(0);
    struct checkpoint checkpoint;
    struct err err = {0};
    int skipped = 0;
    const struct checkpoint_choice choice = {
        .like = &like, .skipped = count_skipped, .user = &skipped};

    CHECK_EQ(save(dir, 100, NULL), STATUS_OK);
    like.seed = 2;
    CHECK_EQ(checkpoint_open_newest(&checkpoint, test_dir(), &choice, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "--seed 18446744073709551615, now it is 2") != NULL);
    CHECK_EQ(skipped, 1);
    like.seed = UINT64_MAX;
    like.data_hash--;
    CHECK_EQ(checkpoint_open_newest(&checkpoint, test_dir(), &choice, &err), STATUS_CONFLICT);
    CHECK(strstr(err.text, "another training set of as many images") != NULL);
    like.data_hash = 0; /* unknown */
    CHECK_EQ(checkpoint_open_newest(&checkpoint, test_dir(), &choice, &err), STATUS_OK);
    checkpoint_close(&checkpoint);
    checkpoint_dir_close(&dir);
}

/* A limit on the size of files stands in for a full disk: write() fails half-way. */
TEST(a_full_disk_keeps_the_old_ones)
{
    struct checkpoint_dir *dir = open_dir(1, -1);
    struct rlimit before, small;
    struct err err = {0};
    int skipped;

    CHECK_EQ(save(dir, 100, NULL), STATUS_OK);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t limit = 0; limit < 600; limit += 60) { /* in the tensors first, then in the state */
        small = before;
        small.rlim_cur = limit;
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
        enum status status = save(dir, 200, &err);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
        if (status == STATUS_OK)
            break;
        CHECK_EQ(status, STATUS_IO);
        CHECK_EQ(files_with(".tmp"), 0);
        CHECK_EQ(files_with("00000200"), 0);
        CHECK_EQ(newest(&skipped), 100);
        CHECK_EQ(skipped, 0);
    }
    CHECK_EQ(save(dir, 200, &err), STATUS_OK);
    CHECK_EQ(newest(&skipped), 200);
    checkpoint_dir_close(&dir);
}

TEST(folders_that_cannot_be_made)
{
    struct checkpoint_options options = {.job_id = "", .generation = 1, .keep = 1};
    struct checkpoint_dir *dir;
    struct err notice, err = {0};
    static char deep[512], long_path[3000];

    (void)snprintf(deep, sizeof deep, "%s/a/b/c", test_dir());
    options.path = deep;
    CHECK_EQ(checkpoint_dir_open(&dir, &options, &notice, &err), STATUS_OK);
    checkpoint_dir_close(&dir);
    options.path = "/proc/version/x";
    CHECK_EQ(checkpoint_dir_open(&dir, &options, &notice, &err), STATUS_IO);
    CHECK(strstr(err.text, "--checkpoint-dir /proc/version/x") != NULL);
    memset(long_path, 'a', sizeof long_path - 1);
    options.path = long_path;
    CHECK_EQ(checkpoint_dir_open(&dir, &options, &notice, &err), STATUS_TOO_BIG);
    options.path = "";
    CHECK_EQ(checkpoint_dir_open(&dir, &options, &notice, &err), STATUS_TOO_BIG);
}

TEST(paths_given_by_hand)
{
    struct checkpoint_dir *dir = open_dir(1, -1);
    struct checkpoint checkpoint;
    struct err err = {0};

    CHECK_EQ(save(dir, 100, NULL), STATUS_OK);
    CHECK_EQ(checkpoint_open(&checkpoint, path_of("step-00000100.safetensors"), &err), STATUS_OK);
    checkpoint_close(&checkpoint);
    CHECK_EQ(checkpoint_open(&checkpoint, path_of("step-00000100.json"), &err), STATUS_OK);
    checkpoint_close(&checkpoint);
    CHECK_EQ(checkpoint_open(&checkpoint, path_of("step-00000101.json"), &err), STATUS_NOT_FOUND);
    CHECK_EQ(checkpoint_open(&checkpoint, path_of("model.pth"), &err), STATUS_BAD_INPUT);
    CHECK_EQ(checkpoint_open(&checkpoint, "nodot", &err), STATUS_BAD_INPUT);
    checkpoint_dir_close(&dir);
}

TEST_MAIN
