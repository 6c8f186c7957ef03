/* A request for the pages of `ddpctl http`, in lines: method, path, Host, Authorization, Accept, page, rank, refresh. No
 * page without the key or under a name that is not ours, and numbers in their ranges. And the gauges of a node: what
 * is taken of them has the bounds that the pages rely on, and no page or metric made of it breaks. */
#include <math.h>
#include <string.h>

#include "ddpctl/http_pages.h"
#include "ddpctl/http_route.h"
#include "tests/fuzz/target.h"

#define KEY "0123456789abcdef"
#define LINES 8u

void fuzz_corpus(fuzz_add *add)
{
    static const char gauges[] =
        "{\"schema\":\"ddp.gauges.v1\",\"load\":[1,2,3],\"cpus\":4,\"slots\":[{\"slot\":0,"
        "\"state\":"
        "\"busy\",\"job_id\":1,\"rank\":3,\"gpu\":\"<b>\",\"utilization_percent\":87,\"memory_used_"
        "bytes\":1e9,\"age_s\":0.5,\"error\":\"x\"},{\"state\":\"free\"}]}";
    static const char whole[] = "GET\n/\nlocalhost:7480\nBearer 0123456789abcdef\n\n2\n0\n5";
    static const char job[] =
        "HEAD\n/jobs/41\n[::1]:80\nBasic YTowMTIzNDU2Nzg5YWJjZGVm\ntext/plain\n1\n32767\n3600";
    static const char metrics[] =
        "GET\n/metrics\nhead.example\nbearer 0123456789abcdef\napplication/openmetrics-text";
    static const char post[] = "POST\n/healthz\n127.0.0.1\nBasic !!!!";
    static const char *const examples[] = {gauges, whole, job, metrics, post};

    for (size_t i = 0; i < 600; i++) {
        const char *text = examples[i % (sizeof examples / sizeof examples[0])];

        add(text, strlen(text));
    }
}

static void try_route(const uint8_t *data, size_t byte_count)
{
    static const struct http_rules open = {.hosts = {"head.example"}, .host_count = 1};
    static const struct http_rules closed = {
        .token = KEY, .hosts = {"head.example"}, .host_count = 1};
    char text[4096], *lines[LINES], *at = text;
    struct http_route route;
    struct http_request request;

    if (byte_count >= sizeof text || memchr(data, '\0', byte_count) != NULL)
        return;
    memcpy(text, data, byte_count);
    text[byte_count] = '\0';
    for (size_t i = 0; i < LINES; i++)
        lines[i] = at != NULL ? strsep(&at, "\n") : NULL;
    request = (struct http_request){.method = lines[0],
                                    .path = lines[1] != NULL ? lines[1] : "",
                                    .host = lines[2],
                                    .authorization = lines[3],
                                    .accept = lines[4],
                                    .page = lines[5],
                                    .rank = lines[6],
                                    .refresh = lines[7]};
    http_route(&request, &open, &route);
    FUZZ_CHECK(route.what <= HTTP_BAD_HOST || route.what == HTTP_BAD_QUERY);
    if (route.what == HTTP_JOB)
        FUZZ_CHECK(route.job_id > 0 && route.job_id <= JOB_ID_MAX && route.rank >= -1 &&
                   route.rank < (int64_t)RANKS_PER_JOB_MAX);
    FUZZ_CHECK(route.page > 0 && route.refresh_s <= 3600);
    http_route(&request, &closed, &route);
    if (route.what <= HTTP_METRICS) /* then the key is somewhere in it, plain or in base64 */
        FUZZ_CHECK(strstr(lines[3], KEY) != NULL || strncasecmp(lines[3], "basic ", 6) == 0);
}

static void try_gauges(const uint8_t *data, size_t byte_count)
{
    struct cluster cluster = {.taken_us = 1, .node_count = 0};
    const struct part_node node = {.name = "n",
                                   .address = "",
                                   .state = NODE_UP,
                                   .slots = 2,
                                   .drain_reason = "",
                                   .drained_by = "",
                                   .version = "",
                                   .notice = ""};
    const struct msg_nodes page = {.nodes = {.items = &node, .count = 1}};
    struct http_index index = {.server = "", .page = 1};
    struct gauges_table table = {0};
    struct node_gauges *gauges;
    struct err err = {.text = ""};
    struct buf out = {0};

    FUZZ_CHECK(cluster_add_nodes(&cluster, &page) && gauges_table_fit(&table, &cluster));
    gauges = &table.rows[0].gauges;
    if (node_gauges_parse(gauges, (const char *)data, byte_count, &err) == STATUS_OK) {
        FUZZ_CHECK(gauges->slot_count <= SLOTS_PER_NODE_MAX);
        for (uint32_t i = 0; i < gauges->slot_count; i++)
            FUZZ_CHECK(isnan(gauges->slots[i].utilization_percent) ||
                       gauges->slots[i].utilization_percent >= 0);
        table.rows[0].is_known = true;
        table.rows[0].read_us = 1;
        index.view =
            (struct http_view){.cluster = &cluster, .gauges = &table, .now_us = 2, .lost_why = ""};
        http_index_write(&index, &out);
        FUZZ_CHECK(!out.failed && memmem(out.bytes, out.byte_count, "<b>", 3) != NULL);
        http_metrics_write(&index.view, true, &out);
        FUZZ_CHECK(!out.failed);
    } else {
        FUZZ_CHECK(err.text[0] != '\0' && gauges->slots == NULL);
    }
    buf_free(&out);
    gauges_table_free(&table);
    cluster_free(&cluster);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    if (byte_count > 0 && data[0] == '{')
        try_gauges(data, byte_count);
    else
        try_route(data, byte_count);
    return 0;
}
