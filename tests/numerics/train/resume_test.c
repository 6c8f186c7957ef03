/* Training that is stopped or crashes and is then resumed ends with the same checkpoint, to the
 * bit, as a run without interruption. The set is small and its last batch incomplete: an epoch has
 * 16 steps with one rank and 8 with two. */
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/numerics/train/gang.h"
#include "tests/numerics/train/small_data.h"

#define OPTIONS                                                                                    \
    "-b 16 --lr 0.05 --momentum 0.9 --nesterov --wd 1e-4 --seed 5 -p 1 --checkpoint-keep 100"

/* 16 batches of 16, the last with 10 images. */
static void write_data(void)
{
    small_data_digits(250, 25);
}

/* OPTIONS, then "--checkpoint-dir TEST/name", `extra` and the data. */
static const char *arguments(const char *name, const char *extra)
{
    static char args[2048];

    (void)snprintf(args, sizeof args, OPTIONS " --checkpoint-dir %s/%s %s %s/data", test_dir(),
                   name, extra, test_dir());
    return args;
}

/* Trains on `rank_count` ranks as arguments() does, with interruptions at `cuts`. */
static void check_resume(const char *name, uint32_t rank_count, const char *extra,
                         const uint32_t *cuts, size_t cut_count, uint32_t end_step)
{
    char args[2048];
    struct gang_resume resume = {
        .name = name, .world = rank_count, .args = args, .end_args = "", .end_step = end_step};

    (void)snprintf(args, sizeof args, OPTIONS " %s %s/data", extra, test_dir());
    CHECK(cut_count <= sizeof resume.cuts / sizeof resume.cuts[0]);
    memcpy(resume.cuts, cuts, cut_count * sizeof *cuts);
    gang_check_resume(&resume);
}

/* The cuts are after the first step, inside an epoch, at its end, after the first step of the next
 * and before the last. */
TEST(stopped_and_resumed_is_bit_identical)
{
    static const uint32_t cuts[] = {1, 7, 16, 17, 47};

    write_data();
    check_resume("sgd", 1, "--epochs 3", cuts, 5, 48);
}

TEST(schedules_resume_bit_identical)
{
    static const char *const schedules[] = {
        "--epochs 3 --lr-schedule onecycle",
        "--epochs 3 --lr-schedule cosine --warmup-epochs 1 --min-lr 1e-4",
        ("--epochs 3 --lr-schedule plateau --plateau-patience 0 --plateau-metric val_acc1 "
         "--lr-gamma 0.5"),
        "--epochs 3 --lr-schedule step --lr-step-epochs 1",
    };
    static const uint32_t cuts[] = {7, 16, 33};

    write_data();
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "rate-%zu", i);
        check_resume(name, 1, schedules[i], cuts, 3, 48);
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
    (void)snprintf(extra, sizeof extra, "%s --max-steps 40", stop); /* no improvement once */
    CHECK_EQ(gang_run(1, arguments("early-cut", extra)), 0);
    (void)snprintf(extra, sizeof extra, "%s --resume auto", stop);
    CHECK_EQ(gang_run(1, arguments("early-cut", extra)), 0);
    CHECK(strstr(gang_output(), "Epoch [4/9]") == NULL);
    gang_check_same("early", "early-cut", 48);
}

/* Two ranks, 8 steps an epoch; the cut lies inside an epoch and between two turns of Lookahead. Of
 * each optimizer's state one run keeps fp32 parameters (O0) and one fp16 parameters with fp32
 * masters (O2). */
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
    static const char *const levels[] = {"O0", "O2"};
    static const uint32_t cut = 11;

    write_data();
    for (size_t i = 0; i < 2 * sizeof optimizers / sizeof optimizers[0]; i++) {
        char name[32], args[1024];

        (void)snprintf(name, sizeof name, "optim-%zu", i);
        (void)snprintf(
            args, sizeof args,
            "-b 16 --lr 0.01 --wd 1e-2 --seed 5 -p 1 --epochs 2 --opt-level %s %s %s/data",
            levels[i % 2], optimizers[i / 2], test_dir());
        gang_check_resume(&(struct gang_resume){
            .name = name, .world = 2, .args = args, .end_args = "", .cuts = {cut}, .end_step = 16});
    }
}

/* Masters, momentum, loss scale, half types. O0 and O2 in fp16 are above. */
TEST(every_level_resumes_bit_identical)
{
    static const char *const levels[] = {"O1", "O1 --low-type bf16", "O2 --low-type bf16", "O3",
                                         "O3 --low-type bf16"};

    write_data();
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        char name[32], args[1024];

        (void)snprintf(name, sizeof name, "level-%zu", i);
        (void)snprintf(args, sizeof args,
                       "-b 32 --lr 0.01 --momentum 0.9 --wd 1e-2 --seed 5 -p 1 --epochs 1 "
                       "--lookahead 3 --opt-level %s %s/data",
                       levels[i], test_dir());
        gang_check_resume(&(struct gang_resume){
            .name = name, .world = 1, .args = args, .end_args = "", .cuts = {5}, .end_step = 8});
    }
}

TEST(another_optimizer_is_refused)
{
    const char *at;
    char log[1024];

    write_data();
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 1 --lookahead 5")), 0);
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 2 --resume auto")), 1);
    CHECK(strstr(gang_output(), "--optimizer sgd + lookahead (paper), now it is sgd") != NULL);
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 2 --resume auto --optimizer larc")), 1);
    at = strstr(gang_output(),
                "now it is larc"); /* as the error, and not as a warning before it too */
    CHECK(at != NULL && strstr(at + 1, "now it is larc") == NULL);
    (void)snprintf(log, sizeof log, "-b 16 --max-steps 1 --loss-log %s/losses.txt", test_dir());
    CHECK_EQ(gang_run(2, log), 1);
    CHECK(strstr(gang_output(), "another rank writes into this file: put %r") != NULL);
}

/* By 3 the 16 batches make 6 steps, the last of 1 batch. */
#define GROUPS                                                                                     \
    "--epochs 3 --accumulation-steps 3 --clip-grad-norm 0.5 --label-smoothing 0.1 "                \
    "--predivide-factor 2 "

TEST(accumulation_resumes_bit_identical)
{
    static const uint32_t cut = 8;

    write_data();
    check_resume("groups", 1, GROUPS, &cut, 1, 18);
    CHECK(strstr(gang_output(), "Epoch [3/3], Step [6/6]") != NULL);
}

/* 125 images a rank: 8 batches, 3 steps. */
TEST(accumulation_on_two_ranks_resumes_bit_identical)
{
    static const uint32_t cut = 4;

    write_data();
    check_resume("groups", 2, GROUPS, &cut, 1, 9);
}

TEST(two_ranks_resume_bit_identical)
{
    static const uint32_t cut = 11;

    write_data();
    check_resume("pair", 2, "--epochs 3", &cut, 1, 24);
}

/* The step of the newest checkpoint in the folder `name` of test_dir(). */
static uint32_t newest_step(const char *name)
{
    char pattern[512];
    unsigned long step;
    glob_t found;

    (void)snprintf(pattern, sizeof pattern, "%s/%s/step-*.safetensors", test_dir(), name);
    CHECK_EQ(glob(pattern, 0, NULL, &found), 0); /* sorted by name */
    step = strtoul(strrchr(found.gl_pathv[found.gl_pathc - 1], '/') + strlen("/step-"), NULL, 10);
    globfree(&found);
    return (uint32_t)step;
}

/* Far more epochs than a test has time for: a signal always finds the ranks in training, however
 * late it comes. */
#define ENDLESS "--epochs 10000 "

/* Resumes the folder "cut" for some more steps; a run without interruption ends the same. */
static void check_goes_on(uint32_t rank_count)
{
    const uint32_t end_step = newest_step("cut") + 9;
    char extra[128];

    (void)snprintf(extra, sizeof extra, ENDLESS "--resume auto --max-steps %u", end_step);
    CHECK_EQ(gang_run(rank_count, arguments("cut", extra)), 0);
    CHECK(strstr(gang_output(), "resumed at step") != NULL);
    CHECK_EQ(gang_run(rank_count, arguments("whole", extra)), 0);
    gang_check_same("whole", "cut", end_step);
}

/* The second generation resumes without --resume. */
TEST(killed_and_restarted_is_bit_identical)
{
    struct gang gang;
    uint32_t end_step;
    char extra[128];

    write_data();
    gang_start(&gang, 2, true, 1, arguments("cut", ENDLESS "--checkpoint-every 5"));
    CHECK(gang_meet(&gang));
    CHECK(gang_wait_line(&gang, "Epoch [3/10000], Step [4/8]"));
    CHECK_EQ(kill(gang.pids[1], SIGKILL), 0);
    CHECK(gang_finish(&gang) == 1); /* rank 0 names the lost rank */
    CHECK(strstr(gang_output(), "ddp-worker: ") != NULL && strstr(gang_output(), "rank 1") != NULL);
    CHECK(strstr(gang.error, "rank 1") != NULL);
    end_step = newest_step("cut") + 9;
    (void)snprintf(extra, sizeof extra, ENDLESS "--checkpoint-every 5 --max-steps %u", end_step);
    gang_start(&gang, 2, true, 2, arguments("cut", extra));
    CHECK(gang_meet(&gang));
    CHECK_EQ(gang_finish(&gang), 0);
    CHECK(strstr(gang_output(), "resumed at step") != NULL);
    CHECK_EQ(gang.progress_step, end_step);
    CHECK_EQ(gang_run(2, arguments("whole", extra)), 0);
    gang_check_same("whole", "cut", end_step);
}

TEST(sigterm_saves_and_ends)
{
    struct gang gang;

    write_data();
    gang_start(&gang, 1, false, 1, arguments("cut", ENDLESS));
    CHECK(gang_wait_line(&gang, "Epoch [2/10000], Step [5/16]"));
    CHECK_EQ(kill(gang.pids[0], SIGTERM), 0);
    CHECK_EQ(gang_finish(&gang), 128 + SIGTERM);
    check_goes_on(1);
}

/* The other rank gets the signal first. Rank 0 still finishes a step and saves. */
TEST(sigterm_ends_two_ranks)
{
    struct gang gang;

    write_data();
    gang_start(&gang, 2, true, 1, arguments("cut", ENDLESS));
    CHECK(gang_meet(&gang));
    CHECK(gang_wait_line(&gang, "Epoch [2/10000], Step [3/8]"));
    CHECK_EQ(kill(gang.pids[1], SIGTERM), 0);
    CHECK(gang_wait_line(&gang, "Epoch [3/10000], Step [3/8]"));
    CHECK_EQ(kill(gang.pids[0], SIGTERM), 0);
    CHECK_EQ(gang_finish(&gang), 128 + SIGTERM);
    CHECK_STR(gang.error, "");
    check_goes_on(2);
}

TEST(the_loader_changes_nothing)
{
    write_data();
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 1 -j 0")), 0);
    CHECK_EQ(gang_run(1, arguments("b", "--epochs 1 -j 4")), 0);
    gang_check_same("a", "b", 16);
}

/* Without --resume the newest of --checkpoint-dir is validated; random weights are named. */
TEST(evaluation_needs_the_file_alone)
{
    static const char *const ways[] = {"--resume", "/a/step-00000016.safetensors",
                                       "--checkpoint-dir", "/a"};
    char args[1024], accuracy[64];
    const char *at;

    write_data();
    CHECK_EQ(gang_run(2, arguments("a", "--epochs 2")), 0);
    at = strstr(gang_output(), "Val: "); /* of epoch 1 */
    at = strstr(at + 1, "Val: ");
    CHECK(at != NULL);
    (void)snprintf(accuracy, sizeof accuracy, "%.*s", (int)strcspn(at, "\n"), at);
    for (int i = 0; i < 4; i += 2) {
        (void)snprintf(args, sizeof args, "-e %s %s%s %s/data", ways[i], test_dir(), ways[i + 1],
                       test_dir());
        CHECK_EQ(gang_run(1, args), 0);
        if (strstr(gang_output(), accuracy) == NULL)
            FAIL("%s: expected %s, got %s", args, accuracy, gang_output());
    }
    (void)snprintf(args, sizeof args, "-e %s/data", test_dir());
    CHECK_EQ(gang_run(1, args), 0);
    CHECK(strstr(gang_output(), "so random ones are validated") != NULL);
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

static void spoil(const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/all/%s", test_dir(), name);
    CHECK_EQ(truncate(path, 5000), 0);
}

/* Nobody loses a night's work to a start from nothing that was not asked for. */
TEST(when_all_are_damaged_training_does_not_start_over)
{
    write_data();
    CHECK_EQ(gang_run(1, arguments("all", "--epochs 2 --max-steps 10 --checkpoint-every 5")), 0);
    spoil("step-00000005.safetensors");
    spoil("step-00000010.safetensors");
    CHECK_EQ(gang_run(1, arguments("all", "--epochs 2 --resume auto")), 1);
    CHECK(strstr(gang_output(), "step-00000010.safetensors: torn") != NULL);
    CHECK(strstr(gang_output(), "--from-start-if-damaged starts over") != NULL);
    CHECK_EQ(gang_run(1, arguments("all", "--epochs 1 --resume auto --from-start-if-damaged")), 0);
    CHECK(strstr(gang_output(), "moved to") != NULL);
}

/* Exit codes and messages of options that are refused. */
TEST(refusals)
{
    static const struct {
        const char *args;
        int code;
        const char *text;
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
        {"/nonexistent", 1, "there is no folder /nonexistent"},
        {"--resume /nonexistent/step-00000001.json", 1, "/nonexistent/step-00000001.json"},
        {"--checkpoint-dir /proc/nothing", 1, "--checkpoint-dir /proc/nothing"},
        {"--epochs 1000000", 1, "600000000 steps, at most 99999999 can be counted"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gang gang;
        char args[512];

        (void)snprintf(args, sizeof args, "--device cpu %s",
                       cases[i].args); /* no message about GPUs */
        gang_start(&gang, 1, false, 1, args);
        int code = gang_finish(&gang);
        if (code != cases[i].code || strstr(gang_output(), cases[i].text) == NULL)
            FAIL("%s: expected exit %d and \"%s\", got %d: %s", cases[i].args, cases[i].code,
                 cases[i].text, code, gang_output());
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
    FILE *file = fopen(path, "r");
    size_t n;

    CHECK(file != NULL);
    n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    at = strstr(text, from);
    CHECK(at != NULL);
    file = freopen(path, "w", file);
    CHECK(file != NULL);
    CHECK(fprintf(file, "%.*s%s%s", (int)(at - text), text, to,
                  *to == '}' ? "" : at + strlen(from)) > 0); /* "}": the end */
    CHECK_EQ(fclose(file), 0);
}

/* The second time as a file of an older version, which has no checksum of its state: then a place that
 * training cannot have been at is refused. */
TEST(a_changed_state_is_refused)
{
    char path[512];

    write_data();
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 2 --max-steps 5")), 0);
    (void)snprintf(path, sizeof path, "%s/a/step-00000005.json", test_dir());
    change_file(path, "\"step_in_epoch\":\t5", "\"step_in_epoch\":\t4");
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 2 --resume auto")), 1);
    CHECK(strstr(gang_output(), "step-00000005.json: damaged or edited") != NULL);
    change_file(path, ",\n\t\"state_sha256\"", "}\n");
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 2 --resume auto")), 1);
    CHECK(strstr(gang_output(), "step 5 in all cannot be step 4 of epoch 1") != NULL);
    change_file(path, "\"step_in_epoch\":\t4", "\"step_in_epoch\":\t5");
    CHECK_EQ(gang_run(1, arguments("a", "--epochs 2 --resume auto --max-steps 6")), 0);
    CHECK(strstr(gang_output(), "stored no checksum of the state") != NULL);
}

/* The shim closes its connection before it has sent the world: the job is being stopped, and the
 * worker ends in silence. */
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
