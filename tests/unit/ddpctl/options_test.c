#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/cmdline.h"
#include "ddpctl/help.h"
#include "tests/lib/test.h"

#define ARGS_TEST_MAX 24

struct parsed {
    struct ctl ctl;
    char *words[ARGS_TEST_MAX];
    const struct command *command;
    struct err err;
    enum status status;
};

/* `line` split at spaces, after "ddpctl". */
static void parse(struct parsed *parsed, const char *line)
{
    static char text[512];
    char *argv[ARGS_TEST_MAX] = {text};
    char *at = text + 7, *save = NULL;
    int argc = 1;

    memset(parsed, 0, sizeof *parsed);
    CHECK(strlen(line) + 8 < sizeof text);
    (void)snprintf(text, sizeof text, "ddpctl");
    (void)snprintf(at, sizeof text - 7, "%s", line);
    for (char *word = strtok_r(at, " ", &save); word && argc < ARGS_TEST_MAX - 1;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    parsed->status =
        cmdline_parse(&parsed->ctl, argc, argv, parsed->words, &parsed->command, &parsed->err);
}

static void expect_error(const char *line, const char *text)
{
    struct parsed parsed;

    parse(&parsed, line);
    CHECK(parsed.status != STATUS_OK);
    CHECK_STR(parsed.err.text, text);
}

TEST(a_torchrun_command_line_is_accepted)
{
    struct parsed parsed;
    struct options *options = &parsed.ctl.options;

    parse(&parsed,
          "run --standalone --nnodes=1:1 --nproc_per_node=4 --max-restarts 2 --rdzv_backend c10d "
          "--rdzv-endpoint=h:1 train.py --epochs 3 --nnodes 7");
    CHECK_EQ(parsed.status, STATUS_OK);
    CHECK_STR(parsed.command->name, "run");
    CHECK(options->standalone);
    CHECK_STR(options->nodes, "1:1");
    CHECK_STR(options->nproc_per_node, "4");
    CHECK_EQ(options->max_restarts, 2);
    CHECK_EQ(options->ignored_count, 1);
    CHECK_STR(options->rdzv_endpoint, "h:1"); /* joint.h */
    CHECK_EQ(parsed.ctl.word_count, 5); /* everything after the first word belongs to the command */
    CHECK_STR(parsed.ctl.words[0], "train.py");
    CHECK_STR(parsed.ctl.words[3], "--nnodes");
}

TEST(dashes_end_the_options)
{
    struct parsed parsed;

    parse(&parsed, "submit -n 2 -eA=b --env C=d job.json --name x -- --follow -- y");
    CHECK_EQ(parsed.status, STATUS_OK);
    CHECK_STR(parsed.ctl.options.name, "x");
    CHECK_EQ(parsed.ctl.options.env.count, 2);
    CHECK_STR(parsed.ctl.options.env.items[0], "A=b");
    CHECK_EQ(parsed.ctl.word_count, 4);
    CHECK_STR(parsed.ctl.words[0], "job.json");
    CHECK_STR(parsed.ctl.words[1], "--follow");
    CHECK_STR(parsed.ctl.words[2], "--");
    CHECK(!parsed.ctl.options.follow);
}

TEST(words_and_options_in_any_order)
{
    struct parsed parsed;

    parse(&parsed, "--server unix:/a logs 41 -f --rank 0,2-3 --tail 5");
    CHECK_EQ(parsed.status, STATUS_OK);
    CHECK_STR(parsed.ctl.options.server, "unix:/a");
    CHECK(parsed.ctl.options.follow);
    CHECK_EQ(parsed.ctl.options.tail, 5);
    CHECK_EQ(parsed.ctl.word_count, 1);
    parse(&parsed, "ps -aw");
    CHECK(parsed.ctl.options.all && parsed.ctl.options.watch);
}

TEST(mistakes_get_a_suggestion)
{
    expect_error("statsu 41", "there is no verb 'statsu'; did you mean status?");
    expect_error("frobnicate", "there is no verb 'frobnicate'; ddpctl help lists them");
    expect_error("run --nproc-per-nod 3 x",
                 "unknown option --nproc-per-nod; did you mean --nproc-per-node?");
    expect_error("ps --tail 3", "--tail is not an option of ddpctl ps; see ddpctl ps --help");
    expect_error("ps -z", "unknown option -z in -z; see ddpctl ps --help");
    expect_error("run --max-restarts x -- y", "--max-restarts: \"x\" is not a whole number");
    expect_error("run --max-restarts 1001 -- y", "--max-restarts: 1001 is not in 0..1000");
    expect_error("run --name= x", "--name: the value is empty");
    expect_error("run --time 400d x", "--time: 400d is not in 0..31622400 seconds");
    expect_error("run --name", "--name needs a value: --name NAME");
    expect_error("run --time 5x y", "--time: \"5x\" is not a duration as 250ms, 10s, 1h30m or 1d");
    expect_error("run --standalone=maybe y", "--standalone: \"maybe\" is not true or false");
}

TEST(variables_set_options)
{
    struct parsed parsed;

    CHECK_EQ(setenv("DDP_NPROC_PER_NODE", "3", 1), 0);
    CHECK_EQ(setenv("DDP_SERVER", "unix:/env", 1), 0);
    CHECK_EQ(setenv("DDP_JSON", "1", 1), 0);
    parse(&parsed, "run x");
    CHECK_STR(parsed.ctl.options.nproc_per_node, "3");
    CHECK_STR(parsed.ctl.options.server, "unix:/env");
    CHECK(parsed.ctl.options.json);
    parse(&parsed, "--server unix:/first run --nproc-per-node 5 --json=0 x");
    CHECK_STR(parsed.ctl.options.nproc_per_node, "5");
    CHECK_STR(parsed.ctl.options.server, "unix:/first");
    CHECK(!parsed.ctl.options.json);
    CHECK_EQ(setenv("DDP_MAX_RESTARTS", "many", 1), 0);
    expect_error("run x", "DDP_MAX_RESTARTS: \"many\" is not a whole number");
    CHECK_EQ(unsetenv("DDP_NPROC_PER_NODE") + unsetenv("DDP_SERVER") + unsetenv("DDP_JSON") +
                 unsetenv("DDP_MAX_RESTARTS"),
             0);
}

/* launcherd sets these in ranks (launcherd/shim/worker_env.c), where they are no options. */
TEST(variables_of_a_rank_set_no_options)
{
    static const char *const names[] = {
        "DDP_JOB_ID",        "DDP_ARRAY_JOB_ID",    "DDP_ARRAY_INDEX",  "DDP_ARRAY_COUNT",
        "DDP_ARRAY_MIN",     "DDP_ARRAY_MAX",       "DDP_CLUSTER",      "DDP_GENERATION",
        "DDP_NODE_NAME",     "DDP_CHECKPOINT_STEP", "DDP_NODE_ADDRESS", "DDP_SHIM_FD",
        "DDP_SHIM_PROTOCOL", "DDP_JOB_TOKEN",       "DDP_METRICS",
    };
    const size_t count = sizeof names / sizeof names[0];
    const struct option_table table = {.env_prefix = "DDP_"};
    struct parsed parsed;
    char variable[OPTION_NAME_BYTES];

    for (size_t i = 0; i < options_row_count; i++) {
        options_variable(&table, &options_rows[i], variable);
        for (size_t k = 0; k < count; k++)
            CHECK(strcmp(variable, names[k]) != 0);
    }
    CHECK_EQ(setenv("DDP_GENERATION", "2", 1), 0);
    parse(&parsed, "logs -p 4");
    CHECK_EQ(parsed.status, STATUS_OK);
    CHECK_EQ(parsed.ctl.options.generation, 0);
    parse(&parsed, "metrics -g 3 4");
    CHECK_EQ(parsed.ctl.options.generation, 3);
    CHECK_EQ(unsetenv("DDP_GENERATION"), 0);
}

TEST(help_is_found)
{
    struct parsed parsed;
    struct buf out = {0};

    parse(&parsed, "run --help");
    CHECK_STR(parsed.command->name, "help");
    CHECK_STR(parsed.ctl.words[0], "run");
    parse(&parsed, "run -h x");
    CHECK_STR(parsed.command->name, "help");
    parse(&parsed, "--json --help run");
    CHECK_STR(parsed.command->name, "help");
    CHECK(parsed.ctl.options.json && parsed.ctl.word_count == 0);
    parse(&parsed, "ps --version");
    CHECK_STR(parsed.command->name, "version");
    parse(&parsed, "");
    CHECK_STR(parsed.command->name, "help");
    for (size_t i = 0; i < command_count; i++)
        CHECK(help_write(commands, command_count, commands[i].name, &out));
    CHECK(help_write(commands, command_count, "exit-codes", &out) &&
          help_write(commands, command_count, "environment", &out) &&
          help_write(commands, command_count, "json", &out));
    CHECK(help_write(commands, command_count, NULL, &out) && !out.failed);
    CHECK(!help_write(commands, command_count, "nothing", &out));
    buf_free(&out);
}

TEST_MAIN
