/* Horovod's HTTP store in the c10d store: requests as its http_store.cc sends them, answers as its http_server.py gives. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/c10d_tools.h"
#include "tests/lib/test.h"

static struct c10d_tools tools;

#define OK "HTTP/1.1 200 OK\r\nContent-Length: "
#define MISSING "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
#define REFUSED "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"

static void open_store(const struct c10d_limits *limits)
{
    tools_open(&tools, limits);
    for (uint32_t i = 0; i < 4; i++)
        tools_connect(&tools, i);
}

static void expect(uint32_t client, const char *text)
{
    CHECK_EQ(tools.got[client].byte_count, strlen(text));
    CHECK_BYTES(tools.got[client].bytes, text, strlen(text));
    tools.got[client].byte_count = 0;
}

static void send_text(uint32_t client, const char *text)
{
    tools_send(&tools, client, text, strlen(text));
}

static void ask(uint32_t client, const char *method, const char *path, const char *body)
{
    char text[2048];

    (void)snprintf(text, sizeof text,
                   "%s %s HTTP/1.1\r\nHost: 10.0.0.1:4711\r\nContent-Length: %zu\r\n\r\n%s", method,
                   path, strlen(body), body);
    send_text(client, text);
}

static void expect_value(uint32_t client, const char *value)
{
    char text[1024];

    (void)snprintf(text, sizeof text, OK "%zu\r\n\r\n%s", strlen(value), value);
    expect(client, text);
}

static void expect_closed(uint32_t client, enum c10d_reason reason)
{
    CHECK(!tools.is_open[client]);
    CHECK_EQ(tools.reason[client], reason);
}

TEST(a_value_is_there_once_it_was_put)
{
    open_store(&tool_limits);
    ask(0, "GET", "/global/1", "");
    expect(0, MISSING);
    ask(1, "PUT", "/global/1", "address of 1");
    expect_value(1, "");
    ask(0, "GET", "/global/1", "");
    expect_value(0, "address of 1");
    ask(0, "GET", "/local_n0/1", ""); /* another scope */
    expect(0, MISSING);
    ask(1, "PUT", "/global/1", "again");
    expect_value(1, "");
    ask(2, "GET", "/global/1", "");
    expect_value(2, "again");
    tools_close(&tools);
}

TEST(a_scope_is_cleared_when_all_its_keys_are_deleted)
{
    open_store(&tool_limits);
    for (uint32_t round = 0; round < 2; round++) { /* hvd.init() twice */
        ask(0, "PUT", "/global/0", "zero");
        ask(1, "PUT", "/global/1", "one");
        ask(0, "PUT", "/local_n0/0", "other");
        tools.got[0].byte_count = tools.got[1].byte_count = 0;
        ask(0, "DELETE", "/global/0", "");
        expect_value(0, "");
        ask(0, "DELETE", "/global/0", ""); /* twice counts once */
        expect_value(0, "");
        ask(1, "GET", "/global/0", ""); /* rank 1 has not read it yet */
        expect_value(1, "zero");
        ask(1, "DELETE", "/global/1", "");
        expect_value(1, "");
        ask(1, "GET", "/global/0", "");
        expect(1, MISSING);
        ask(1, "GET", "/global/1", "");
        expect(1, MISSING);
        ask(1, "GET", "/local_n0/0", "");
        expect_value(1, "other");
    }
    ask(2, "DELETE", "/nothing/0", "");
    expect_value(2, "");
    CHECK_EQ(c10d_totals(tools.core).keys, 2); /* of local_n0, and its count */
    tools_close(&tools);
}

TEST(a_key_that_is_put_again_is_needed_again)
{
    open_store(&tool_limits);
    ask(0, "PUT", "/s/0", "a");
    ask(0, "PUT", "/s/1", "b");
    ask(0, "DELETE", "/s/0", "");
    ask(0, "PUT", "/s/0", "c");
    ask(0, "DELETE", "/s/1", "");
    tools.got[0].byte_count = 0;
    ask(0, "GET", "/s/0", "");
    expect_value(0, "c");
    ask(0, "DELETE", "/s/0", "");
    expect_value(0, "");
    CHECK_EQ(c10d_totals(tools.core).keys, 0);
    tools_close(&tools);
}

TEST(requests_are_whole_however_they_are_cut)
{
    static const char text[] = "PUT /s/k HTTP/1.1\r\nHOST: x\r\ncontent-LENGTH:  5 \r\n\r\nab\r\n\n"
                               "GET /s/k HTTP/1.1\n\nGET /s/x HTTP/1.1\r\n\r\n";

    for (size_t cut = 1; cut < sizeof text - 1; cut++) {
        open_store(&tool_limits);
        tools_send(&tools, 0, text, cut);
        tools_send(&tools, 0, text + cut, sizeof text - 1 - cut);
        expect(0, OK "0\r\n\r\n" OK "5\r\n\r\nab\r\n\n" MISSING);
        tools_close(&tools);
    }
}

TEST(other_paths_are_answered_with_400)
{
    static const char *const paths[] = {"/", "/scope", "scope/key", "/a/b/c", "*"};

    open_store(&tool_limits);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        ask(0, "GET", paths[i], "");
        expect(0, REFUSED);
    }
    tools_close(&tools);
}

TEST(what_is_no_such_request_ends_the_connection_alone)
{
    static const char *const texts[] = {
        "HEAD /s/k HTTP/1.1\r\n\r\n",
        "GET /s/k\r\n\r\n",
        "GET /s/k FTP/1.1\r\n\r\n",
        "GETTING\r\n\r\n",
        "PUT /s/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "PUT /s/k HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "PUT /s/k HTTP/1.1\r\nContent-Length: 1x\r\n\r\n",
        "PUT /s/k HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "PUT /s/k HTTP/1.1\r\nContent-Length:\r\n\r\n",
        "PUT /s/k HTTP/1.1\r\nHost: h\r\n\r\nvalue", /* no length */
        "PUT /s/k HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        open_store(&tool_limits);
        send_text(0, texts[i]);
        expect_closed(0, C10D_REASON_NOT_HTTP);
        ask(1, "GET", "/s/k", "");
        expect(1, MISSING);
        tools_close(&tools);
    }
}

TEST(a_length_may_have_tabs_and_be_said_twice)
{
    open_store(&tool_limits);
    send_text(0, "PUT /s/k HTTP/1.1\r\ncontent-length:\t2 \t\r\nContent-Length: 2\r\n\r\nab");
    expect_value(0, "");
    ask(0, "GET", "/s/k", "");
    expect_value(0, "ab");
    tools_close(&tools);
}

TEST(the_last_request_ends_the_connection_after_its_answer)
{
    static const struct {
        const char *head;
        bool is_last;
    } cases[] = {
        {"HTTP/1.1\r\nConnection: close", true},
        {"HTTP/1.1\r\nconnection:Close", true},
        {"HTTP/1.1\r\nConnection: upgrade , CLOSE", true},
        {"HTTP/1.0", true},
        {"HTTP/1.0\r\nConnection: Keep-Alive", false},
        {"HTTP/1.0\r\nConnection: keep-alive, close", true},
        {"HTTP/1.1\r\nConnection: keep-alive", false},
        {"HTTP/1.1\r\nConnection: closed, enclose", false},
        {"HTTP/1.1\r\nX-Connection: close", false},
        {"HTTP/1.1\r\nHost: close", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];

        open_store(&tool_limits);
        (void)snprintf(text, sizeof text, "GET /s/k %s\r\n\r\nGET /s/l HTTP/1.1\r\n\r\n",
                       cases[i].head);
        send_text(0, text);
        CHECK(tools.is_open[0]); /* until its answer is written */
        CHECK_EQ(tools.is_paused[0], cases[i].is_last);
        if (cases[i].is_last) {
            expect(0, MISSING); /* the request after the last one is not answered */
            send_text(0, "GET /s/l HTTP/1.1\r\n\r\n");
            tools_event(&tools, C10D_EVENT_DRAINED, 0);
            expect_closed(0, C10D_REASON_ASKED);
        } else {
            expect(0, MISSING MISSING);
        }
        CHECK(tools.is_open[1]);
        tools_close(&tools);
    }
}

TEST(heads_and_values_have_limits)
{
    char head[9000];

    open_store(&tool_limits);
    memset(head, 'x', sizeof head);
    send_text(0, "GET /s/k HTTP/1.1\r\n");
    tools_send(&tools, 0, head, 4000);
    CHECK(tools.is_open[0]);
    tools_send(&tools, 0, head, sizeof head - 4000);
    expect_closed(0, C10D_REASON_NOT_HTTP);
    send_text(1, "PUT /s/k HTTP/1.1\r\nContent-Length: 8388609\r\n\r\n");
    expect_closed(1, C10D_REASON_VALUE_TOO_LONG);
    tools_close(&tools);
}

TEST(keys_of_c10d_and_of_horovod_do_not_meet)
{
    struct buf requests = {0};

    open_store(&tool_limits);
    ask(0, "PUT", "/s/k", "http");
    tools.got[0].byte_count = 0;
    request_add(&requests, 0, "4", 0x3C85F7CEu);
    request_add(&requests, 1, "kb", "/s/k", "c10d");
    request_add(&requests, 3, "k", "/s/k");
    tools_send(&tools, 1, requests.bytes, requests.byte_count);
    CHECK_EQ(tools.got[1].byte_count, 12);
    CHECK_BYTES(tools.got[1].bytes + 8, "c10d", 4); /* behind its length */
    buf_free(&requests);
    ask(0, "GET", "/s/k", "");
    expect_value(0, "http");
    tools_close(&tools);
}

/* A client that sends one letter and then nothing is closed like any silent client. */
TEST(silence_ends_a_connection)
{
    open_store(&tool_limits);
    send_text(0, "GET /s/k");
    ask(1, "GET", "/s/k", "");
    tools.now_us += tool_limits.hello_us;
    tools_event(&tools, C10D_EVENT_TICK, 0);
    expect_closed(0, C10D_REASON_SILENT);
    CHECK(tools.is_open[1]);
    tools_close(&tools);
}

/* Each allocation fails once: nothing leaks, and the store continues to work. */
TEST(no_memory_ends_one_connection)
{
    for (uint64_t allocations = 0; allocations < 40; allocations++) {
        if (!tools_try_open(&tools, &tool_limits, allocations))
            continue;
        tools_connect(&tools, 0);
        if (tools.is_open[0])
            ask(0, "PUT", "/s/k", "value");
        if (tools.is_open[0])
            ask(0, "DELETE", "/s/k", "");
        tools.allocations_left = UINT64_MAX;
        tools_connect(&tools, 1);
        ask(1, "GET", "/s/other", "");
        expect(1, MISSING);
        tools.got[0].byte_count = 0;
        tools_close(&tools);
    }
}

TEST_MAIN
