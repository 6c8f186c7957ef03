/* What `ddpctl http` makes of a request and of a snapshot: routes, keys, hosts, Prometheus' format, the overview. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base64.h"
#include "ddpctl/http_pages.h"
#include "ddpctl/http_route.h"
#include "tests/lib/test.h"
#include "tests/unit/ddpctl/cluster_tools.h"
#include "tests/unit/ddpctl/golden_tools.h"

#define KEY "0123456789abcdef"

static enum http_what route_of(const struct http_request *request, const struct http_rules *rules,
                               struct http_route *route)
{
    struct http_request whole = *request;

    whole.method = whole.method != NULL ? whole.method : "GET";
    whole.host = whole.host != NULL ? whole.host : "localhost";
    http_route(&whole, rules, route);
    return route->what;
}

static enum http_what path_of(const char *path, struct http_route *route)
{
    static const struct http_rules open = {.token = NULL};

    return route_of(&(struct http_request){.path = path}, &open, route);
}

TEST(paths_are_pages_jobs_or_nothing)
{
    static const char *const none[] = {
        "",        "/jobs",     "/jobs/",     "/jobs/0",
        "/jobs/x", "/jobs/1/",  "/jobs/-1",   "/jobs/1.5",
        "//",      "/metrics/", "/../",       "/jobs/+1",
        "/Jobs/1", "/ ",        "/jobs/1 ",   "/jobs/9007199254740992",
        "/style",  "/healthz2", "/jobs/0x10", "/jobs/99999999999999999999"};
    struct http_route route;

    CHECK_EQ(path_of("/", &route), HTTP_INDEX);
    CHECK_EQ(route.page, 1);
    CHECK_EQ(route.rank, -1);
    CHECK_EQ(path_of("/metrics", &route), HTTP_METRICS);
    CHECK_EQ(path_of("/healthz", &route), HTTP_HEALTH);
    CHECK_EQ(path_of("/style.css", &route), HTTP_STYLE);
    CHECK_EQ(path_of("/jobs/9007199254740991", &route), HTTP_JOB);
    CHECK(route.job_id == 9007199254740991);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        CHECK_EQ(path_of(none[i], &route), HTTP_NOT_FOUND);
}

TEST(queries_are_numbers)
{
    static const struct http_rules open = {.token = NULL};
    static const struct http_request bad[] = {
        {.path = "/", .page = ""},       {.path = "/", .page = "0"},
        {.path = "/", .page = "-1"},     {.path = "/", .page = "100001"},
        {.path = "/", .page = "1x"},     {.path = "/jobs/1", .rank = "32768"},
        {.path = "/jobs/1", .rank = ""}, {.path = "/", .refresh = "3601"},
        {.path = "/", .refresh = "5 "},
    };
    struct http_route route;

    CHECK_EQ(route_of(&(struct http_request){.path = "/jobs/7", .rank = "12", .refresh = "0"},
                      &open, &route),
             HTTP_JOB);
    CHECK_EQ(route.rank, 12);
    CHECK(route.has_refresh && route.refresh_s == 0);
    CHECK_EQ(route_of(&(struct http_request){.path = "/", .page = "3"}, &open, &route), HTTP_INDEX);
    CHECK_EQ(route.page, 3);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_EQ(route_of(&bad[i], &open, &route), HTTP_BAD_QUERY);
}

TEST(nothing_but_get_and_head)
{
    static const char *const methods[] = {"POST", "PUT", "DELETE", "OPTIONS", "get", "TRACE", ""};
    static const struct http_rules open = {.token = NULL};
    struct http_route route;

    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        CHECK_EQ(route_of(&(struct http_request){.path = "/", .method = methods[i]}, &open, &route),
                 HTTP_BAD_METHOD);
    CHECK_EQ(route_of(&(struct http_request){.path = "/", .method = "HEAD"}, &open, &route),
             HTTP_INDEX);
}

TEST(a_name_that_is_not_ours_is_refused)
{
    static const char *const ours[] = {"localhost",    "LOCALHOST:1",   "127.0.0.1:7480",
                                       "[::1]:80",     "[fe80::1]:7",   "10.1.2.3",
                                       "head.example", "Head.Example:9"};
    static const char *const others[] = {"evil.example",
                                         "localhost.evil.example",
                                         "127.0.0.1.nip.io",
                                         "",
                                         ":80",
                                         "[::1",
                                         "[::1]x",
                                         "localhost:80x",
                                         "localhost:",
                                         "head.example.",
                                         "[]",
                                         "localhost:123456"};
    static const struct http_rules rules = {.hosts = {"head.example"}, .host_count = 1};
    const struct http_request none = {.method = "GET", .path = "/"};
    struct http_route route;

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        CHECK_EQ(route_of(&(struct http_request){.path = "/", .host = ours[i]}, &rules, &route),
                 HTTP_INDEX);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(others[i], "localhost:") != 0) /* an empty port is allowed: RFC 3986, 3.2.3 */
            CHECK_EQ(
                route_of(&(struct http_request){.path = "/", .host = others[i]}, &rules, &route),
                HTTP_BAD_HOST);
    http_route(&none, &rules, &route); /* no Host at all */
    CHECK_EQ(route.what, HTTP_BAD_HOST);
}

static void basic(const char *pair, char *header)
{
    size_t length = strlen(pair);

    (void)snprintf(header, 64, "Basic ");
    base64_encode((const uint8_t *)pair, length, header + 6);
    header[6 + BASE64_CHARS(length)] = '\0';
}

TEST(a_key_is_given_whole)
{
    static const struct http_rules rules = {.token = KEY};
    static const char *const wrong[] = {"Bearer 0123456789abcde",
                                        "Bearer 0123456789abcdefg",
                                        "Bearer 0123456789abcdeF",
                                        "Bearer ",
                                        "Bearer",
                                        KEY,
                                        "Basic !!!!",
                                        "Basic ",
                                        "Digest 0123456789abcdef"};
    struct http_request request = {.path = "/metrics"};
    struct http_route route;
    char header[600];

    CHECK_EQ(route_of(&request, &rules, &route), HTTP_NO_KEY);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        request.authorization = wrong[i];
        CHECK_EQ(route_of(&request, &rules, &route), HTTP_NO_KEY);
    }
    request.authorization = "Bearer " KEY;
    CHECK_EQ(route_of(&request, &rules, &route), HTTP_METRICS);
    request.authorization = "bearer " KEY;
    CHECK_EQ(route_of(&request, &rules, &route), HTTP_METRICS);
    basic("anybody:" KEY, header);
    request.authorization = header;
    CHECK_EQ(route_of(&request, &rules, &route), HTTP_METRICS);
    basic(KEY ":x", header);
    CHECK_EQ(route_of(&request, &rules, &route), HTTP_NO_KEY);
    basic(KEY, header);
    CHECK_EQ(route_of(&request, &rules, &route), HTTP_NO_KEY);
    request = (struct http_request){.path = "/healthz"}; /* answers only yes or no */
    CHECK_EQ(route_of(&request, &rules, &route), HTTP_HEALTH);
    request = (struct http_request){.path = "/metrics",
                                    .method = "POST"}; /* shows nothing without a key */
    CHECK_EQ(route_of(&request, &rules, &route), HTTP_NO_KEY);
}

TEST(key_files_have_one_long_line)
{
    char token[HTTP_TOKEN_MAX], longest[HTTP_TOKEN_MAX + 1];
    struct err err = {0};

    CHECK_EQ(http_token_parse(KEY "\n", 17, token, &err), STATUS_OK);
    CHECK_STR(token, KEY);
    CHECK_EQ(http_token_parse("short\n", 6, token, &err), STATUS_BAD_INPUT);
    CHECK_EQ(http_token_parse(KEY " x", 18, token, &err), STATUS_BAD_INPUT);
    CHECK_EQ(http_token_parse(KEY "\nmore", 21, token, &err), STATUS_BAD_INPUT);
    memset(longest, 'k', sizeof longest);
    CHECK_EQ(http_token_parse(longest, HTTP_TOKEN_MAX, token, &err), STATUS_BAD_INPUT);
    CHECK_EQ(http_token_parse(longest, HTTP_TOKEN_MAX - 1, token, &err), STATUS_OK);
}

/* Prometheus' conventions, and those of OpenMetrics for names of counters. */
TEST(names_of_metrics_follow_the_conventions)
{
    for (size_t i = 0; i < http_family_count; i++) {
        const struct http_family *family = &http_families[i];
        size_t length = strlen(family->name), help = strlen(family->help);
        bool is_total = length > 6 && strcmp(family->name + length - 6, "_total") == 0;

        CHECK(strncmp(family->name, "ddp_", 4) == 0);
        CHECK(strspn(family->name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length);
        CHECK_EQ(is_total, strcmp(family->type, "counter") == 0);
        CHECK(help > 10 && family->help[help - 1] == '.' && strpbrk(family->help, "\\\n") == NULL);
        for (size_t other = 0; other < i; other++)
            CHECK(strcmp(http_families[other].name, family->name) != 0);
    }
}

/* Returns the whole file; the caller frees it. */
static char *read_source(const char *path)
{
    char *text = calloc(1, 1u << 20);
    FILE *file = fopen(test_source(path), "re");

    CHECK(text != NULL && file != NULL);
    (void)fread(text, 1, (1u << 20) - 1, file);
    CHECK(fclose(file) == 0);
    return text;
}

static bool is_family(const char *name, size_t length)
{
    for (size_t i = 0; i < http_family_count; i++)
        if (strlen(http_families[i].name) == length &&
            memcmp(http_families[i].name, name, length) == 0)
            return true;
    return false;
}

/* Every metric is in the table of docs/watching.md, and the example of alerts uses no other
 * metric. */
TEST(documents_name_the_metrics_that_there_are)
{
    char *docs = read_source("docs/watching.md");
    char *alerts = read_source("docs/examples/alerts.yml");
    uint32_t seen = 0;

    for (size_t i = 0; i < http_family_count; i++) {
        char row[512];

        (void)snprintf(row, sizeof row, "| `%s` |", http_families[i].name);
        if (strstr(docs, row) == NULL || strstr(docs, http_families[i].help) == NULL)
            FAIL("docs/watching.md lacks %s as it is", http_families[i].name);
    }
    for (const char *at = alerts; (at = strstr(at, "ddp_")) != NULL; seen++) {
        size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");

        if (!is_family(at, length))
            FAIL("there is no metric %.*s", (int)length, at);
        at += length;
    }
    CHECK(seen > 8);
    free(docs);
    free(alerts);
}

TEST(metrics_of_a_cluster)
{
    struct fixture fixture;
    struct buf out = {0};

    fixture_open(&fixture);
    http_metrics_write(&fixture.view, false, &out);
    check_golden("http-metrics", &out);
    http_metrics_write(&fixture.view, true, &out);
    check_golden("http-openmetrics", &out);
    fixture_close(&fixture);
}

/* Without a server no values are shown, since old values would look like new ones. */
TEST(without_a_server_there_is_nothing_but_that)
{
    struct fixture fixture;
    struct buf out = {0};

    fixture_open(&fixture);
    fixture.view.lost_why = "connection refused";
    http_metrics_write(&fixture.view, false, &out);
    buf_add(&out, "", 1);
    CHECK_STR(out.bytes,
              "# HELP ddp_up 1 while the server answers.\n# TYPE ddp_up gauge\nddp_up 0\n");
    buf_free(&out);
    fixture_close(&fixture);
}

TEST(gauges_of_long_ago_are_left_out)
{
    struct fixture fixture;
    struct buf out = {0};

    fixture_open(&fixture);
    fixture.view.now_us = 98 * SECOND_US + 121 * SECOND_US;
    http_metrics_write(&fixture.view, false, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "ddp_gpu_") == NULL && strstr(out.bytes, "ddp_node_load1") == NULL);
    CHECK(strstr(out.bytes, "ddp_node_up{node=\"gpu01\"} 1") != NULL);
    buf_free(&out);
    fixture_close(&fixture);
}

TEST(the_overview)
{
    struct fixture fixture;
    struct http_index index = {.server = "unix:/run/<x>.sock", .page = 1, .refresh_s = 5};
    struct buf out = {0};

    fixture_open(&fixture);
    index.view = fixture.view;
    http_index_write(&index, &out);
    check_golden("http-index", &out);
    index.view.lost_why = "connection <refused>";
    index.refresh_s = 0;
    http_index_write(&index, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "does not answer: connection &lt;refused&gt;. What follows is old") !=
          NULL);
    CHECK(strstr(out.bytes, "http-equiv") == NULL);
    buf_free(&out);
    fixture_close(&fixture);
}

TEST(an_overview_before_the_first_answer)
{
    const struct cluster cluster = {0};
    const struct gauges_table none = {0};
    const struct http_index index = {.view = {.cluster = &cluster, .gauges = &none, .lost_why = ""},
                                     .server = "localhost:7400",
                                     .page = 1};
    struct buf out = {0};

    http_index_write(&index, &out);
    buf_add(&out, "", 1);
    CHECK(!out.failed && strstr(out.bytes, "does not answer: not reached yet.") != NULL);
    CHECK(strstr(out.bytes, "<table") == NULL);
    buf_free(&out);
}

TEST(four_thousand_nodes_have_pages)
{
    struct cluster cluster = {.taken_us = 1};
    struct gauges_table table = {0};
    struct http_index index = {.server = "", .page = 64};
    struct buf out = {0};

    add_many_nodes(&cluster, 4096);
    CHECK(gauges_table_fit(&table, &cluster));
    index.view =
        (struct http_view){.cluster = &cluster, .gauges = &table, .now_us = 2, .lost_why = ""};
    http_index_write(&index, &out);
    buf_add(&out, "", 1);
    CHECK(out.byte_count < 40000);
    CHECK(strstr(out.bytes, "Page 64 of 64.") != NULL && strstr(out.bytes, "node4095") != NULL);
    CHECK(strstr(out.bytes, "node4031") == NULL && strstr(out.bytes, "later</a>") == NULL);
    buf_free(&out);
    out = (struct buf){0};
    index.page = 90000; /* there are fewer pages: shows the last one */
    http_index_write(&index, &out);
    buf_add(&out, "", 1);
    CHECK(strstr(out.bytes, "Page 64 of 64.") != NULL);
    buf_free(&out);
    gauges_table_free(&table);
    cluster_free(&cluster);
}

TEST(gauges_follow_their_nodes_through_snapshots)
{
    struct cluster few = {0}, more = {0};
    struct gauges_table table = {0};

    add_many_nodes(&few, 3);
    CHECK(gauges_table_fit(&table, &few));
    gauges_table_find(&table, "node0001")->read_us = 7;
    add_many_nodes(&more, 5);
    CHECK(gauges_table_fit(&table, &more));
    CHECK_EQ(table.count, 5);
    CHECK_EQ(gauges_table_find(&table, "node0001")->read_us, 7);
    CHECK_EQ(gauges_table_find(&table, "node0004")->read_us, 0);
    CHECK(gauges_table_find(&table, "node0005") == NULL);
    CHECK(gauges_table_fit(&table, &few));
    CHECK(gauges_table_find(&table, "node0004") == NULL);
    CHECK_EQ(gauges_table_find(&table, "node0001")->read_us, 7);
    gauges_table_free(&table);
    cluster_free(&few);
    cluster_free(&more);
}

static void add_node(struct cluster *cluster, const char *name)
{
    const struct part_node node = {.name = name,
                                   .address = "",
                                   .state = NODE_UP,
                                   .drain_reason = "",
                                   .drained_by = "",
                                   .version = "",
                                   .notice = ""};
    const struct msg_nodes page = {.nodes = {.items = &node, .count = 1}};

    CHECK(cluster_add_nodes(cluster, &page));
}

/* In the server's order: numbers in names are sorted by value. */
TEST(nodes_come_in_the_order_of_the_server)
{
    static const char *const names[] = {"n1", "n2", "n9", "n10", "n11", "n100"};
    struct cluster cluster = {0};
    struct gauges_table table = {0};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        add_node(&cluster, names[i]);
    CHECK_EQ(cluster.node_count, 6);
    CHECK(gauges_table_fit(&table, &cluster));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CHECK_STR(cluster.nodes[i].part.name, names[i]);
        gauges_table_find(&table, names[i])->read_us = i + 1;
    }
    CHECK(gauges_table_fit(&table, &cluster));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK_EQ(gauges_table_find(&table, names[i])->read_us, i + 1);
    gauges_table_free(&table);
    cluster_free(&cluster);
}

/* Adds one running job at that step. */
static void add_step(struct cluster *cluster, const struct cluster *before, uint64_t step,
                     uint32_t generation, uint64_t now_us)
{
    const struct part_job job = {.job_id = 1,
                                 .name = "x",
                                 .user = "",
                                 .where = "",
                                 .straggler = "",
                                 .reason = "",
                                 .state = JOB_RUNNING,
                                 .step = step,
                                 .generation = generation};
    const struct msg_jobs page = {.jobs = {.items = &job, .count = 1}};

    CHECK(cluster_add_jobs(cluster, &page, before, now_us));
}

TEST(the_pace_of_a_job_is_known_after_two_steps)
{
    struct cluster a = {0}, b = {0}, c = {0}, d = {0};

    add_step(&a, NULL, 10, 1, 1 * SECOND_US);
    CHECK(isnan(a.jobs[0].steps_per_s));
    add_step(&b, &a, 30, 1, 3 * SECOND_US);
    CHECK_NEAR(b.jobs[0].steps_per_s, 10, 1e-9);
    CHECK_EQ(b.jobs[0].step_us, 3 * SECOND_US);
    add_step(&c, &b, 30, 1, 9 * SECOND_US); /* no progress: the time since the last step is known */
    CHECK_EQ(c.jobs[0].step_us, 3 * SECOND_US);
    CHECK_NEAR(c.jobs[0].steps_per_s, 10, 1e-9);
    add_step(&d, &c, 40, 2, 10 * SECOND_US); /* a restart begins anew, wherever it resumes */
    CHECK(isnan(d.jobs[0].steps_per_s));
    CHECK_EQ(d.jobs[0].step_us, 10 * SECOND_US);
    cluster_free(&a);
    cluster_free(&b);
    cluster_free(&c);
    cluster_free(&d);
}

TEST(gauges_that_are_none_are_refused)
{
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "{\"schema\":\"ddp.gauges.v2\",\"slots\":[]}",
        "{\"schema\":\"ddp.gauges.v1\"}",
        "{\"schema\":\"ddp.gauges.v1\",\"slots\":{}}",
        "{\"schema\":\"ddp.gauges.v1\",\"slots\":[{\"state\":\"odd\"}]}",
        "{\"schema\":\"ddp.gauges.v1\",\"slots\":[1]}",
        "{\"schema\":\"ddp.gauges.v1\",\"slots\":[]}x",
    };
    static const char odd[] =
        "{\"schema\":\"ddp.gauges.v1\",\"load\":[-1],\"cpus\":\"x\",\"slots\":["
        "{\"state\":\"free\",\"job_id\":1.5}]}";
    struct node_gauges kept = {.load = 3};
    struct err err = {0};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(node_gauges_parse(&kept, bad[i], strlen(bad[i]), &err) == STATUS_BAD_INPUT);
        CHECK(kept.load == 3); /* as it was */
    }
    CHECK_EQ(node_gauges_parse(&kept, odd, strlen(odd), &err), STATUS_OK);
    CHECK(isnan(kept.load) && isnan(kept.cpus) && kept.slots[0].job_id == 0);
    node_gauges_free(&kept);
}

TEST_MAIN
