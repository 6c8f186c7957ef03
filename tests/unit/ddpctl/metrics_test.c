/* Lines of metrics: valid lines come in order, no matter how the input is split; invalid lines are
 * counted. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ddpctl/metric_table.h"
#include "tests/lib/test.h"

struct taken {
    struct metric_table table;
    struct buf out;
    double sum;
};

static void on_line(void *owner, const struct metric_line *line)
{
    struct taken *taken = owner;
    double step = metric_number(line->object, "step");

    taken->sum += isnan(step) ? 0 : step;
    metric_table_line(&taken->table, line, &taken->out);
}

static struct taken taken;
static struct metric_lines lines;

static void begin(const char *format, const char *fields)
{
    metric_lines_close(&lines);
    buf_free(&taken.out);
    taken = (struct taken){0};
    lines = (struct metric_lines){.take = on_line, .owner = &taken};
    CHECK_EQ(metric_table_init(&taken.table, format, fields, NULL), STATUS_OK);
    taken.table.job_id = 7;
}

static void take(uint32_t generation, const char *text, bool is_final)
{
    metric_lines_take(&lines, generation, 0, text, strlen(text), is_final);
}

static const char *output(void)
{
    buf_add(&taken.out, "", 1);
    CHECK(!taken.out.failed);
    return taken.out.bytes;
}

TEST(pieces_of_any_size_give_the_same_lines)
{
    static const char text[] = "{\"step\":1}\n{\"step\":2,\"loss\":0.5}\n\n  \r\n{\"step\":3}";

    for (size_t piece = 1; piece < sizeof text; piece++) {
        begin("json", NULL);
        for (size_t at = 0; at < sizeof text - 1; at += piece) {
            size_t count = sizeof text - 1 - at < piece ? sizeof text - 1 - at : piece;

            metric_lines_take(&lines, 1, 0, text + at, count, at + count == sizeof text - 1);
        }
        CHECK_EQ(lines.good, 3);
        CHECK_EQ(lines.bad, 0);
        CHECK(taken.sum == 6);
    }
}

TEST(bad_lines_are_counted_and_cost_no_others)
{
    static const char *const bad[] = {"x",
                                      "[1]",
                                      "1",
                                      "{\"step\":}",
                                      "{\"step\":NaN}",
                                      "{\"step\":1e999}",
                                      "{\"step\":1,\"step\":2}",
                                      "{\"step\":{\"a\":1}}",
                                      "{\"step\":[1]}",
                                      "{\"step\":1} {\"step\":2}",
                                      "{\"step\":1",
                                      "{\"a\":\"\xff\"}",
                                      "[[[[[[[[[[[[[[[[[[[["};

    begin("json", NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        take(1, bad[i], false);
        take(1, "\n{\"step\":1}\n", false);
        CHECK_EQ(lines.bad, i + 1);
        CHECK_EQ(lines.good, i + 1);
    }
    metric_lines_take(&lines, 1, 0, "{\"a\0\":1}\n{\"step\":\0", 18, true);
    CHECK_EQ(lines.bad, sizeof bad / sizeof bad[0] + 2);
}

TEST(a_line_without_end_is_bounded_and_passed_over)
{
    char block[4096];

    memset(block, 'x', sizeof block);
    begin("json", NULL);
    take(1, "{\"a\":\"", false);
    for (int i = 0; i < 1000; i++)
        metric_lines_take(&lines, 1, 0, block, sizeof block, false);
    CHECK(lines.line.capacity < 4u * METRIC_LINE_BYTES_MAX);
    take(1, "\"}\n{\"step\":9}\n", false);
    CHECK_EQ(lines.bad, 1);
    CHECK_EQ(lines.good, 1);
    CHECK(taken.sum == 9);
}

TEST(the_last_line_of_a_killed_writer_ends_with_its_generation)
{
    begin("csv", "loss");
    take(1, "{\"step\":1,\"loss\":2}\n{\"step\":2,\"lo", true);
    take(2, "{\"step\":2,\"loss\":1.5}", true);
    CHECK_EQ(lines.bad, 1);
    CHECK_STR(output(), "generation,time,kind,epoch,step,loss\n1,,,,1,2\n2,,,,2,1.5\n");
}

TEST(numbers_keep_their_digits)
{
    begin("csv", "loss");
    take(
        1,
        "{\"loss\":0.1}\n{\"loss\":0.30000000000000004}\n{\"loss\":1e-300}\n{\"loss\":123456789}\n",
        true);
    CHECK_STR(output(),
              "generation,time,kind,epoch,step,loss\n1,,,,,0.1\n1,,,,,0.30000000000000004\n"
              "1,,,,,1e-300\n1,,,,,123456789\n");
}

TEST(csv_is_quoted_and_computes_nothing)
{
    begin("csv", "note");
    take(1, "{\"note\":\"a,\\\"b\\\"\\n\\u001b[31m\"}\n{\"note\":\"=1+1\"}\n{\"note\":-2}\n", true);
    CHECK_STR(output(),
              "generation,time,kind,epoch,step,note\n1,,,,,\"a,\"\"b\"\"\\x0a\\x1b[31m\"\n"
              "1,,,,,'=1+1\n1,,,,,-2\n");
}

TEST(a_table_has_columns_and_no_control_characters)
{
    begin("table", "loss,samples_per_s");
    take(1,
         "{\"kind\":\"step\",\"step\":12,\"loss\":0.123456789,\"images_per_s\":5120}\n"
         "{\"kind\":\"\\u001b]0;x\\u0007\",\"loss\":1}\n{\"kind\":\"checkpoint\",\"step\":12}\n",
         true);
    CHECK_STR(
        output(),
        "gen                      time        kind  epoch      step          loss  samples_per_s\n"
        "  1                         -        step      -        12      0.123457          5120\n"
        "  1                         -  \\x1b]0;x\\x07      -         -             1             "
        "-\n");
}

TEST(json_has_our_facts_and_the_fields_of_the_line)
{
    begin("json", NULL);
    take(3,
         "{\"step\":1,\"generation\":99,\"job_id\":\"x\",\"type\":\"end\",\"own\":true,\"none\":"
         "null}\n",
         true);
    CHECK_STR(output(), "{\"schema\":\"ddp.v1\",\"type\":\"metrics\",\"job_id\":7,\"generation\":3,"
                        "\"rank\":0,\"step\":1,\"own\":true,\"none\":null}\n");
    begin("json", "own");
    take(3, "{\"step\":1,\"own\":2,\"more\":3}\n{\"more\":3}\n", true);
    CHECK_STR(output(), "{\"schema\":\"ddp.v1\",\"type\":\"metrics\",\"job_id\":7,\"generation\":3,"
                        "\"rank\":0,\"step\":1,\"own\":2}\n");
}

TEST(formats_and_fields_are_checked)
{
    struct metric_table table;
    struct err err = {0};

    CHECK_EQ(metric_table_init(&table, "xml", NULL, &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "--format: 'xml' should be table, csv or json");
    CHECK_EQ(metric_table_init(&table, NULL, "loss,,lr", &err), STATUS_BAD_INPUT);
    CHECK_EQ(metric_table_init(&table, NULL, "loss,", &err), STATUS_BAD_INPUT);
    CHECK_STR(err.text, "--field: 'loss,' should be like loss,samples_per_s");
    metric_lines_close(&lines);
    buf_free(&taken.out);
}

TEST_MAIN
