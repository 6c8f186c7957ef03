/* The report of a job: its contents, that no text of a job becomes markup, and that its size is
 * bounded. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ddpctl/report_page.h"
#include "tests/lib/test.h"

#define NOW_MS 1795224042123

static struct report_data data;
static struct metric_lines lines;
static struct cause cause_items[REPORT_CAUSES_MAX];
static struct causes causes;
static struct part_job job;
static struct msg_job_info info;
static struct buf page;

static void on_line(void *owner, const struct metric_line *line)
{
    (void)owner;
    report_data_take(&data, line);
}

static void begin(void)
{
    metric_lines_close(&lines);
    report_data_free(&data);
    buf_free(&page);
    memset(cause_items, 0, sizeof cause_items);
    data = (struct report_data){0};
    page = (struct buf){0};
    lines = (struct metric_lines){.take = on_line};
    job = (struct part_job){.job_id = 7,
                            .name = "r50",
                            .user = "ada",
                            .state = JOB_SUCCEEDED,
                            .ended = true,
                            .generation = 1,
                            .nodes = 1,
                            .nproc_per_node = 2,
                            .where = "node0",
                            .straggler = "",
                            .reason = "",
                            .submitted_ms = NOW_MS - 60000,
                            .started_ms = NOW_MS - 50000,
                            .ended_ms = NOW_MS};
    info = (struct msg_job_info){.jobs = {.items = &job, .count = 1},
                                 .failed_rank = -1,
                                 .failed_node = "",
                                 .tail = "",
                                 .cwd = "/home/ada"};
    causes_init(&causes, cause_items, REPORT_CAUSES_MAX, job.name, job.job_id);
}

__attribute__((format(printf, 2, 3))) static void say(uint32_t generation, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    metric_lines_take(&lines, generation, 0, text, strlen(text), false);
    metric_lines_take(&lines, generation, 0, "\n", 1, false);
}

static void event(uint32_t generation, const char *text)
{
    causes_take(&causes, &(struct part_event){
                             .id = 1, .at_ms = NOW_MS, .generation = generation, .text = text});
}

static const char *write_page(const struct part_event *events, uint32_t event_count)
{
    const struct report_page report = {.info = &info,
                                       .data = &data,
                                       .lines = lines.good,
                                       .bad_lines = lines.bad,
                                       .causes = &causes,
                                       .events = events,
                                       .event_count = event_count,
                                       .now_ms = NOW_MS};

    report_page_write(&report, &page);
    buf_add(&page, "", 1);
    CHECK(!page.failed);
    return page.bytes;
}

static uint32_t count_of(const char *text, const char *part)
{
    uint32_t count = 0;

    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        count++;
    return count;
}

/* Checks that every element is closed, in order, and that attributes are quoted. */
static void check_well_formed(const char *html)
{
    static const char *const empty[] = {"meta"};
    char open[64][16];
    uint32_t depth = 0;

    for (const char *at = strchr(html, '<'); at != NULL; at = strchr(at, '<')) {
        const char *end = at;
        bool is_quoted = false, is_empty = at[1] == '!';
        char name[16];

        for (; *end != '\0' && (is_quoted || *end != '>'); end++)
            is_quoted ^= *end == '"';
        CHECK(*end == '>');
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 1 + (at[1] == '/'), " >/"),
                       at + 1 + (at[1] == '/'));
        for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++)
            is_empty = is_empty || strcmp(name, empty[i]) == 0;
        if (at[1] == '/') {
            CHECK(depth > 0);
            CHECK_STR(name, open[--depth]);
        } else if (!is_empty && end[-1] != '/') {
            CHECK(depth < 64);
            (void)snprintf(open[depth++], sizeof open[0], "%s", name);
        }
        at = end;
    }
    CHECK_EQ(depth, 0);
}

TEST(spikes_stay_in_a_reduced_curve)
{
    struct series series = {0};

    for (uint32_t i = 0; i < 1000000; i++)
        CHECK(series_add(&series, i, i == 123456 ? 99.0 : i == 654321 ? -99.0 : (double)(i % 7)));
    CHECK(series.count <= SERIES_POINTS_MAX && series.capacity <= SERIES_POINTS_MAX);
    series_reduce(&series, 300);
    CHECK(series.count <= 602 && series.count > 300);
    for (uint32_t i = 1; i < series.count; i++)
        CHECK(series.points[i].step >= series.points[i - 1].step);
    for (int wanted = -99; wanted <= 99; wanted += 198) {
        bool found = false;

        for (uint32_t i = 0; i < series.count; i++)
            found = found || (series.points[i].value == wanted &&
                              series.points[i].step == (wanted > 0 ? 123456 : 654321));
        CHECK(found);
    }
    series_drop_after(&series, 500000);
    CHECK(series.count > 0 && series.points[series.count - 1].step <= 500000);
    series_free(&series);
    for (uint32_t i = 0; i < 100000; i++) /* all at one step */
        CHECK(series_add(&series, 5, i));
    CHECK(series.count <= SERIES_POINTS_MAX);
    CHECK(series_add(&series, 4, 1) && series_add(&series, (double)NAN, 1) &&
          series_add(&series, 6, (double)INFINITY));
    CHECK(series.points[series.count - 1].step == 5);
    series_free(&series);
}

TEST(steps_that_are_done_again_replace_those_that_were_lost)
{
    begin();
    for (int step = 1; step <= 150; step++)
        say(1, "{\"kind\":\"step\",\"step\":%d,\"loss\":%d}", step, 1000 + step);
    say(1, "{\"kind\":\"checkpoint\",\"step\":100}");
    say(1, "{\"kind\":\"checkpoint\",\"step\":140}");
    say(2, "{\"kind\":\"restart\",\"step\":0,\"generation\":2}");
    say(2, "{\"kind\":\"resume\",\"step\":100,\"generation\":2}");
    CHECK_EQ(data.curves[CURVE_LOSS].count, 100);
    CHECK_EQ(data.checkpoint_count, 1);
    CHECK_EQ(data.restart_count, 1);
    CHECK(data.restarts[0].step == 100);
    say(2, "{\"kind\":\"step\",\"step\":101,\"loss\":1}");
    say(3, "{\"kind\":\"step\",\"step\":51,\"loss\":2}"); /* a program that reports no resume */
    CHECK_EQ(data.curves[CURVE_LOSS].count, 51);
    CHECK_EQ(data.restart_count, 2);
    CHECK(data.restarts[1].step == 50 && data.restarts[1].generation == 3);
    say(3, "{\"loss\":3}"); /* and one that counts no steps */
    CHECK(data.curves[CURVE_LOSS].points[51].step == 52);
}

TEST(a_page_has_curves_restarts_ranks_and_events)
{
    static const struct part_job_rank ranks[] = {
        {.rank = 0, .node = "node0", .slot = 3, .pid = 4711, .state = RANK_EXITED},
        {.rank = 1, .node = "node0", .slot = 5, .pid = 4712, .state = RANK_EXITED, .signal = 9}};
    static const struct part_event events[] = {
        {.at_ms = NOW_MS, .generation = 1, .text = "it began"}};
    const char *html;

    begin();
    for (int step = 1; step <= 2000; step++)
        say(1,
            "{\"kind\":\"step\",\"epoch\":1,\"step\":%d,\"loss\":%g,\"lr\":0.1,\"images_per_s\":"
            "512}",
            step, exp(-step / 200.0));
    say(1, "{\"kind\":\"epoch\",\"epoch\":1,\"step\":2000,\"loss\":0.125}");
    say(1, "{\"kind\":\"validation\",\"epoch\":1,\"step\":2000,\"loss\":0.0625,\"acc1\":71.5,"
           "\"acc5\":93.25}");
    say(1, "{\"kind\":\"checkpoint\",\"epoch\":1,\"step\":2000}");
    say(2, "{\"kind\":\"resume\",\"step\":2000}");
    say(2, "{\"kind\":\"step\",\"step\":2001,\"loss\":0.1}");
    event(1, "rank 9 was killed");
    job.generation = 2;
    info.ranks.items = ranks;
    info.ranks.count = 2;
    html = write_page(events, 1);
    check_well_formed(html);
    CHECK_EQ(count_of(html, "<figure>"), 4); /* loss, accuracy, learning rate, images/s */
    CHECK_EQ(count_of(html, "logarithmic"), 1);
    CHECK(strstr(html, ">g2</text>") != NULL);
    CHECK(strstr(html, "checkpoint at step 2000") != NULL);
    CHECK(strstr(html, "<td>rank 9 was killed</td><td class=\"n\">2000</td>") != NULL);
    CHECK(
        strstr(html,
               "<td class=\"n\">1</td><td class=\"n\">2000</td><td class=\"n\">0.125</td>"
               "<td class=\"n\">0.0625</td><td class=\"n\">71.5</td><td class=\"n\">93.25</td>") !=
        NULL);
    CHECK(strstr(html,
                 "<tr class=\"bad\"><td>1</td><td>node0</td><td>5</td><td>4712</td><td>exited</td>"
                 "<td>SIGKILL</td></tr>") != NULL);
    CHECK(strstr(html, "it began") != NULL);
    CHECK(page.byte_count < 100000);
}

TEST(nothing_of_a_job_is_markup)
{
    static const char evil[] = "\"'><script>alert(1)</script><img src=x onerror=y>&\x1b[31m\xff";
    static const char *const argv[] = {evil, "a b", ""};
    static const struct part_job_rank ranks[] = {{.rank = 0, .node = evil, .state = RANK_LOST}};
    static const struct part_event events[] = {{.at_ms = NOW_MS, .generation = 1, .text = evil}};
    const char *html;

    begin();
    job.user = job.where = job.reason = evil;
    job.name = evil; /* no server accepts that name, but the page must not trust the server */
    job.state = JOB_FAILED;
    job.generation = 2;
    info.argv = (struct msg_text_list){.items = argv, .count = 3};
    info.cwd = info.tail = info.failed_node = evil;
    info.failed_rank = 0;
    info.ranks.items = ranks;
    info.ranks.count = 1;
    event(1, evil);
    say(1, "{\"kind\":\"<script>\",\"step\":1,\"loss\":1,\"note\":\"<script>\"}");
    say(1, "<script>");
    (void)snprintf(data.problems[data.problem_count++], sizeof data.problems[0], "%s", evil);
    html = write_page(events, 1);
    check_well_formed(html);
    CHECK_EQ(count_of(html, "<script"), 0);
    CHECK_EQ(count_of(html, "<img"), 0);
    CHECK_EQ(count_of(html, "\x1b"), 0);
    CHECK_EQ(count_of(html, "\xff"), 0);
    CHECK(count_of(html, "&lt;script&gt;alert(1)") >= 10);
    CHECK_EQ(count_of(html, "http://") + count_of(html, "https://") + count_of(html, "src="),
             count_of(html, "&lt;img src="));
}

TEST(a_job_without_metrics_says_so)
{
    const char *html;

    begin();
    html = write_page(NULL, 0);
    check_well_formed(html);
    CHECK(strstr(html, "This job has no metrics") != NULL);
    CHECK(strstr(html, "r50 (7) succeeded") != NULL);
    begin();
    job.state = JOB_RUNNING;
    job.ended = false;
    job.ended_ms = 0;
    html = write_page(NULL, 0);
    CHECK(strstr(html, "as of 2026-11-") != NULL && strstr(html, "Runs for") != NULL);
}

static void check_numbers(const char *html)
{
    check_well_formed(html);
    CHECK_EQ(count_of(html, "nan") + count_of(html, "inf"), 0);
    CHECK(page.byte_count < 100000);
    buf_drop(&page, page.byte_count);
}

TEST(hostile_numbers_stay_within_the_picture)
{
    static const char *const values[] = {"1e308", "-1e308", "1e-308", "0",
                                         "-0.0",  "1e300",  "5e-324"};

    begin();
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
            say(1, "{\"kind\":\"step\",\"step\":%s,\"loss\":%s,\"lr\":%s,\"images_per_s\":%s}",
                values[i], values[k], values[k], values[i]);
    CHECK(data.curves[CURVE_LOSS].count > 0);
    check_numbers(write_page(NULL, 0));
    say(2, "{\"kind\":\"resume\",\"step\":-1e308}");
    say(3, "{\"kind\":\"resume\",\"step\":1e308}");
    say(3, "{\"kind\":\"checkpoint\",\"step\":1e308}");
    say(3, "{\"kind\":\"validation\",\"epoch\":1e308,\"step\":0,\"loss\":-1e308}");
    say(4, "{\"kind\":\"step\",\"step\":1,\"loss\":1e-310}");
    say(4, "{\"kind\":\"step\",\"step\":2,\"loss\":1e299}");
    job.generation = 4;
    check_numbers(write_page(NULL, 0));
}

TEST(a_page_is_bounded)
{
    static struct part_job_rank ranks[RANKS_PER_JOB_MAX];
    static const char *argv[ARGS_MAX];
    static struct part_event events[REPORT_EVENTS_MAX];

    begin();
    for (uint32_t i = 0; i < RANKS_PER_JOB_MAX; i++)
        ranks[i] =
            (struct part_job_rank){.rank = i, .node = "node", .state = RANK_EXITED, .exit_code = 1};
    for (uint32_t i = 0; i < ARGS_MAX; i++)
        argv[i] = "argument";
    for (uint32_t i = 0; i < REPORT_EVENTS_MAX; i++)
        events[i] = (struct part_event){.at_ms = NOW_MS, .text = "event"};
    for (uint32_t i = 0; i < 100000; i++)
        say(1 + i / 10, "{\"kind\":\"%s\",\"epoch\":%u,\"step\":%u,\"loss\":%u,\"acc1\":%u}",
            i % 3 == 0   ? "step"
            : i % 3 == 1 ? "validation"
                         : "checkpoint",
            i, i, i % 100, i % 77);
    info.argv = (struct msg_text_list){.items = argv, .count = ARGS_MAX};
    info.ranks.items = ranks;
    info.ranks.count = RANKS_PER_JOB_MAX;
    job.generation = GENERATION_MAX;
    check_well_formed(write_page(events, REPORT_EVENTS_MAX));
    CHECK(strstr(page.bytes, "further ranks are not listed") != NULL);
    CHECK(strstr(page.bytes, "The last 256 epochs") != NULL);
    CHECK(page.byte_count < 600000);
    begin();
}

TEST_MAIN
