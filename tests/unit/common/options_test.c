#include "common/option_value.h"
#include "common/options.h"

#include <string.h>

#include "common/limits.h"
#include "common/option_docs.h"
#include "tests/lib/test.h"

struct settings {
    const char *target;
    uint32_t slots, device;
    uint64_t grace_us, big;
    double lr;
    bool json, quiet;
    struct option_texts env;
};

static const struct option_row rows[] = {
    {.name = "target",
     .env = "DEMO_TARGET",
     .kind = OPTION_TEXT,
     .value = "ADDRESS",
     OPTION_INTO(struct settings, target),
     .help = "where to copy to"},
    {.name = "nproc-per-node",
     .synonyms = "nproc ranks-per-node",
     .letter = 's',
     .env = "DDP_NPROC_PER_NODE",
     .kind = OPTION_U32,
     .min = 1,
     .max = SLOTS_PER_NODE_MAX,
     .value = "N",
     OPTION_INTO(struct settings, slots),
     .help = "workers on each node"},
    {.name = "grace",
     .env = "DDP_GRACE",
     .kind = OPTION_DURATION,
     .max = 3600000000,
     OPTION_INTO(struct settings, grace_us),
     .help = "between the signal and SIGKILL"},
    {.name = "big",
     .env = "DEMO_BIG",
     .kind = OPTION_U64,
     .once = "add them",
     OPTION_INTO(struct settings, big),
     .help = "any"},
    {.name = "lr",
     .kind = OPTION_F64,
     .real_max = 10,
     OPTION_INTO(struct settings, lr),
     .help = "learning rate"},
    {.name = "device",
     .kind = OPTION_WORD,
     .words = "auto|cpu|cuda",
     OPTION_INTO(struct settings, device),
     .help = "where to compute"},
    {.name = "json",
     .letter = 'j',
     .env = "DDP_JSON",
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, json),
     .help = "print JSON"},
    {.name = "quiet",
     .letter = 'q',
     .kind = OPTION_FLAG,
     OPTION_INTO(struct settings, quiet),
     .help = "print less"},
    {.name = "env",
     .letter = 'e',
     .env = "DDP_ENV",
     .kind = OPTION_TEXTS,
     .value = "NAME=VALUE",
     OPTION_INTO(struct settings, env),
     .help = "given to the workers"},
};
static const char *const examples[] = {"ddpctl run -- python train.py", NULL};
static struct option_table table = {.program = "ddpctl run",
                                    .usage = "[options] -- CMD...",
                                    .summary = "Run a job and wait for it.",
                                    .examples = examples,
                                    .rows = rows,
                                    .row_count = sizeof rows / sizeof rows[0]};

static const char *fake_env(const char *name)
{
    return strcmp(name, "DEMO_TARGET") == 0          ? "unix:/env"
           : strcmp(name, "DDP_NPROC_PER_NODE") == 0 ? "3"
           : strcmp(name, "DDP_ENV") == 0            ? "FROM=env"
           : strcmp(name, "DDP_GRACE") == 0          ? ""
                                                     : NULL;
}

static const char *broken_env(const char *name)
{
    return strcmp(name, "DDP_NPROC_PER_NODE") == 0 ? "many" : NULL;
}

static struct settings settings;
static struct option_result result;
static struct err err;

#define PARSE(env, ...) parse((env), (char *const[]){(char *)(uintptr_t)("p"), __VA_ARGS__, NULL})
#define ARG(text) (char *)(uintptr_t)(text)

static enum status parse(option_getenv *env, char *const *argv)
{
    int argc = 0;

    while (argv[argc] != NULL)
        argc++;
    settings = (struct settings){.target = "default", .slots = 1, .grace_us = 10, .lr = 0.1};
    err = (struct err){.text = ""};
    return options_parse(&table, argc, argv, env, &settings, &result, &err);
}

TEST(every_way_to_write_an_option)
{
    CHECK_EQ(PARSE(NULL, ARG("--target=a"), ARG("--nproc_per_node"), ARG("4"), ARG("--grace"),
                   ARG("5m"), ARG("-jq"), ARG("-eA=1"), ARG("-e"), ARG("B=2"), ARG("-e=C=3"),
                   ARG("--device"), ARG("cuda"), ARG("--lr=1e-4"), ARG("--big"),
                   ARG("18446744073709551615")),
             STATUS_OK);
    CHECK_STR(settings.target, "a");
    CHECK_EQ(settings.slots, 4);
    CHECK_EQ(settings.grace_us, 300000000);
    CHECK(settings.json && settings.quiet);
    CHECK_EQ(settings.env.count, 3);
    CHECK_STR(settings.env.items[0], "A=1");
    CHECK_STR(settings.env.items[2], "C=3");
    CHECK_EQ(settings.device, 2);
    CHECK_NEAR(settings.lr, 1e-4, 0);
    CHECK_EQ(settings.big, UINT64_MAX);
    CHECK_EQ(PARSE(NULL, ARG("--nproc"), ARG("2"), ARG("--json"), ARG("--no-json"), ARG("-s8")),
             STATUS_OK);
    CHECK_EQ(settings.slots, 8);
    CHECK(!settings.json);
    CHECK_EQ(PARSE(NULL, ARG("--json=yes"), ARG("--quiet=0"), ARG("-s=64")), STATUS_OK);
    CHECK(settings.json && !settings.quiet);
    CHECK_EQ(settings.slots, 64);
    CHECK_EQ(PARSE(NULL, ARG("--target="), ARG("--lr"), ARG("-0")), STATUS_OK);
    CHECK_STR(settings.target, "");
}

TEST(sizes_have_units)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0}, {"4096", 4096}, {"500K", 512000}, {"4m", 4u << 20}, {"1G", 1u << 30}};
    static const char *const bad[] = {"",    "K",  "-1", "1.5G",        "1KB",
                                      "1 G", "1P", "2T", "99999999999T"};
    uint64_t value = 0;
    const struct option_row row = {.name = "size",
                                   .kind = OPTION_SIZE,
                                   .max = 1ull << 40,
                                   .offset = 0,
                                   .byte_count = sizeof value};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_EQ(option_value_set(&row, "--size", good[i].text, &value, &err), STATUS_OK);
        CHECK_EQ(value, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_EQ(option_value_set(&row, "--size", bad[i], &value, &err), STATUS_BAD_INPUT);
    CHECK_EQ(value, 1u << 30);
}

TEST(flag_then_environment_then_default)
{
    CHECK_EQ(PARSE(fake_env, ARG("--json")), STATUS_OK);
    CHECK_STR(settings.target, "unix:/env");
    CHECK_EQ(settings.slots, 3);
    CHECK_EQ(settings.grace_us, 10); /* an empty variable counts as not set */
    CHECK_EQ(settings.env.count, 1);
    CHECK_EQ(result.sources[0], OPTION_FROM_ENV);
    CHECK_EQ(result.sources[2], OPTION_FROM_DEFAULT);
    CHECK_EQ(result.sources[6], OPTION_FROM_ARGS);
    CHECK_EQ(PARSE(fake_env, ARG("--target"), ARG("b"), ARG("-e"), ARG("X=1")), STATUS_OK);
    CHECK_STR(settings.target, "b");
    CHECK_EQ(settings.env.count, 1);
    CHECK_STR(settings.env.items[0], "X=1");
    CHECK_EQ(PARSE(broken_env, ARG("--json")), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "DDP_NPROC_PER_NODE: \"many\" is not a whole number");
    CHECK_EQ(PARSE(broken_env, ARG("--help")), STATUS_OK);
    CHECK(result.wants_help);
}

TEST(positionals_and_the_rest)
{
    CHECK_EQ(PARSE(NULL, ARG("5"), ARG("-q"), ARG("-"), ARG("--"), ARG("python"), ARG("--json")),
             STATUS_OK);
    CHECK_EQ(result.positional_count, 2);
    CHECK_STR(result.positionals[1], "-");
    CHECK(result.has_separator && settings.quiet && !settings.json);
    CHECK_EQ(result.rest_count, 2);
    CHECK_STR(result.rest[1], "--json");
    CHECK(result.rest[2] == NULL);
    table.stops_at_positional = true;
    CHECK_EQ(PARSE(NULL, ARG("-q"), ARG("python"), ARG("--json"), ARG("--"), ARG("x")), STATUS_OK);
    table.stops_at_positional = false;
    CHECK_EQ(result.rest_count, 4);
    CHECK_STR(result.rest[0], "python");
    CHECK(settings.quiet && !settings.json && !result.has_separator);
    CHECK_EQ(PARSE(NULL, ARG("-q")), STATUS_OK);
    CHECK_EQ(result.rest_count, 0);
    CHECK(result.rest[0] == NULL);
    CHECK_EQ(PARSE(NULL, ARG("x"), ARG("--version"), ARG("--wrong")), STATUS_OK);
    CHECK(result.wants_version);
}

TEST(errors_name_the_option)
{
    static const struct {
        const char *args[3];
        const char *text;
    } cases[] = {
        {{"--targe", "x"}, "unknown option --targe; did you mean --target?"},
        {{"--nproc-pre-node=1"}, "unknown option --nproc-pre-node; did you mean --nproc-per-node?"},
        {{"--xyzzy"}, "unknown option --xyzzy; see ddpctl run --help"},
        {{"--no-target"}, "unknown option --no-target; did you mean --target?"},
        {{"-qz"}, "unknown option -z in -qz; see ddpctl run --help"},
        {{"--target"}, "--target needs a value: --target ADDRESS"},
        {{"--target", "--json"},
         "--target needs a value, but --json follows; --target=--json if that is the value"},
        {{"--nproc-per-node", "0"}, "--nproc-per-node: 0 is not in 1..64"},
        {{"--nproc-per-node", "65"}, "--nproc-per-node: 65 is not in 1..64"},
        {{"-s", "-1"}, "-s: \"-1\" is not a whole number"},
        {{"-s", "4x"}, "-s: \"4x\" is not a whole number"},
        {{"-s", "99999999999999999999"}, "-s: \"99999999999999999999\" is not a whole number"},
        {{"--grace=5 m"}, "--grace: \"5 m\" is not a duration as 250ms, 10s, 1h30m or 1d"},
        {{"--grace=2h"}, "--grace: 2h is not in 0..3600 seconds"},
        {{"--lr", "nan"}, "--lr: \"nan\" is not a number"},
        {{"--lr", "11"}, "--lr: 11 is not in 0..10"},
        {{"--device", "gpu"}, "--device: \"gpu\" is none of auto|cpu|cuda"},
        {{"--device", "cpu|cuda"}, "--device: \"cpu|cuda\" is none of auto|cpu|cuda"},
        {{"--json=maybe"}, "--json: \"maybe\" is not true or false"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_EQ(PARSE(NULL, ARG(cases[i].args[0]), ARG(cases[i].args[1]), ARG(cases[i].args[2])),
                 STATUS_BAD_INPUT);
        CHECK_STR(err.text, cases[i].text);
    }
}

TEST(durations)
{
    static const struct {
        const char *text;
        uint64_t us;
    } good[] = {{"0", 0},
                {"7", 7000000},
                {"1us", 1},
                {"250ms", 250000},
                {"10s", 10000000},
                {"5m", 300000000},
                {"5min", 300000000},
                {"2h", 7200000000},
                {"1d", 86400000000},
                {"1.5s", 1500000},
                {"1h30m", 5400000000},
                {"0.25", 250000},
                {"18446744073709551615us", UINT64_MAX}};
    static const char *const bad[] = {"",
                                      "s",
                                      "-1s",
                                      "1 s",
                                      "1w",
                                      "5mm",
                                      "1e3",
                                      "1..5s",
                                      " 5",
                                      ".",
                                      "99999999999999d",
                                      "1s2",
                                      "1.5.s",
                                      "18446744073709551615us1us"};
    uint64_t us;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK(options_parse_duration(good[i].text, &us));
        CHECK_EQ(us, good[i].us);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(!options_parse_duration(bad[i], &us));
}

TEST(numbers_are_whole_and_in_range)
{
    uint64_t value = 0;

    CHECK_EQ(options_parse_number("x", "18446744073709551615", 0, UINT64_MAX, &value, NULL),
             STATUS_OK);
    CHECK_EQ(value, UINT64_MAX);
    CHECK_EQ(options_parse_number("x", "18446744073709551616", 0, UINT64_MAX, &value, NULL),
             STATUS_BAD_INPUT);
    CHECK_EQ(options_parse_number("x", "+1", 0, 9, &value, NULL), STATUS_BAD_INPUT);
    CHECK_EQ(options_parse_number("x", "", 0, 9, &value, NULL), STATUS_BAD_INPUT);
    CHECK_EQ(options_parse_number("x", "10", 0, 9, &value, NULL), STATUS_BAD_INPUT);
    CHECK_EQ(value, UINT64_MAX);
}

TEST(suggestions_for_verbs)
{
    static const char *const verbs[] = {"submit", "run", "ps", "status", "logs", "cancel", "wait"};

    CHECK_STR(options_nearest("sumbit", verbs, 7), "submit");
    CHECK_STR(options_nearest("stauts", verbs, 7), "status");
    CHECK_STR(options_nearest("log", verbs, 7), "logs");
    CHECK_STR(options_nearest("rnu", verbs, 7), "run");
    CHECK_STR(options_nearest("can", verbs, 7), "cancel"); /* although "run" is one edit nearer */
    CHECK_STR(options_nearest("frobnicate", verbs, 7), NULL);
    CHECK_STR(options_nearest("", verbs, 7), NULL);
}

TEST(help_begins_with_examples)
{
    struct buf out = {0};

    options_help(&table, &out);
    buf_add(&out, "", 1);
    CHECK_EQ(
        strncmp(out.bytes, "Examples:\n  ddpctl run -- python train.py\n\nUsage: ddpctl run", 55),
        0);
    CHECK(strstr(out.bytes, "  -s, --nproc-per-node N        workers on each node "
                            "[DDP_NPROC_PER_NODE]\n") != NULL);
    CHECK(strstr(out.bytes, "--device auto|cpu|cuda") != NULL);
    CHECK(strstr(out.bytes, "--help") != NULL);
    buf_free(&out);
}

/* The first row of the second group is hidden; the last group has no visible row. */
static const struct option_row grouped_rows[] = {
    {.name = "one", .kind = OPTION_IGNORED, .help = "1", .heading = "Numbers"},
    {.name = "two", .kind = OPTION_IGNORED, .help = "2"},
    {.name = "hidden", .kind = OPTION_IGNORED, .heading = "Let-ters"},
    {.name = "a", .kind = OPTION_IGNORED, .help = "a letter"},
    {.name = "unseen", .kind = OPTION_IGNORED, .heading = "Nothing"},
};

TEST(groups_have_headings)
{
    const struct option_table grouped = {.program = "p",
                                         .rows = grouped_rows,
                                         .row_count = sizeof grouped_rows / sizeof grouped_rows[0]};
    const struct option_docs docs = {.table = &grouped};
    struct buf out = {0};

    options_help(&grouped, &out);
    buf_add(&out, "", 1);
    CHECK_STR(out.bytes, "Usage: p \n\nOptions (flag, else [VARIABLE], else the default):\n"
                         "\nNumbers:\n"
                         "      --one VALUE               1\n"
                         "      --two VALUE               2\n"
                         "\nLet-ters:\n"
                         "      --a VALUE                 a letter\n"
                         "\nOther:\n"
                         "  -h, --help                    this text\n"
                         "      --version                 the version\n");
    buf_free(&out);
    out = (struct buf){0};
    option_docs_write(&docs, OPTION_FORM_MAN, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, ".SH OPTIONS\n.SS Numbers\n.TP\n\\fB\\-\\-one") != NULL);
    CHECK(strstr(out.bytes, ".SS Let\\-ters\n.TP\n\\fB\\-\\-a\\fR") != NULL);
    CHECK(strstr(out.bytes, ".SS Other\n.TP\n\\fB\\-h") != NULL);
    CHECK(strstr(out.bytes, "Nothing") == NULL);
    buf_free(&out);
}

struct verb_settings {
    const char *name;
    uint32_t tail;
};

/* The options of two verbs, 1 and 2. */
static const struct option_row verb_rows[] = {
    {.name = "name",
     .kind = OPTION_TEXT,
     .min = 1,
     .verbs = 1,
     OPTION_INTO(struct verb_settings, name),
     .help = "the job's"},
    {.name = "log-tail",
     .letter = 't',
     .kind = OPTION_U32,
     .verbs = 2,
     OPTION_INTO(struct verb_settings, tail),
     .help = "lines"},
    {.name = "rdzv-backend", .kind = OPTION_IGNORED, .verbs = 1},
};

static const char *verb_env(const char *name)
{
    return strcmp(name, "DDP_LOG_TAIL") == 0 ? "7" : strcmp(name, "DDP_NAME") == 0 ? "n" : NULL;
}

static bool is_file(const char *positional)
{
    return strcmp(positional, "job.json") == 0;
}

static enum status parse_verb(uint32_t verb, char *const *argv, struct verb_settings *into)
{
    struct option_table verbs = {.program = "ddpctl v",
                                 .rows = verb_rows,
                                 .row_count = sizeof verb_rows / sizeof verb_rows[0],
                                 .env_prefix = "DDP_",
                                 .verb = verb,
                                 .stops_at_positional = true,
                                 .passes = is_file};
    int argc = 0;

    while (argv[argc] != NULL)
        argc++;
    *into = (struct verb_settings){0};
    return options_parse(&verbs, argc, argv, verb_env, into, &result, &err);
}

#define PARSE_VERB(verb, ...)                                                                      \
    parse_verb((verb), (char *const[]){ARG("p"), __VA_ARGS__, NULL}, &of_verb)

TEST(a_verb_takes_its_own_rows)
{
    struct verb_settings of_verb;

    CHECK_EQ(PARSE_VERB(1, ARG("--name=x"), ARG("--rdzv_backend"), ARG("c10d")), STATUS_OK);
    CHECK_STR(of_verb.name, "x");
    CHECK_EQ(of_verb.tail, 0);
    CHECK_EQ(result.sources[2], OPTION_FROM_ARGS);
    CHECK_EQ(PARSE_VERB(2, ARG("x")), STATUS_OK);
    CHECK(of_verb.name == NULL);
    CHECK_EQ(of_verb.tail, 7);
    CHECK_EQ(result.sources[2], OPTION_FROM_DEFAULT);
    CHECK_EQ(PARSE_VERB(2, ARG("--name=x")), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "--name is not an option of ddpctl v; see ddpctl v --help");
    CHECK_EQ(PARSE_VERB(1, ARG("-t1")), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "unknown option -t in -t1; see ddpctl v --help");
    CHECK_EQ(PARSE_VERB(1, ARG("--name="), ARG("x")), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "--name: the value is empty");
    CHECK_EQ(PARSE_VERB(0, ARG("--name=x")), STATUS_BAD_INPUT);
}

TEST(a_file_may_pass_where_positionals_stop_the_options)
{
    struct verb_settings of_verb;

    CHECK_EQ(PARSE_VERB(1, ARG("job.json"), ARG("--name=x"), ARG("job.json"), ARG("--name=y")),
             STATUS_OK);
    CHECK_EQ(result.positional_count, 1);
    CHECK_STR(of_verb.name, "x");
    CHECK_EQ(result.rest_count, 2);
    CHECK_STR(result.rest[0], "job.json");
}

TEST(too_many_of_one_is_refused)
{
    static char *argv[OPTION_TEXTS_MAX + 3];

    argv[0] = ARG("p");
    for (size_t i = 1; i <= OPTION_TEXTS_MAX + 1; i++)
        argv[i] = ARG("-eA=1");
    CHECK_EQ(parse(NULL, argv), STATUS_TOO_BIG);
    argv[OPTION_TEXTS_MAX + 1] = NULL;
    CHECK_EQ(parse(NULL, argv), STATUS_OK);
    for (size_t i = 1; i <= OPTION_POSITIONALS_MAX + 1; i++)
        argv[i] = ARG("x");
    CHECK_EQ(parse(NULL, argv), STATUS_TOO_BIG);
}

static const char *big_env(const char *name)
{
    return strcmp(name, "DEMO_BIG") == 0 ? "5" : NULL;
}

/* A value from the environment does not count as a second use. */
TEST(one_that_counts_once_is_refused_twice)
{
    CHECK_EQ(PARSE(big_env, ARG("--big=1")), STATUS_OK);
    CHECK_EQ(settings.big, 1);
    CHECK_EQ(PARSE(big_env, ARG("--big=1"), ARG("--lr=1"), ARG("--big"), ARG("2")),
             STATUS_BAD_INPUT);
    CHECK_STR(err.text, "--big is given twice: add them");
    CHECK_EQ(PARSE(NULL, ARG("--lr=1"), ARG("--lr=2")), STATUS_OK);
}

TEST_MAIN
