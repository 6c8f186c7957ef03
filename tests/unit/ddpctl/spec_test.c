#include <string.h>

#include "ddpctl/spec.h"
#include "tests/lib/test.h"

static struct arena arena;

static enum status parse(struct spec *spec, const char *text, struct err *err)
{
    arena_reset(&arena);
    CHECK_EQ(spec_init(spec, &arena, NULL), STATUS_OK);
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
    expect_error("{\"nodes\": \"2\"}", "nodes should be a whole number");
    expect_error("{\"argv\": \"python x\"}", "argv should be an array of strings");
    expect_error("{\"argv\": [1]}", "argv should be an array of strings");
    expect_error("{\"argv\": []}", "argv should be an array of strings");
    expect_error("{\"grace\": \"soon\"}", "grace should be a duration");
    expect_error("{\"env\": {\"A\": 1}}", "A should be a string");
    expect_error("{\"env\": {\"1A\": \"x\"}}", "'1A' is no name of a variable");
    expect_error("{\"env\": {\"DDP_X\": \"x\"}}", "DDP_X is the platform's own");
    expect_error("{\"schema\": \"ddp.v2\"}", "schema should be \"ddp.v1\"");
    expect_error("[]", "a job is a JSON object");
    expect_error("{\"nodes\":1,\"nodes\":2}", "job.json: ");
    expect_error("{\"nodes\":1} x", "job.json: ");
    expect_error("", "job.json: ");
}

TEST(node_counts)
{
    uint32_t nodes = 0;
    struct err err = {0};

    CHECK_EQ(spec_nodes_parse("3", &nodes, &err), STATUS_OK);
    CHECK_EQ(nodes, 3);
    CHECK_EQ(spec_nodes_parse("2:2", &nodes, &err), STATUS_OK);
    CHECK_EQ(nodes, 2);
    CHECK_EQ(spec_nodes_parse("1:4", &nodes, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "a job that changes its size comes later") != NULL);
    CHECK_EQ(spec_nodes_parse("0", &nodes, &err), STATUS_BAD_INPUT);
    CHECK_EQ(spec_nodes_parse("1:", &nodes, &err), STATUS_BAD_INPUT);
    CHECK_EQ(spec_nodes_parse("x", &nodes, &err), STATUS_BAD_INPUT);
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
    uint32_t left_out = 0;
    char *const environ[] = {(char *)(uintptr_t)("PATH=/bin"),
                             (char *)(uintptr_t)("A=old"),
                             (char *)(uintptr_t)("DDP_SERVER=x"),
                             (char *)(uintptr_t)("BASH_FUNC_f%%=() {}"),
                             (char *)(uintptr_t)("BAD=\xff"),
                             (char *)(uintptr_t)("EMPTY="),
                             NULL};

    CHECK_EQ(parse(&spec, "{}", &err), STATUS_OK);
    CHECK_EQ(spec_set_env_text(&spec, &arena, "A=new=er", &err), STATUS_OK);
    CHECK_EQ(spec_add_environ(&spec, &arena, environ, &left_out, &err), STATUS_OK);
    CHECK_EQ(left_out, 2);
    CHECK_EQ(spec.env_count, 3);
    CHECK_STR(spec.env[0].value, "new=er");
    CHECK_STR(spec.env[1].name, "PATH");
    CHECK_STR(spec.env[2].value, "");
    CHECK_EQ(spec_set_env_text(&spec, &arena, "NO_SUCH_VARIABLE_HERE", &err), STATUS_BAD_INPUT);
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
    arena_reset(&arena);
}

TEST_MAIN
