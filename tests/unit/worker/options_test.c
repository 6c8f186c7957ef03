/* ddp-worker's command line. */
#include "worker/options.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

enum { WORDS_MAX = 24 };

static enum status parse(struct options *options, const char *line, struct err *err)
{
    static char words[512];
    char *argv[WORDS_MAX + 1] = {words}, *rest = words, *word;
    int argc = 1;

    (void)snprintf(words, sizeof words, "%s", line);
    for (char *from = words; argc < WORDS_MAX && (word = strtok_r(from, " ", &rest)) != NULL;
         from = NULL)
        argv[argc++] = word;
    argv[argc] = NULL;
    *err = (struct err){0};
    return options_read(options, argc, argv, err);
}

TEST(defaults)
{
    struct options options;
    struct err err;

    CHECK_EQ(parse(&options, "", &err), STATUS_OK);
    CHECK_STR(options.arch, "convnet");
    CHECK(options.data == NULL && options.resume == NULL && options.checkpoint_dir == NULL);
    CHECK_EQ(options.batch, 100);
    CHECK_EQ(options.seed, 0);
    CHECK(options.momentum == 0.0F);
    CHECK_EQ(parse(&options, "digits", &err), STATUS_OK);
    CHECK(options.data == NULL);
}

TEST(copies_of_checkpoints)
{
    struct options options;
    struct err err;

    CHECK_EQ(parse(&options, "--checkpoint-dir c", &err), STATUS_OK);
    CHECK_EQ(options.checkpoint_copies, UINT32_MAX);
    CHECK_EQ(parse(&options, "--checkpoint-dir c --checkpoint-copies all", &err), STATUS_OK);
    CHECK_EQ(options.checkpoint_copies, UINT32_MAX);
    CHECK_EQ(parse(&options, "--checkpoint-dir c --checkpoint-copies 0", &err), STATUS_OK);
    CHECK_EQ(options.checkpoint_copies, 0);
    CHECK_EQ(parse(&options, "--checkpoint-dir c --checkpoint-copies 2", &err), STATUS_OK);
    CHECK_EQ(options.checkpoint_copies, 2);
    CHECK_EQ(parse(&options, "--checkpoint-dir c --checkpoint-copies some", &err),
             STATUS_BAD_INPUT);
    CHECK_EQ(parse(&options, "--checkpoint-copies 2", &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "--checkpoint-copies needs --checkpoint-dir DIR");
}

TEST(data_parallel)
{
    struct options options;
    struct err err;

    CHECK_EQ(parse(&options, "", &err), STATUS_OK);
    CHECK_EQ(options.data_parallel, 0);
    CHECK_EQ(parse(&options, "--data-parallel 4 --device cuda", &err), STATUS_OK);
    CHECK_EQ(options.data_parallel, 4);
    CHECK_EQ(parse(&options, "--data-parallel 1", &err), STATUS_BAD_INPUT);
    CHECK_EQ(parse(&options, "--data-parallel 65", &err), STATUS_BAD_INPUT);
    CHECK_EQ(parse(&options, "--data-parallel 2 --sync-bn", &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "--sync-bn: the replicas of --data-parallel") != NULL);
    CHECK_EQ(parse(&options, "--data-parallel 2 --device cuda:1", &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "takes GPUs 0 to 1") != NULL);
    CHECK_EQ(parse(&options, "--data-parallel 2 --profile 3", &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "leave --data-parallel out") != NULL);
    CHECK_EQ(parse(&options, "--data-parallel 4 -b 3", &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "--data-parallel 4: a batch of 3 has no image for each: give -b 4 or more");
}

TEST(optimizers)
{
    struct options options;
    struct err err;

    CHECK_EQ(parse(&options, "", &err), STATUS_OK);
    CHECK(options.optim.kind == OPTIM_SGD && options.optim.lookahead == OPTIM_LOOKAHEAD_NONE);
    CHECK_EQ(parse(&options, "--optimizer adamw --wd .05 --betas 0.8,.95 --eps 1e-6", &err),
             STATUS_OK);
    CHECK_EQ(options.optim.kind, OPTIM_ADAMW);
    CHECK(options.optim.beta1 == .8 && options.optim.beta2 == .95 && options.optim.eps == 1e-6F);
    CHECK(options.optim.weight_decay == .05F);
    CHECK_EQ(parse(&options, "--optimizer lars --momentum .9 --lookahead 7", &err), STATUS_OK);
    CHECK(options.optim.trust == .001F && options.optim.momentum == .9F);
    CHECK(options.optim.lookahead == OPTIM_LOOKAHEAD_PAPER && options.optim.every == 7);
    CHECK(options.optim.alpha == .5F);
    CHECK_EQ(parse(&options, "--optimizer larc --lookahead 10,.8 --lookahead-variant seed", &err),
             STATUS_OK);
    CHECK(options.optim.trust == .02F && options.optim.lookahead == OPTIM_LOOKAHEAD_SEED);
    CHECK(options.optim.every == 10 && options.optim.alpha == .8F);
    CHECK_EQ(parse(&options, "--optimizer adam --opt-level O3 --eps 1e-4", &err), STATUS_OK);
    CHECK_EQ(parse(&options, "--optimizer adam --opt-level O3 --low-type bf16", &err), STATUS_OK);
}

TEST(every_way_to_write_one)
{
    static const char *const lines[] = {
        "-b 32",           "-b32",      "-b=32", "--batch-size 32", "--batch-size=32",
        "--batch_size 32", "-b 7 -b 32"};
    struct options options;
    struct err err;

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (parse(&options, lines[i], &err) != STATUS_OK)
            FAIL("%s: %s", lines[i], err.text);
        CHECK_EQ(options.batch, 32);
    }
}

TEST(names_of_the_examples)
{
    struct options options;
    struct err err;

    CHECK_EQ(parse(&options,
                   "-a convnet --epochs 3 --lr 1e-4 --momentum .9 --nesterov --wd 1e-4 --seed "
                   "18446744073709551615 -j 4 -p 10 -e --dummy "
                   "--opt-level O0 --loss-scale 1.0",
                   &err),
             STATUS_OK);
    CHECK_EQ(options.epochs, 3);
    CHECK(options.lr == 1e-4F && options.momentum == .9F && options.weight_decay == 1e-4F);
    CHECK(options.nesterov && options.evaluate && options.dummy);
    CHECK_EQ(options.seed, UINT64_MAX);
    CHECK_EQ(options.loader_threads, 4);
    CHECK_EQ(options.print_freq, 10);
    CHECK_EQ(parse(&options, "--weight-decay 2 -- -data-", &err), STATUS_OK);
    CHECK(options.weight_decay == 2.0F);
    CHECK_STR(options.data, "-data-");
    CHECK_EQ(parse(&options, "--help --epochs 3", &err), STATUS_OK);
    CHECK(options.help);
}

/* pytorch/examples imagenet, Apex main_amp.py, torchvision references: whole lines. */
TEST(command_lines_of_other_programs)
{
    struct options options;
    struct err err;

    CHECK_EQ(parse(&options,
                   "-a resnet50 --multiprocessing-distributed --dist-url tcp://127.0.0.1:2345 "
                   "--dist-backend nccl --world-size 1 --rank 0 --start-epoch 0 -j 4 --gpu 3 /data",
                   &err),
             STATUS_OK);
    CHECK_STR(options.data, "/data");
    CHECK_STR(options.comm, "auto");
    CHECK_EQ(options_take_world(&options, 1, &err), STATUS_OK);
    CHECK_STR(options.device, "cuda:3");
    CHECK_EQ(parse(&options,
                   "--arch resnet50 -b 128 --workers 4 --print-freq 10 --prof 20 --local_rank=1 "
                   "--sync_bn --opt-level O2 --keep-batchnorm-fp32 True --channels-last False ./",
                   &err),
             STATUS_OK);
    CHECK_STR(options.data, "./");
    CHECK(options.sync_bn && options.channels_last);
    CHECK_EQ(options.profile_steps, 20);
    CHECK_EQ(parse(&options,
                   "--model resnet18 --data-path=/x --opt adamw --lr-scheduler cosineannealinglr "
                   "--lr-min 0.1 --output-dir . --test-only --use-deterministic-algorithms",
                   &err),
             STATUS_OK);
    CHECK_STR(options.arch, "resnet18");
    CHECK_STR(options.data, "/x");
    CHECK_STR(options.checkpoint_dir, ".");
    CHECK_EQ(options.schedule.kind, SCHEDULE_COSINE);
    CHECK(options.evaluate && options.deterministic && options.schedule.min_lr == 0.1);
    CHECK_EQ(parse(&options, "--dist-backend GLOO --no-accel -- --amp", &err), STATUS_OK);
    CHECK_STR(options.comm, "gloo");
    CHECK_STR(options.device, "cpu");
    CHECK_STR(options.data, "--amp");
    CHECK_EQ(parse(&options, "--world-size=2 --device cpu --gpu 0", &err), STATUS_OK);
    CHECK_EQ(options_take_world(&options, 1, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "ddpctl run --nodes M") != NULL);
    CHECK_EQ(options_take_world(&options, 2, &err), STATUS_OK);
    CHECK_STR(options.device, "cpu");
}

TEST(what_is_done_to_pictures)
{
    struct options options;
    struct err err;

    CHECK_EQ(parse(&options, "data", &err), STATUS_OK);
    CHECK_EQ(options.images.augment, AUGMENT_USUAL);
    CHECK_EQ(options.loader_threads, OPTIONS_USUAL_THREADS);
    CHECK(options.images.scale[0] == 0 && options.images.mean_count == 0);
    CHECK_EQ(parse(&options,
                   "--augment cifar --crop-scale 0.25,1 --crop-ratio .5,2 --mean .5 --std "
                   "0.1,0.2,0.3 --resize 300 --strict --allow-empty --dct-scaling -j 0 data",
                   &err),
             STATUS_OK);
    CHECK_EQ(options.images.augment, AUGMENT_CIFAR);
    CHECK(options.images.scale[0] == 0.25 && options.images.scale[1] == 1);
    CHECK(options.images.ratio[0] == 0.5 && options.images.ratio[1] == 2);
    CHECK_EQ(options.images.mean_count, 1);
    CHECK_EQ(options.images.std_count, 3);
    CHECK(options.images.mean[2] == 0.5F && options.images.std[2] == 0.3F);
    CHECK_EQ(options.images.resize, 300);
    CHECK(options.images.strict && options.images.allow_empty && options.images.dct_scaling);
    CHECK_EQ(options.loader_threads, 0);
    CHECK_EQ(parse(&options, "--mean 0 --std 1", &err), STATUS_OK);
}

TEST(what_cannot_be_done_to_pictures)
{
    static const char *const cases[][2] = {
        {"--augment mirror", "expected imagenet, cifar, crop or none"},
        {"--crop-scale 0,1", "--crop-scale 0,1: expected MIN,MAX"},
        {"--crop-scale 0.5", "expected MIN,MAX"},
        {"--crop-scale 0.6,0.5", "expected MIN,MAX"},
        {"--crop-scale 0.5,1.5", "at most 1"},
        {"--crop-scale 0.5,1,1", "expected MIN,MAX"},
        {"--crop-ratio nan,1", "expected MIN,MAX"},
        {"--crop-ratio 1,1e999", "expected MIN,MAX"},
        {"--mean 1,2 --std 1", "--mean 1,2: expected one number or R,G,B"},
        {"--mean 0 --std 0", "each above 0"},
        {"--mean 0 --std 1,1,0", "each above 0"},
        {"--mean 0 --std -1", "each above 0"},
        {"--mean 0x --std 1", "--mean 0x: expected"},
        {"--mean 0.5", "--mean and --std go together"},
        {"--std 0.5", "--mean and --std go together"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct options options;
        struct err err = {.text = ""};

        CHECK_EQ(parse(&options, cases[i][0], &err), STATUS_BAD_INPUT);
        if (strstr(err.text, cases[i][1]) == NULL)
            FAIL("%s: expected \"%s\", got: %s", cases[i][0], cases[i][1], err.text);
    }
}

TEST(roundings_are_asked_for)
{
    struct options options;
    struct err err;

    CHECK_EQ(parse(&options, "--lr 1", &err), STATUS_OK);
    CHECK(!options.tf32 && !options.deterministic);
    CHECK_EQ(parse(&options, "--tf32 --deterministic", &err), STATUS_OK);
    CHECK(options.tf32 && options.deterministic);
}

TEST(how_long_engines_are_timed)
{
    struct options options;
    struct err err;

    CHECK_EQ(parse(&options, "--lr 1", &err), STATUS_OK);
    CHECK(options.tune_seconds < 0 && !options.tune);
    CHECK_EQ(parse(&options, "--tune-seconds 0", &err), STATUS_OK);
    CHECK_NEAR(options.tune_seconds, 0, 0);
    CHECK_EQ(parse(&options, "--tune-seconds 2.5 --tune", &err), STATUS_OK);
    CHECK_NEAR(options.tune_seconds, 2.5, 0);
    CHECK(options.tune);
}

TEST(refusals_name_the_option)
{
    static const struct {
        const char *line;
        enum status status;
        const char *word;
    } cases[] = {
        {"--bacth-size 3", STATUS_BAD_INPUT, "did you mean --batch-size?"},
        {"--gpus 3", STATUS_BAD_INPUT, "unknown option --gpus; see ddp-worker --help"},
        {"--amp", STATUS_BAD_INPUT, "--amp: use --opt-level O1 or O2"},
        {"--start-epoch 5", STATUS_BAD_INPUT, "--start-epoch: --resume goes on"},
        {"--weights IMAGENET1K_V2", STATUS_BAD_INPUT, "--weights: use --pretrained FILE"},
        {"--nproc_per_node=4", STATUS_BAD_INPUT, "ddpctl run --nodes M --nproc-per-node N"},
        {"--model-ema", STATUS_BAD_INPUT, "--model-ema: there is no average"},
        {"--lr-scheduler exponentiallr", STATUS_BAD_INPUT, "--lr-step-epochs 1"},
        {"--optimizer sgd_nesterov", STATUS_BAD_INPUT, "--optimizer sgd --nesterov"},
        {"--pretrained", STATUS_BAD_INPUT, "--pretrained needs the FILE of the weights"},
        {"--pretrained --epochs 3", STATUS_BAD_INPUT, "--pretrained needs the FILE"},
        {"--dist-backend mpi", STATUS_BAD_INPUT, "--dist-backend mpi: expected nccl or gloo"},
        {"--dist-url", STATUS_BAD_INPUT, "--dist-url needs a value"},
        {"--gpu 99", STATUS_BAD_INPUT, "--gpu: 99 is not in 0..15"},
        {"--tune-seconds -1", STATUS_BAD_INPUT, "--tune-seconds: -1 is not in 0..86400"},
        {"--tune --deterministic", STATUS_BAD_INPUT, "leave one of them out"},
        {"--tune -e", STATUS_BAD_INPUT, "leave --evaluate out"},
        {"--tune --profile 3", STATUS_BAD_INPUT, "leave --profile out"},
        {"--check 3", STATUS_BAD_INPUT, "did you mean --checkpoint-"},
        {"--xyzzyxyzzyxyzzy", STATUS_BAD_INPUT, "see ddp-worker --help"},
        {"--"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaa",
         STATUS_BAD_INPUT, "unknown option"},
        {"-x", STATUS_BAD_INPUT, "unknown option -x"},
        {"--nesterov=2", STATUS_BAD_INPUT, "--nesterov: \"2\" is not true or false"},
        {"--lr", STATUS_BAD_INPUT, "--lr needs a value"},
        {"-b", STATUS_BAD_INPUT, "-b needs a value: -b N"},
        {"-b 0", STATUS_BAD_INPUT, "-b: 0 is not in 1..65536"},
        {"-b -1", STATUS_BAD_INPUT, "-b: \"-1\" is not a whole number"},
        {"-b 1.5", STATUS_BAD_INPUT, "-b: \"1.5\" is not"},
        {"--batch-size 99999999999999999999", STATUS_BAD_INPUT, "--batch-size: "},
        {"--seed 18446744073709551616", STATUS_BAD_INPUT, "--seed"},
        {"--seed -1", STATUS_BAD_INPUT, "--seed: \"-1\""},
        {"--lr inf", STATUS_BAD_INPUT, "--lr: \"inf\" is not a number"},
        {"--lr nan", STATUS_BAD_INPUT, "--lr: \"nan\""},
        {"--lr 1x", STATUS_BAD_INPUT, "--lr: \"1x\""},
        {"--checkpoint-keep 0", STATUS_BAD_INPUT, "--checkpoint-keep: 0 is not in 1.."},
        {"--arch=", STATUS_BAD_INPUT, "--arch: the value is empty"},
        {"--opt-level 00", STATUS_BAD_INPUT, "the prefix O is the letter O, not the number zero."},
        {"--opt-level O4", STATUS_BAD_INPUT, "Options are 'O0', 'O1', 'O2', 'O3'."},
        {"--opt-level O2 --low-type fp8", STATUS_BAD_INPUT, "expected fp16 or bf16"},
        {"--opt-level O2 --loss-scale 0", STATUS_BAD_INPUT, "--loss-scale 0"},
        {"--opt-level O1 --keep-batchnorm-fp32 True", STATUS_BAD_INPUT,
         "keep_batchnorm_fp32 should be None. keep_batchnorm_fp32 was True"},
        {"--device cuda:x", STATUS_BAD_INPUT, "expected auto, cpu, cuda or cuda:N"},
        {"--device tpu", STATUS_BAD_INPUT, "expected auto, cpu, cuda or cuda:N"},
        {"--comm mpi", STATUS_BAD_INPUT, "--comm mpi: expected auto, nccl or gloo"},
        {"--nesterov --momentum .9 --dampening .1", STATUS_BAD_INPUT, "--nesterov requires"},
        {"--checkpoint-every 5", STATUS_BAD_INPUT, "needs --checkpoint-dir"},
        {"--cache-rebuild d", STATUS_BAD_INPUT, "--cache-rebuild needs --cache FILE"},
        {"--fetch mnist", STATUS_BAD_INPUT, "ddp-worker --fetch mnist DIR"},
        {"--mirror http://a d", STATUS_BAD_INPUT, "--mirror needs --fetch"},
        {"--dummy somewhere", STATUS_BAD_INPUT, "leave somewhere out"},
    };
    struct options options;
    struct err err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum status status = parse(&options, cases[i].line, &err);
        if (status != cases[i].status || strstr(err.text, cases[i].word) == NULL)
            FAIL("%s: expected \"%s\", got %s: %s", cases[i].line, cases[i].word,
                 status_name(status), err.text);
    }
}

TEST(optimizers_that_make_no_sense)
{
    static const struct {
        const char *line, *word;
    } cases[] = {
        {"--optimizer adams", "expected sgd, adam, adamw, lars or larc"},
        {"--optimizer adam --momentum .9", "it has --betas"},
        {"--optimizer adamw --nesterov", "--nesterov is not an option of --optimizer adamw"},
        {"--optimizer lars --dampening .1", "--dampening is not an option"},
        {"--optimizer lars --momentum .9 --nesterov", "--nesterov is not"},
        {"--optimizer larc --nesterov", "--nesterov requires a --momentum"},
        {"--optimizer lars --eps 1e-6", "--eps is not an option"},
        {"--betas .9,.99", "--betas is not an option of --optimizer sgd"},
        {"--trust-coefficient .1", "--trust-coefficient is not an option"},
        {"--optimizer adam --betas .9", "--betas .9: expected two numbers"},
        {"--optimizer adam --betas .9,1", "--betas .9,1: expected two"},
        {"--optimizer adam --betas .9,.99,", "expected two numbers"},
        {"--optimizer adam --betas -1,.99", "expected two numbers"},
        {"--optimizer adam --betas nan,.99", "expected two numbers"},
        {"--optimizer adam --opt-level O3", "--eps of 1e-08 is 0 in fp16"},
        {"--elastic-lr half", "--elastic-lr half: expected keep, linear or sqrt"},
        {"--elastic-lr linear --scale-lr", "leave one out"},
        {"--lookahead 0", "--lookahead 0: expected K[,ALPHA]"},
        {"--lookahead 5,", "expected K[,ALPHA]"},
        {"--lookahead 2.5", "expected K[,ALPHA]"},
        {"--lookahead 5,1.5", "expected K[,ALPHA]"},
        {"--lookahead 5,0", "expected K[,ALPHA]"},
        {"--lookahead-variant seed", "needs --lookahead"},
        {"--lookahead 5 --lookahead-variant mine", "expected paper or seed"},
    };
    struct options options;
    struct err err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (parse(&options, cases[i].line, &err) != STATUS_BAD_INPUT ||
            strstr(err.text, cases[i].word) == NULL)
            FAIL("%s: expected \"%s\", got %s", cases[i].line, cases[i].word, err.text);
}

/* The sentences about options without effect, joined. */
static struct options_facts facts = {.has_pictures = true, .is_on_gpu = true};

static const char *idle(const char *line, uint32_t world)
{
    static char all[2048];
    char text[OPTIONS_IDLE_BYTES];
    struct options options;
    struct err err;
    uint32_t at = 0;

    all[0] = '\0';
    if (parse(&options, line, &err) != STATUS_OK)
        FAIL("%s: %s", line, err.text);
    facts.world = world;
    while (options_next_idle(&options, &facts, &at, text))
        (void)snprintf(all + strlen(all), sizeof all - strlen(all), "%s;", text);
    return all;
}

TEST(options_without_effect_are_named)
{
    CHECK_STR(idle("", 1), "");
    CHECK_STR(idle("--lr-gamma 0.5", 1),
              "--lr-gamma has no effect here: it needs --lr-schedule step or plateau;");
    CHECK_STR(idle("--lr-gamma 0.5 --lr-schedule step", 1), "");
    CHECK_STR(idle("--tune-seconds 1 --device cpu", 1),
              "--tune-seconds has no effect here: it needs a GPU, and no --deterministic;");
    CHECK_STR(idle("--tune-seconds 1", 1), "");
    CHECK_STR(idle("--lr-gamma 0.1 --early-stop-patience 3", 1), /* the default counts as given */
              "--lr-gamma has no effect here: it needs --lr-schedule step or plateau;"
              "--early-stop-patience has no effect here: it needs --early-stop METRIC;");
    CHECK_STR(idle("--early-stop val_loss --early-stop-patience 3", 1), "");
    CHECK_STR(idle("--bucket-cap-mb 4 --sync-bn", 1),
              "--bucket-cap-mb has no effect here: it needs a job of several ranks;"
              "--sync-bn has no effect here: it needs a job of several ranks;");
    CHECK_STR(idle("--bucket-cap-mb 4 --sync-bn", 2), "");
    CHECK_STR(idle("--best val_loss --checkpoint-keep 3", 1),
              "--checkpoint-keep has no effect here: it needs --checkpoint-dir DIR;"
              "--best has no effect here: it needs --checkpoint-dir DIR;");
    CHECK_STR(idle("--best val_loss --checkpoint-dir x", 1), "");
    CHECK_STR(idle("--low-type bf16", 1),
              "--low-type has no effect here: it needs --opt-level O1, O2 or O3;");
    CHECK_STR(idle("--dist-url x --rank 0 --backend PIL --device cpu --gpu 0", 1),
              "--dist-url, --rank have no effect here: the launcher starts and connects the ranks: "
              "ddpctl run --nodes M --nproc-per-node N -- ddp-worker ...;"
              "--backend has no effect here: pictures are read as Pillow reads them;"
              "--gpu has no effect here: --device says where;");
    CHECK_STR(idle("--dist-url x --rank 0 --gpu 1", 2),
              "--gpu has no effect here: the launcher gives each rank its GPU;");
    CHECK_STR(idle("-e --epochs 3", 1),
              "--epochs has no effect here: it needs a training, and --evaluate and --profile are "
              "none;");
    CHECK_STR(idle("-e --lookahead 5 --sync-bn --augment cifar", 1), /* one line for each */
              "--lookahead has no effect here: it needs a training, and --evaluate is none;"
              "--sync-bn has no effect here: it needs a training, and --evaluate is none;");
    CHECK_STR(idle("--profile 5 --metrics x", 1),
              "--metrics has no effect here: it needs a training or a validation, and --profile is "
              "none;");
    CHECK_STR(idle("--pretrained x --zero-init-residual", 1),
              "--zero-init-residual has no effect here: it needs weights that are drawn, and "
              "--pretrained has them all;");
}

/* With the kind of data, and where the net computes. */
TEST(options_that_this_data_or_device_does_not_use_are_named)
{
    static const char pictures[] =
        "--resize 300 --crop-scale 0.5,1 --allow-empty --strict --dct-scaling";
    static const char none[] = "--image-size 32 --resize 40 --strict --tf32 --nccl-max-ctas 4";

    CHECK_STR(idle(pictures, 1), "");
    CHECK_STR(idle("--threads 2", 1), "--threads has no effect here: it needs --device cpu;");
    CHECK_STR(idle("--crop-scale 0.5,1 --augment none --shuffle-window 5", 1),
              "--crop-scale has no effect here: it needs pictures with --augment imagenet, their "
              "default;--shuffle-window has no effect here: it needs tar shards;");
    facts = (struct options_facts){.has_pictures = false};
    CHECK_STR(idle(none, 2),
              "--tf32 has no effect here: it needs a GPU;"
              "--image-size has no effect here: it needs pictures in folders or shards, or --dummy;"
              "--resize has no effect here: it needs pictures in folders or shards;"
              "--strict has no effect here: it needs pictures in folders or shards;"
              "--nccl-max-ctas has no effect here: it needs a GPU;");
    CHECK_STR(idle("--dummy --image-size 32 --threads 1", 1), "");
    facts = (struct options_facts){.has_pictures = true, .has_shards = true};
    CHECK_STR(idle("--allow-empty --shuffle-window 4", 1),
              "--allow-empty has no effect here: it needs pictures in folders;");
}

/* "NAME=VALUE;" of all that ranks must have alike. */
static const char *equal(const char *line)
{
    static struct buf list;
    struct options options;
    struct err err;

    buf_free(&list);
    list = (struct buf){0};
    CHECK_EQ(parse(&options, line, &err), STATUS_OK);
    options_list_equal(&options, &list);
    for (size_t i = 0, ends = 0; i < list.byte_count; i++)
        if (list.bytes[i] == '\0')
            list.bytes[i] = ends++ % 2 == 0 ? '=' : ';';
    buf_add(&list, "", 1);
    CHECK(!list.failed);
    return list.bytes;
}

TEST(what_ranks_must_have_alike)
{
    CHECK(strstr(equal("--lr 0.1"), "--lr=0.1;") != NULL);
    CHECK(strstr(equal(""), "--seed=0;") != NULL);
    CHECK(strstr(equal("--nesterov --momentum 0.5"), "--nesterov=on;") != NULL);
    CHECK(strstr(equal(""), "--pretrained") == NULL);
    CHECK(strstr(equal("-j 3 --loss-log x"), "--workers") == NULL);
    CHECK(strstr(equal(""), "--checkpoint-dir=none;") != NULL);
    CHECK(strstr(equal("--checkpoint-dir /a"), "--checkpoint-dir=a value;") != NULL);
    CHECK(strstr(equal(""), "--resume=none;") != NULL);
}

TEST(help_has_examples_and_every_option)
{
    char *text = NULL;
    size_t text_bytes;
    FILE *file = open_memstream(&text, &text_bytes);

    CHECK(file != NULL);
    options_print_help(file);
    CHECK_EQ(fclose(file), 0);
    CHECK(strstr(text, "ddpctl run --standalone") < strstr(text, "Usage: "));
    CHECK(strstr(text, "-b, --batch-size N") != NULL);
    CHECK(strstr(text, "--checkpoint-every STEPS") != NULL);
    for (const char *line = text; (line = strchr(line, '\n')) != NULL; line++) {
        const char *end = strchr(line + 1, '\n');
        CHECK(end == NULL || end - line <= 121);
    }
    free(text);
}

TEST_MAIN
