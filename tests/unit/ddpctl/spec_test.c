#include <stdio.h>
#include <string.h>

#include "ddpctl/spec.h"
#include "tests/lib/test.h"

static struct arena arena;

static enum status parse(struct spec *spec, const char *text, struct err *err)
{
    arena_reset(&arena);
    spec_init(spec);
    return spec_parse(spec, &arena, "job.json", text, strlen(text), err);
}

static void expect_error(const char *text, const char *expected)
{
    struct spec spec;
    struct err err = {0};

    CHECK(parse(&spec, text, &err) != STATUS_OK);
    if (!strstr(err.text, expected))
        FAIL("'%s' gave '%s', not '%s'", text, err.text, expected);
}

TEST(a_whole_specification)
{
    struct spec spec;
    struct err err = {0};

    CHECK_EQ(parse(&spec,
                   "{\"schema\":\"ddp.v1\",\"name\":\"r50\",\"nodes\":2,\"nproc_per_node\":8,"
                   "\"argv\":[\"python3\",\"a b\"],\n"
                   "\"env\":{\"A\":\"1\",\"B\":\"\"},\"cwd\":\"/"
                   "x\",\"max_restarts\":0,\"grace\":\"5m\",\"time\":1.5}",
                   &err),
             STATUS_OK);
    CHECK_STR(spec.name, "r50");
    CHECK_EQ(spec.nodes, 2);
    CHECK_EQ(spec.nproc_per_node, 8);
    CHECK_EQ(spec.argv.count, 2);
    CHECK_STR(spec.argv.items[1], "a b");
    CHECK_EQ(spec.env_count, 2);
    CHECK_STR(spec.env[1].name, "B");
    CHECK_EQ(spec.max_restarts, 0);
    CHECK(spec.restarts_given);
    CHECK_EQ(spec.grace_us, 300000000);
    CHECK_EQ(spec.time_limit_us, 1500000);
    CHECK_STR(spec.cwd, "/x");
}

TEST(mistakes_are_named_with_their_line)
{
    expect_error("{\n \"argv\": [\"x\"],\n \"max_restart\": 3}",
                 "job.json, line 3: there is no key 'max_restart'; did you mean 'max_restarts'?");
    expect_error("{\"nodes\": 0}", "job.json, line 1: nodes should be a whole number in 1..4096");
    expect_error("{\"nodes\": 1.5}", "nodes should be a whole number");
    expect_error("{\"nodes\": \"2:1\"}", "line 1: --nodes 2:1");
    expect_error("{\"argv\": \"python x\"}", "argv should be an array of strings");
    expect_error("{\"argv\": [1]}", "argv should be an array of strings");
    expect_error("{\"argv\": []}", "argv should be an array of strings");
    expect_error("{\"grace\": \"soon\"}", "grace should be a duration");
    expect_error("{\"env\": {\"A\": 1}}", "A should be a string");
    expect_error("{\"env\": {\"A=B\": \"x\"}}", "'A=B' is no name of a variable");
    expect_error("{\"env\": {\"DDP_X\": \"x\"}}", "DDP_X is the platform's own");
    expect_error("{\"schema\": \"ddp.v2\"}", "schema should be \"ddp.v1\"");
    expect_error("[]", "a job is a JSON object");
    expect_error("{\"nodes\":1,\"nodes\":2}", "job.json: ");
    expect_error("{\"nodes\":1} x", "job.json: ");
    expect_error("", "job.json: ");
}

TEST(node_counts)
{
    uint32_t nodes = 0, min = 0;
    struct err err = {0};

    CHECK_EQ(spec_nodes_parse("3", &nodes, &min, &err), STATUS_OK);
    CHECK(nodes == 3 && min == 3);
    CHECK_EQ(spec_nodes_parse("2:2", &nodes, &min, &err), STATUS_OK);
    CHECK(nodes == 2 && min == 2);
    CHECK_EQ(spec_nodes_parse("1:4", &nodes, &min, &err), STATUS_OK);
    CHECK(nodes == 4 && min == 1);
    CHECK_EQ(spec_nodes_parse("4:1", &nodes, &min, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "MIN:MAX") != NULL);
    CHECK_EQ(spec_nodes_parse("0", &nodes, &min, &err), STATUS_BAD_INPUT);
    CHECK_EQ(spec_nodes_parse("1:", &nodes, &min, &err), STATUS_BAD_INPUT);
    CHECK_EQ(spec_nodes_parse("x", &nodes, &min, &err), STATUS_BAD_INPUT);
}

TEST(times_warnings_and_jobs_before)
{
    struct spec spec = {0};
    struct err err = {0};

    arena_reset(&arena);
    CHECK_EQ(spec_hang_parse(&spec, "5m", &err), STATUS_OK);
    CHECK_EQ(spec.hang_timeout_us, 300000000u);
    CHECK_EQ(spec_hang_parse(&spec, "off", &err), STATUS_OK);
    CHECK_EQ(spec.hang_timeout_us, (uint64_t)TIME_US_MAX);
    CHECK_EQ(spec_hang_parse(&spec, "0", &err), STATUS_BAD_INPUT);
    CHECK_EQ(spec_warn_parse(&spec, "60s:USR1", &err), STATUS_OK);
    CHECK(spec.warn_us == 60000000u && spec.warn_signal == 10);
    CHECK_EQ(spec_warn_parse(&spec, "60s", &err), STATUS_BAD_INPUT);
    CHECK_EQ(spec_warn_parse(&spec, "60s:NO", &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "--warn 60s:NO: 'NO' is no signal; examples: USR1, INT, 10");
    CHECK_EQ(spec_warn_parse(&spec, ":USR1", &err), STATUS_BAD_INPUT);
    CHECK_EQ(spec_after_parse(&spec, &arena, "@last:any", &err), STATUS_OK);
    CHECK_STR(spec.after, "@last:any");
    CHECK_EQ(spec_after_parse(&spec, &arena, "12,13:ok", &err), STATUS_OK);
    CHECK_STR(spec.after, "@last:any,12,13:ok");
    CHECK_EQ(spec_after_parse(&spec, &arena, "12:bad", &err), STATUS_BAD_INPUT);
    CHECK_EQ(spec_after_parse(&spec, &arena, ":any", &err), STATUS_BAD_INPUT);
    CHECK_STR(spec.after, "@last:any,12,13:ok");
    for (uint32_t i = 3; i < AFTER_MAX; i++)
        CHECK_EQ(spec_after_parse(&spec, &arena, "1", &err), STATUS_OK);
    CHECK_EQ(spec_after_parse(&spec, &arena, "1", &err), STATUS_TOO_BIG);
    CHECK_STR(err.text, "--after: a job can wait for 16 others at most; an array counts as one");
}

static void expect_name(const char *const *words, uint32_t count, const char *expected)
{
    struct msg_text_list argv = {.items = words, .count = count};
    char name[JOB_NAME_BYTES_MAX];

    spec_default_name(&argv, name);
    CHECK_STR(name, expected);
    CHECK(spec_name_is_valid(name));
}

TEST(names_come_from_the_command)
{
    expect_name((const char *[]){"/usr/bin/env"}, 1, "env");
    expect_name((const char *[]){"python3", "-u", "x/train.py", "--a"}, 4, "train");
    expect_name((const char *[]){"python3", "-c", "pass"}, 3, "python3");
    expect_name((const char *[]){"./my prog!"}, 1, "my_prog_");
    expect_name((const char *[]){"/"}, 1, "job");
    expect_name(
        (const char *[]){"0123456789012345678901234567890123456789012345678901234567890123456789"},
        1, "012345678901234567890123456789012345678901234567890123456789012");
}

TEST(the_environment_is_added_below_explicit_variables)
{
    struct spec spec;
    struct err err = {0};
    struct spec_left_out left_out = {0};
    char *const environ[] = {(char *)(uintptr_t)("PATH=/bin"),
                             (char *)(uintptr_t)("A=old"),
                             (char *)(uintptr_t)("DDP_SERVER=x"), /* of an option: not listed */
                             (char *)(uintptr_t)("DDP_CUDA_SYNC=1"),
                             (char *)(uintptr_t)("NCCL_SOCKET_MAGIC=1"),
                             (char *)(uintptr_t)("\x1b]0;\xff=1"),
                             (char *)(uintptr_t)("BASH_FUNC_f%%=() {\n true\n}"),
                             (char *)(uintptr_t)("BAD=\xff"),
                             (char *)(uintptr_t)("EMPTY="),
                             NULL};

    CHECK_EQ(parse(&spec, "{}", &err), STATUS_OK);
    CHECK_EQ(spec_set_env_text(&spec, &arena, "A=new=er", &err), STATUS_OK);
    CHECK_EQ(spec_add_environ(&spec, &arena, environ, &left_out, &err), STATUS_OK);
    CHECK_EQ(left_out.ours, 2);
    CHECK_EQ(left_out.invalid, 2);
    buf_add(&left_out.ours_names, "", 1);
    buf_add(&left_out.invalid_names, "", 1);
    CHECK_STR(left_out.ours_names.bytes, "DDP_CUDA_SYNC NCCL_SOCKET_MAGIC");
    CHECK_STR(left_out.invalid_names.bytes, "\\x1b]0;\\xff BAD");
    buf_free(&left_out.ours_names);
    buf_free(&left_out.invalid_names);
    CHECK_EQ(spec.env_count, 4);
    CHECK_STR(spec.env[0].value, "new=er");
    CHECK_STR(spec.env[1].name, "PATH");
    CHECK_STR(spec_env_value(&spec, "BASH_FUNC_f%%"), "() {\n true\n}");
    CHECK_STR(spec.env[3].value, "");
    CHECK_EQ(spec_set_env_text(&spec, &arena, "NO_SUCH_VARIABLE_HERE", &err), STATUS_BAD_INPUT);
}

TEST(many_variables_that_are_left_out_are_not_all_named)
{
    static char texts[20][24];
    char *environ[21] = {NULL};
    struct spec_left_out left_out = {0};
    struct spec spec;
    struct err err = {0};

    for (int i = 0; i < 20; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "DDP_NONE_%d=1", i);
        environ[i] = texts[i];
    }
    CHECK_EQ(parse(&spec, "{}", &err), STATUS_OK);
    CHECK_EQ(spec_add_environ(&spec, &arena, environ, &left_out, &err), STATUS_OK);
    CHECK_EQ(left_out.ours, 20);
    buf_add(&left_out.ours_names, "", 1);
    CHECK_STR(left_out.ours_names.bytes + strlen(left_out.ours_names.bytes) - 15,
              " DDP_NONE_7 ...");
    buf_free(&left_out.ours_names);
}

static enum status request_of(struct spec *spec, struct err *err)
{
    static const char *words[] = {"x"};
    struct msg_submit submit;

    spec->argv = (struct msg_text_list){.items = words, .count = 1};
    return spec_request(spec, "0123456789abcdef0123456789abcdef", "name", "/", &submit, err);
}

/* 2 MiB is what Linux gives a program; so many variables take that, too. */
TEST(an_environment_may_be_as_large_as_a_program_takes_it)
{
    static char names[60000][16], value[ENV_TEXT_BYTES_MAX];
    struct spec spec;
    struct err err = {0};

    CHECK_EQ(parse(&spec, "{}", &err), STATUS_OK);
    for (int i = 0; i < 60000; i++) {
        (void)snprintf(names[i], sizeof names[i], "SVC_%d", i);
        CHECK_EQ(spec_set_env(&spec, &arena, names[i], names[i], &err), STATUS_OK);
    }
    CHECK_EQ(spec_set_env(&spec, &arena, "SVC_7", "again", &err), STATUS_OK);
    CHECK_EQ(spec.env_count, 60000);
    CHECK_STR(spec_env_value(&spec, "SVC_7"), "again");
    CHECK_STR(spec_env_value(&spec, "SVC_59999"), "SVC_59999");
    CHECK_EQ(request_of(&spec, &err), STATUS_OK);

    memset(value, 'x', sizeof value - 1);
    CHECK_EQ(parse(&spec, "{}", &err), STATUS_OK);
    CHECK_EQ(spec_set_env(&spec, &arena, "B", value, &err), STATUS_TOO_BIG);
    CHECK(strstr(err.text, "environment: B has 131073 bytes") != NULL);
    value[sizeof value - 16] = '\0';
    for (int i = 0; i < 16; i++)
        CHECK_EQ(spec_set_env(&spec, &arena, names[i], value, &err), STATUS_OK);
    CHECK_EQ(request_of(&spec, &err), STATUS_OK);
    for (int i = 16; i < 24; i++)
        CHECK_EQ(spec_set_env(&spec, &arena, names[i], value, &err), STATUS_OK);
    CHECK_EQ(spec_set_env(&spec, &arena, names[24], value + 1, &err), STATUS_OK);
    CHECK_EQ(request_of(&spec, &err), STATUS_TOO_BIG);
    CHECK(strstr(err.text, "SVC_10 (131063 bytes)") != NULL);
    CHECK(strstr(err.text, "--env-clear") != NULL);
    arena_reset(&arena);
}

TEST(impossible_requests_are_refused)
{
    struct spec spec;
    struct err err = {0};
    struct msg_submit submit;
    const char *words[] = {"x\xff"};

    CHECK_EQ(parse(&spec, "{}", &err), STATUS_OK);
    CHECK_EQ(spec_request(&spec, "id", "name", "/", &submit, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "there is no command") != NULL);
    spec.argv = (struct msg_text_list){.items = words, .count = 1};
    CHECK_EQ(spec_request(&spec, "id", "name", "/", &submit, &err), STATUS_BAD_INPUT);
    words[0] = "x";
    CHECK_EQ(spec_request(&spec, "id", "a name", "/", &submit, &err), STATUS_BAD_INPUT);
    spec.nodes = 4096;
    spec.nproc_per_node = 64;
    CHECK_EQ(spec_request(&spec, "id", "name", "/", &submit, &err), STATUS_TOO_BIG);
    spec.nodes = 2;
    CHECK_EQ(spec_request(&spec, "id", "name", "/", &submit, &err), STATUS_OK);
    spec.replace_stragglers = true;
    CHECK_EQ(spec_request(&spec, "id", "name", "/", &submit, &err), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "--replace-stragglers needs a spare node") != NULL);
    spec.spares = 1;
    CHECK_EQ(spec_request(&spec, "id", "name", "/", &submit, &err), STATUS_OK);
    CHECK_EQ(submit.spares, 1);
    CHECK(submit.replace_stragglers);
    spec.requeue_at_limit = true;
    spec.time_limit_us = 0;
    CHECK_EQ(spec_request(&spec, "0", "x", "/", &submit, &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "--requeue-at-limit needs a limit: add --time 8h");
    spec.time_limit_us = 1;
    CHECK_EQ(spec_request(&spec, "0", "x", "/", &submit, &err), STATUS_OK);
    CHECK(submit.requeue_at_limit);
    arena_reset(&arena);
}

static const char *store_of(const char *text, bool none)
{
    struct spec spec;
    struct err err = {0};
    const struct msg_pair_list launch = {.items = spec.launch, .count = 1};

    CHECK_EQ(parse(&spec, text, &err), STATUS_OK);
    CHECK_EQ(spec_choose_store(&spec, none, &err), STATUS_OK);
    CHECK_EQ(spec.launch_count, 1);
    return launch_value(&launch, LAUNCH_STORE);
}

static const char *store_with_styles(const char *styles)
{
    struct spec spec;
    struct err err = {0};
    const struct msg_pair_list launch = {.items = spec.launch, .count = 2};

    CHECK_EQ(parse(&spec, "{\"argv\":[\"x\"]}", &err), STATUS_OK);
    CHECK_EQ(spec_set_launch(&spec, LAUNCH_ENV_STYLE, styles, &err), STATUS_OK);
    CHECK_EQ(spec_choose_store(&spec, false, &err), STATUS_OK);
    return launch_value(&launch, LAUNCH_STORE);
}

TEST(who_gets_a_store)
{
    CHECK_STR(store_of("{\"nodes\":2,\"argv\":[\"python3\",\"train.py\"]}", false), "on");
    CHECK_STR(store_of("{\"nodes\":2,\"argv\":[\"python3\",\"ddp-worker\"]}", false), "on");
    CHECK_STR(store_of("{\"nodes\":2,\"argv\":[\"ddp-worker\"]}", false), "off");
    CHECK_STR(store_of("{\"nodes\":2,\"argv\":[\"/opt/bin/ddp-worker\"]}", false), "off");
    CHECK_STR(
        store_of("{\"nodes\":2,\"argv\":[\"ddp-worker\"],\"launch\":{\"store\":\"on\"}}", false),
        "on");
    CHECK_STR(store_of("{\"nodes\":2,\"argv\":[\"x\"],\"launch\":{\"store\":\"off\"}}", false),
              "off");
    CHECK_STR(store_of("{\"nodes\":2,\"argv\":[\"x\"],\"launch\":{\"store\":\"on\"}}", true),
              "off");
    CHECK_STR(store_of("{\"nodes\":2,\"argv\":[\"x\"]}", true), "off");
    CHECK_STR(
        store_of(
            "{\"nodes\":2,\"argv\":[\"x\"],\"env\":{\"TORCH_DISABLE_SHARE_RDZV_TCP_STORE\":\"1\"}}",
            false),
        "off");
    CHECK_STR(
        store_of(
            "{\"nodes\":2,\"argv\":[\"x\"],\"env\":{\"TORCH_DISABLE_SHARE_RDZV_TCP_STORE\":\"0\"}}",
            false),
        "on");
    /* The one rank of a job may start others, which meet in a store of its own. */
    CHECK_STR(store_of("{\"argv\":[\"python3\",\"train.py\"]}", false), "off");
    CHECK_STR(store_of("{\"nproc_per_node\":2,\"argv\":[\"python3\",\"train.py\"]}", false), "on");
    CHECK_STR(store_of("{\"nodes_min\":1,\"nodes\":2,\"argv\":[\"x\"]}", false), "on");
    CHECK_STR(store_of("{\"argv\":[\"x\"],\"launch\":{\"store\":\"on\"}}", false), "on");
    CHECK_STR(store_with_styles("horovod"), "on");
    CHECK_STR(store_with_styles("slurm,mpi"), "off");
    arena_reset(&arena);
}

TEST_MAIN
