/* Stop, crash and go on: the final files must be those of an undisturbed run, to the bit. On a
 * small set of drawn digits with a last incomplete batch, so that an epoch is 16 steps alone and 8
 * with two ranks. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/numerics/data/gang.h"
#include "worker/data/digits.h"

#define OPTIONS                                                                                    \
    "-b 64 --lr 0.05 --momentum 0.9 --nesterov --wd 1e-4 --seed 5 -p 1 --checkpoint-keep 100"

static void put_u32(FILE *file, uint32_t value)
{
    const uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                              (uint8_t)value};
    CHECK_EQ(fwrite(bytes, 1, 4, file), 4);
}

static FILE *begin_file(const char *prefix, const char *kind)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/data/%s-%s-ubyte", test_dir(), prefix, kind);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    return file;
}

static void write_set(const char *prefix, uint64_t seed, uint32_t count)
{
    static const struct dataset_shape shape = {1, 28, 28, 10};
    FILE *images = begin_file(prefix, "images-idx3"), *labels = begin_file(prefix, "labels-idx1");

    put_u32(images, 0x803);
    put_u32(images, count);
    put_u32(images, 28);
    put_u32(images, 28);
    put_u32(labels, 0x801);
    put_u32(labels, count);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t pixels[784];
        uint16_t label;
        digits_draw(seed, i, &shape, pixels, &label);
        CHECK_EQ(fwrite(pixels, 1, sizeof pixels, images), sizeof pixels);
        CHECK_EQ(fputc(label, labels), label);
    }
    CHECK_EQ(fclose(images), 0);
    CHECK_EQ(fclose(labels), 0);
}

static void write_data(void)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/data", test_dir());
    CHECK_EQ(mkdir(path, 0700), 0);
    write_set("train", 1, 1000);
    write_set("t10k", 2, 101);
}

/* Options, then "--checkpoint-dir TEST/name", extra words and the data. */
static const char *arguments(const char *name, const char *extra)
{
    static char args[2048];

    (void)snprintf(args, sizeof args, OPTIONS " --checkpoint-dir %s/%s %s %s/data", test_dir(),
                   name, extra, test_dir());
    return args;
}

TEST(stopped_and_resumed_is_bit_identical)
{
    static const char *const cuts[] = {"1", "7", "16", "17", "31"};

    write_data();
    CHECK_EQ(gang_run(1, arguments("whole", "--epochs 3 --max-steps 40 --checkpoint-every 40")), 0);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        char name[32], extra[128];
        (void)snprintf(name, sizeof name, "cut-%s", cuts[i]);
        (void)snprintf(extra, sizeof extra, "--epochs 3 --max-steps %s -j 0", cuts[i]);
        CHECK_EQ(gang_run(1, arguments(name, extra)), 0);
        CHECK_EQ(gang_run(1, arguments(name, "--epochs 3 --max-steps 40 --resume auto")), 0);
        CHECK(strstr(gang_output(), "resumed at step") != NULL);
        gang_check_same("whole", name, 40);
    }
}

TEST(schedules_resume_bit_identical)
{
    static const char *const schedules[] = {
        "--lr-schedule onecycle",
        "--lr-schedule cosine --warmup-epochs 1 --min-lr 1e-4",
        "--lr-schedule plateau --plateau-patience 0 --plateau-metric val_acc1 --lr-gamma 0.5",
        "--lr-schedule step --lr-step-epochs 1",
    };
    static const char *const cuts[] = {"7", "16", "33"}; /* inside, at the end of an epoch, later */

    write_data();
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        char whole[32], extra[256];
        (void)snprintf(whole, sizeof whole, "rate-%zu", i);
        (void)snprintf(extra, sizeof extra, "--epochs 3 %s", schedules[i]);
        CHECK_EQ(gang_run(1, arguments(whole, extra)), 0);
        for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
            char name[32];
            (void)snprintf(name, sizeof name, "rate-%zu-%s", i, cuts[k]);
            (void)snprintf(extra, sizeof extra, "--epochs 3 --max-steps %s %s", cuts[k],
                           schedules[i]);
            CHECK_EQ(gang_run(1, arguments(name, extra)), 0);
            (void)snprintf(extra, sizeof extra, "--epochs 3 --resume auto %s", schedules[i]);
            CHECK_EQ(gang_run(1, arguments(name, extra)), 0);
            gang_check_same(whole, name, 48);
        }
    }
}

TEST(early_stopping_ends_training_also_after_a_resume)
{
    static const char *const stop =
        "--epochs 9 --lr-schedule plateau --lr-gamma 0.1 --plateau-patience 0 "
        "--early-stop val_acc1 --early-stop-patience 2 --early-stop-delta 1000";
    char extra[256];

    write_data();
    CHECK_EQ(gang_run(1, arguments("early", stop)), 0);
    CHECK(strstr(gang_output(), "Early stopping: val_acc1 has not improved for 2 epochs") != NULL);
    CHECK(strstr(gang_output(), "Epoch [3/9], Step [16/16]") != NULL);
    CHECK(strstr(gang_output(), "Epoch [4/9]") == NULL);
    (void)snprintf(extra, sizeof extra, "%s --max-steps 20", stop);
    CHECK_EQ(gang_run(1, arguments("early-cut", extra)), 0);
    (void)snprintf(extra, sizeof extra, "%s --resume auto", stop);
    CHECK_EQ(gang_run(1, arguments("early-cut", extra)), 0);
    CHECK(strstr(gang_output(), "Epoch [4/9]") == NULL);
    gang_check_same("early", "early-cut", 48);
}

/* Two ranks, 8 steps an epoch; the cut lies inside an epoch and between two turns of Lookahead. */
static void check_optimizer(size_t index, const char *level, const char *optimizer)
{
    char whole[32], cut[32], extra[256], args[2048];

    (void)snprintf(whole, sizeof whole, "optim-%zu-%s", index, level);
    (void)snprintf(cut, sizeof cut, "optim-cut-%zu-%s", index, level);
    for (int part = 0; part < 3; part++) {
        (void)snprintf(extra, sizeof extra, "--epochs 3 --opt-level %s %s%s", level, optimizer,
                       part == 1   ? " --max-steps 11"
                       : part == 2 ? " --resume auto"
                                   : "");
        (void)snprintf(args, sizeof args,
                       "-b 64 --lr 0.01 --wd 1e-2 --seed 5 -p 1 --checkpoint-dir %s/%s %s %s/data",
                       test_dir(), part == 0 ? whole : cut, extra, test_dir());
        if (gang_run(2, args) != 0)
            FAIL("%s\n%s", args, gang_output());
    }
    CHECK(strstr(gang_output(), "resumed at step 11") != NULL);
    gang_check_same(whole, cut, 24);
}

TEST(every_optimizer_resumes_bit_identical)
{
    static const char *const optimizers[] = {
        "--optimizer adam",
        "--optimizer adamw --betas 0.8,0.95 --lookahead 4,0.8 --lookahead-variant seed",
        "--optimizer lars --momentum 0.9",
        "--optimizer larc --momentum 0.9 --nesterov",
        "--momentum 0.9 --lookahead 5",
        "--optimizer adamw --lr-schedule onecycle",
    };

    write_data();
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++) {
        check_optimizer(i, "O0", optimizers[i]);
        check_optimizer(i, "O2", optimizers[i]);
    }
}

TEST(another_optimizer_is_refused)
{
    write_data();
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 1 --lookahead 5")), 0);
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 2 --resume auto")), 1);
    CHECK(strstr(gang_output(), "--optimizer sgd + lookahead (paper), now it is sgd") != NULL);
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 2 --resume auto --optimizer larc")), 1);
    CHECK(strstr(gang_output(), "now it is larc") != NULL);
}

/* 1000 images are 16 batches of 64, the last with 40; by 3 they make 6 steps, the last of 1 batch.
 */
#define GROUPS                                                                                     \
    "--epochs 3 --accumulation-steps 3 --clip-grad-norm 0.5 --label-smoothing 0.1 "                \
    "--predivide-factor 2 "

TEST(accumulation_resumes_bit_identical)
{
    write_data();
    CHECK_EQ(gang_run(1, arguments("whole", GROUPS)), 0);
    CHECK(strstr(gang_output(), "Epoch [3/3], Step [6/6]") != NULL);
    CHECK_EQ(gang_run(1, arguments("cut", GROUPS "--max-steps 8")), 0);
    CHECK_EQ(gang_run(1, arguments("cut", "--epochs 3 --resume auto")), 1);
    CHECK(strstr(gang_output(), "--accumulation-steps 3, now it is 1") != NULL);
    CHECK_EQ(gang_run(1, arguments("cut", GROUPS "--resume auto")), 0);
    gang_check_same("whole", "cut", 18);
}

/* 500 images a rank: 8 batches, 3 steps. */
TEST(accumulation_on_two_ranks_resumes_bit_identical)
{
    write_data();
    CHECK_EQ(gang_run(2, arguments("whole", GROUPS)), 0);
    CHECK_EQ(gang_run(2, arguments("cut", GROUPS "--max-steps 4")), 0);
    CHECK_EQ(gang_run(2, arguments("cut", GROUPS "--resume auto")), 0);
    gang_check_same("whole", "cut", 9);
}

TEST(two_ranks_resume_bit_identical)
{
    write_data();
    CHECK_EQ(gang_run(2, arguments("whole", "--epochs 3")), 0);
    CHECK_EQ(gang_run(2, arguments("cut", "--epochs 3 --max-steps 11")), 0);
    CHECK_EQ(gang_run(2, arguments("cut", "--epochs 3 --resume auto")), 0);
    CHECK(strstr(gang_output(), "resumed at step 11") != NULL);
    gang_check_same("whole", "cut", 24);
}

/* The second generation goes on by itself. */
TEST(killed_and_restarted_is_bit_identical)
{
    struct gang gang;

    write_data();
    CHECK_EQ(gang_run(2, arguments("whole", "--epochs 20")), 0);
    gang_start(&gang, 2, true, 1, arguments("cut", "--epochs 20 --checkpoint-every 5"));
    CHECK(gang_meet(&gang));
    CHECK(gang_wait_line(&gang, "Epoch [3/20], Step [4/8]"));
    CHECK_EQ(kill(gang.pids[1], SIGKILL), 0);
    CHECK(gang_finish(&gang) == 1); /* rank 0 says who is gone */
    CHECK(strstr(gang_output(), "ddp-worker: ") != NULL && strstr(gang_output(), "rank 1") != NULL);
    CHECK(strstr(gang.error, "rank 1") != NULL);
    gang_start(&gang, 2, true, 2, arguments("cut", "--epochs 20 --checkpoint-every 5"));
    CHECK(gang_meet(&gang));
    CHECK_EQ(gang_finish(&gang), 0);
    CHECK(strstr(gang_output(), "resumed at step") != NULL);
    CHECK_EQ(gang.progress_step, 160);
    gang_check_same("whole", "cut", 160);
}

TEST(sigterm_saves_and_ends)
{
    struct gang gang;

    write_data();
    CHECK_EQ(gang_run(1, arguments("whole", "--epochs 40")), 0);
    gang_start(&gang, 1, false, 1, arguments("cut", "--epochs 40"));
    CHECK(gang_wait_line(&gang, "Epoch [2/40], Step [5/16]"));
    CHECK_EQ(kill(gang.pids[0], SIGTERM), 0);
    CHECK_EQ(gang_finish(&gang), 128 + SIGTERM);
    CHECK_EQ(gang_run(1, arguments("cut", "--epochs 40 --resume auto")), 0);
    CHECK(strstr(gang_output(), "resumed at step") != NULL);
    gang_check_same("whole", "cut", 640);
}

/* The other rank is told first, as it happens: rank 0 still finishes a step and saves. */
TEST(sigterm_ends_two_ranks)
{
    struct gang gang;

    write_data();
    CHECK_EQ(gang_run(2, arguments("whole", "--epochs 40")), 0);
    gang_start(&gang, 2, true, 1, arguments("cut", "--epochs 40"));
    CHECK(gang_meet(&gang));
    CHECK(gang_wait_line(&gang, "Epoch [2/40], Step [3/8]"));
    CHECK_EQ(kill(gang.pids[1], SIGTERM), 0);
    CHECK(gang_wait_line(&gang, "Epoch [3/40], Step [3/8]"));
    CHECK_EQ(kill(gang.pids[0], SIGTERM), 0);
    CHECK_EQ(gang_finish(&gang), 128 + SIGTERM);
    CHECK_STR(gang.error, "");
    CHECK_EQ(gang_run(2, arguments("cut", "--epochs 40 --resume auto")), 0);
    gang_check_same("whole", "cut", 320);
}

TEST(the_loader_changes_nothing)
{
    write_data();
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 1 -j 0")), 0);
    CHECK_EQ(gang_run(1, arguments("b", "--epochs 1 -j 4")), 0);
    gang_check_same("a", "b", 16);
}

TEST(evaluation_needs_the_file_alone)
{
    char args[1024], accuracy[64];
    const char *at;

    write_data();
    CHECK_EQ(gang_run(2, arguments("a", "--epochs 2")), 0);
    at = strstr(gang_output(), "Val: "); /* of epoch 1 */
    at = strstr(at + 1, "Val: ");
    CHECK(at != NULL);
    (void)snprintf(accuracy, sizeof accuracy, "%.*s", (int)strcspn(at, "\n"), at);
    (void)snprintf(args, sizeof args, "-e --resume %s/a/step-00000016.safetensors %s/data",
                   test_dir(), test_dir());
    CHECK_EQ(gang_run(1, args), 0);
    if (strstr(gang_output(), accuracy) == NULL)
        FAIL("expected %s, got %s", accuracy, gang_output());
}

TEST(a_torn_checkpoint_costs_only_itself)
{
    char path[512];

    write_data();
    CHECK_EQ(gang_run(1, arguments("whole", "--epochs 2")), 0);
    CHECK_EQ(gang_run(1, arguments("cut", "--epochs 2 --max-steps 20 --checkpoint-every 9")), 0);
    (void)snprintf(path, sizeof path, "%s/cut/step-00000020.safetensors", test_dir());
    CHECK_EQ(truncate(path, 5000), 0);
    CHECK_EQ(gang_run(1, arguments("cut", "--epochs 2 --resume auto")), 0);
    CHECK(strstr(gang_output(), "step-00000020.safetensors: torn") != NULL);
    CHECK(strstr(gang_output(), "resumed at step 18") != NULL);
    gang_check_same("whole", "cut", 32);
}

/* Exit codes and words of what cannot be done. */
TEST(refusals)
{
    static const struct {
        const char *args;
        int code;
        const char *word;
    } cases[] = {
        {"--lrr 3", 2, "did you mean --lr?"},
        {"--epochs 0", 2, "--epochs: 0 is not in 1.."},
        {"--epochs", 2, "--epochs needs a value"},
        {"--lr nan", 2, "--lr: \"nan\""},
        {"--opt-level 02", 2, "the prefix O is the letter O"},
        {"--opt-level O3 --init-loss-scale 8", 2, "needs --loss-scale dynamic"},
        {"--device tpu", 2, "expected auto, cpu, cuda or cuda:N"},
        {"--nesterov", 2, "--nesterov requires"},
        {"--resume auto", 2, "needs --checkpoint-dir"},
        {"a b", 2, "one DATA folder"},
        {"-a resnet5", 1, "resnet5"},
        {"/nonexistent", 1, "neither train-images-idx3-ubyte"},
        {"--resume /nonexistent/step-00000001.json", 1, "/nonexistent/step-00000001.json"},
        {"--checkpoint-dir /proc/nothing", 1, "--checkpoint-dir /proc/nothing"},
        {"--epochs 1000000", 1, "600000000 steps, at most 99999999 can be counted"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gang gang;
        char args[512];

        (void)snprintf(args, sizeof args, "--device cpu %s", cases[i].args); /* no word on GPUs */
        gang_start(&gang, 1, false, 1, args);
        int code = gang_finish(&gang);
        if (code != cases[i].code || strstr(gang_output(), cases[i].word) == NULL)
            FAIL("%s: expected exit %d and \"%s\", got %d: %s", cases[i].args, cases[i].code,
                 cases[i].word, code, gang_output());
        CHECK(strncmp(gang_output(), "ddp-worker: ", 12) == 0);
    }
}

/* Not cut: the log would be another file. */
TEST(a_loss_log_with_too_long_a_path_is_refused)
{
    char args[1200];

    (void)snprintf(args, sizeof args, "--max-steps 1 --loss-log %01030d", 0);
    CHECK_EQ(gang_run(1, args), 1);
    CHECK(strstr(gang_output(), "...: the path is over 1023 bytes") != NULL);
}

static void change_file(const char *path, const char *from, const char *to)
{
    char text[4096], *at;
    FILE *file = fopen(path, "r+");
    size_t n;

    CHECK(file != NULL);
    n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    at = strstr(text, from);
    CHECK(at != NULL);
    rewind(file);
    CHECK(fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    CHECK_EQ(fclose(file), 0);
}

/* A place that training cannot have been at. */
TEST(a_changed_state_is_refused)
{
    char path[512];

    write_data();
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 2 --max-steps 5")), 0);
    (void)snprintf(path, sizeof path, "%s/a/step-00000005.json", test_dir());
    change_file(path, "\"step\":\t5", "\"step\":\t99999999");
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 2 --resume auto")), 1);
    CHECK(strstr(gang_output(), "step 99999999 in all cannot be step 5 of epoch 1") != NULL);
}

TEST(another_world_is_refused)
{
    write_data();
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 1")), 0);
    CHECK_EQ(gang_run(2, arguments("a", "--epochs 1 --resume auto")), 1);
    CHECK(strstr(gang_output(), "a world of 1, now it is 2") != NULL);
}

/* The shim hangs up before the world is there: the gang is being stopped, nothing to say. */
TEST(a_hung_up_shim_ends_the_worker)
{
    struct gang gang;

    gang_start(&gang, 2, true, 1, "--dummy --device cpu");
    for (int i = 0; i < 2; i++)
        CHECK_EQ(close(gang.fds[i]), 0);
    gang.has_shim = false;
    gang.fds[0] = gang.fds[1] = -1;
    CHECK_EQ(gang_finish(&gang), 1);
    CHECK_STR(gang_output(), "");
}

TEST_MAIN
