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

TEST(refusals_name_the_option)
{
    static const struct {
        const char *line;
        enum status status;
        const char *word;
    } cases[] = {
        {"--bacth-size 3", STATUS_BAD_INPUT, "did you mean --batch-size?"},
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
        {"--device cuda:1", STATUS_UNSUPPORTED, "no CUDA training backend yet"},
        {"--device tpu", STATUS_BAD_INPUT, "expected auto, cpu or cuda"},
        {"--nesterov --momentum .9 --dampening .1", STATUS_BAD_INPUT, "--nesterov requires"},
        {"--checkpoint-every 5", STATUS_BAD_INPUT, "needs --checkpoint-dir"},
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
