/* The c10d store: the exact reply to each command, waits, limits, streams split anywhere. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/c10d_tools.h"
#include "tests/lib/test.h"

#define MAGIC 0x3C85F7CEu
#define I64(low) "" low "\0\0\0\0\0\0\0"

/* The commands' numbers on the wire. */
#define VALIDATE 0
#define SET 1
#define COMPARE_SET 2
#define GET 3
#define ADD 4
#define CHECK_KEYS 5
#define WAIT 6
#define GETNUMKEYS 7
#define DELETE_KEY 8
#define APPEND 9
#define MULTI_GET 10
#define MULTI_SET 11
#define CANCEL_WAIT 12
#define PING 13
#define QUEUE_PUSH 14
#define QUEUE_POP 15
#define QUEUE_LEN 16
#define LIST_KEYS 17
#define BARRIER 18
static struct c10d_tools tools;
static struct buf requests;

static void open_with(const struct c10d_limits *limits)
{
    tools_open(&tools, limits);
    requests.byte_count = 0;
}

static void validated(uint32_t client)
{
    struct buf hello = {0};

    tools_connect(&tools, client);
    request_add(&hello, VALIDATE, "4", MAGIC);
    if (tools.is_open[client]) /* not where there was no memory for it */
        tools_send(&tools, client, hello.bytes, hello.byte_count);
    buf_free(&hello);
}

static void open_store(void)
{
    open_with(&tool_limits);
    for (uint32_t i = 0; i < 4; i++)
        validated(i);
}

static void close_store(void)
{
    tools_close(&tools);
    buf_free(&requests);
}

/* Sends the bytes that request_add has added, in one piece. */
static void send(uint32_t client)
{
    tools_send(&tools, client, requests.bytes, requests.byte_count);
    requests.byte_count = 0;
}

static void take(uint32_t client, const char *bytes, size_t byte_count)
{
    CHECK_EQ(tools.got[client].byte_count, byte_count);
    if (byte_count > 0)
        CHECK_BYTES(tools.got[client].bytes, bytes, byte_count);
    tools.got[client].byte_count = 0;
}

#define ADD_REQUEST(...) request_add(&requests, __VA_ARGS__)
#define ASK(client, ...)                                                                           \
    do {                                                                                           \
        ADD_REQUEST(__VA_ARGS__);                                                                  \
        send(client);                                                                              \
    } while (0)
#define TAKE(client, literal) take(client, literal, sizeof(literal) - 1)

static void closed_for(uint32_t client, enum c10d_reason reason, const char *command)
{
    CHECK(!tools.is_open[client]);
    CHECK_STR(c10d_reason_words(tools.reason[client]), c10d_reason_words(reason));
    CHECK_STR(tools.command[client], command);
}

TEST(keys_are_set_read_counted_and_deleted)
{
    open_store();
    ASK(0, PING, "4", 0x01020304u);
    TAKE(0, "\4\3\2\1");
    ASK(0, SET, "kb", "/a", "one");
    TAKE(0, "");
    ASK(1, GET, "k", "/a");
    TAKE(1, I64("\3") "one");
    ASK(1, GET, "k", "/none");
    TAKE(1, I64("\0"));
    ASK(0, SET, "kb", "/a", "a longer one");
    ASK(0, APPEND, "kb", "/a", "+");
    ASK(0, APPEND, "kb", "/b", "x");
    ASK(0, APPEND, "kb", "/b", "yz");
    ASK(1, MULTI_GET, "nkkk", 3ULL, "/a", "/none", "/b");
    TAKE(1, I64("\15") "a longer one+" I64("\0") I64("\3") "xyz");
    ASK(0, MULTI_SET, "nkbkb", 2ULL, "/c", "", "/a", "s");
    ASK(0, MULTI_SET, "n", 0ULL);
    ASK(1, GETNUMKEYS, "");
    TAKE(1, I64("\3"));
    ASK(1, CHECK_KEYS, "nkk", 2ULL, "/a", "/c");
    TAKE(1, "\0");
    ASK(1, DELETE_KEY, "k", "/c");
    TAKE(1, I64("\1"));
    ASK(1, DELETE_KEY, "k", "/c");
    TAKE(1, I64("\0"));
    ASK(1, CHECK_KEYS, "nkk", 2ULL, "/a", "/c");
    TAKE(1, "\1");
    ASK(1, CHECK_KEYS, "n", 0ULL);
    TAKE(1, "\0");
    ASK(1, DELETE_KEY, "k", "/b");
    TAKE(1, I64("\1"));
    ASK(1, LIST_KEYS, "");
    TAKE(1, I64("\1") I64("\2") "/a");
    close_store();
}

TEST(numbers_are_added_as_decimal_text)
{
    open_store();
    ASK(0, ADD, "k8", "init/", 3LL);
    TAKE(0, I64("\3"));
    ASK(0, ADD, "k8", "init/", -5LL);
    TAKE(0, "\xfe\xff\xff\xff\xff\xff\xff\xff");
    ASK(0, GET, "k", "init/");
    TAKE(0, I64("\2") "-2");
    ASK(0, SET, "kb", "init/", "-9223372036854775808");
    ASK(0, ADD, "k8", "init/", 0LL);
    TAKE(0, "\0\0\0\0\0\0\0\x80");
    ASK(0, ADD, "k8", "init/", -1LL);
    closed_for(0, C10D_REASON_OUT_OF_RANGE, "ADD");
    ASK(1, SET, "kb", "text", "9223372036854775808");
    ASK(1, ADD, "k8", "text", 0LL);
    closed_for(1, C10D_REASON_NOT_A_NUMBER, "ADD");
    ASK(2, SET, "kb", "text", "");
    ASK(2, ADD, "k8", "text", 0LL);
    closed_for(2, C10D_REASON_NOT_A_NUMBER, "ADD");
    close_store();
}

TEST(compare_set_replies_what_pytorch_documents)
{
    open_store();
    ASK(0, COMPARE_SET, "kbb", "/k", "old", "new");
    TAKE(0, I64("\3") "old"); /* nothing there: nothing stored */
    ASK(0, GETNUMKEYS, "");
    TAKE(0, I64("\0"));
    ASK(0, COMPARE_SET, "kbb", "/k", "", "new");
    TAKE(0, I64("\3") "new");
    ASK(0, COMPARE_SET, "kbb", "/k", "other", "newer");
    TAKE(0, I64("\3") "new");
    ASK(0, COMPARE_SET, "kbb", "/k", "new", "newer");
    TAKE(0, I64("\5") "newer");
    close_store();
}

TEST(queues_are_first_in_first_out_beside_keys)
{
    open_store();
    ASK(0, QUEUE_POP, "k", "/q");
    TAKE(0, I64("\0"));
    ASK(1, WAIT, "nk", 1ULL, "/q");
    ASK(2, WAIT, "nk", 1ULL, "/q");
    ASK(0, QUEUE_PUSH, "kb", "/q", "one");
    TAKE(1, "\0"); /* one waiter a push, the first */
    TAKE(2, "");
    ASK(0, QUEUE_PUSH, "kb", "/q", "two");
    TAKE(2, "\0");
    ASK(0, QUEUE_LEN, "k", "/q");
    TAKE(0, I64("\2"));
    ASK(0, GETNUMKEYS, "");
    TAKE(0, I64("\0"));
    ASK(0, CHECK_KEYS, "nk", 1ULL, "/q");
    TAKE(0, "\0");
    ASK(0, GET, "k", "/q");
    TAKE(0, I64("\0"));
    ASK(0, QUEUE_POP, "k", "/q");
    TAKE(0, I64("\2") I64("\3") "one");
    ASK(0, QUEUE_POP, "k", "/q");
    TAKE(0, I64("\1") I64("\3") "two");
    ASK(0, CHECK_KEYS, "nk", 1ULL, "/q");
    TAKE(0, "\1");
    ASK(0, QUEUE_LEN, "k", "/q");
    TAKE(0, I64("\0"));
    close_store();
}

TEST(a_wait_ends_with_the_last_missing_key)
{
    open_store();
    ASK(0, SET, "kb", "/there", "");
    ASK(1, WAIT, "nkkkk", 4ULL, "/a", "/there", "/b", "/a"); /* one of them twice */
    TAKE(1, "");
    ASK(0, SET, "kb", "/a", "");
    ASK(0, COMPARE_SET, "kbb", "/b", "no", "x");
    TAKE(0, I64("\2") "no");
    TAKE(1, ""); /* nothing stored, so no waiter is woken */
    ASK(0, DELETE_KEY, "k", "/a");
    TAKE(0, I64("\1"));
    ASK(0, COMPARE_SET, "kbb", "/b", "", "x");
    TAKE(1, "\0"); /* a key that was set and deleted does not count again */
    ASK(1, WAIT, "nk", 1ULL, "/b");
    TAKE(1, "\0");
    ASK(1, WAIT, "n", 0ULL);
    TAKE(1, "\0");
    for (uint32_t i = 1; i < 4; i++)
        ASK(i, WAIT, "nkk", 2ULL, "/add", "/append");
    tools_event(&tools, C10D_EVENT_CLOSED, 3);
    ASK(0, ADD, "k8", "/add", 1LL);
    ASK(0, APPEND, "kb", "/append", "x");
    TAKE(1, "\0");
    TAKE(2, "\0");
    TAKE(3, "");
    close_store();
}

TEST(a_wait_is_cancelled_and_the_connection_is_used_on)
{
    open_store();
    ASK(0, CANCEL_WAIT, "");
    TAKE(0, "\1");
    ASK(0, WAIT, "nkk", 2ULL, "/a", "/b");
    ASK(0, CANCEL_WAIT, "");
    TAKE(0, "\1");
    ASK(1, MULTI_SET, "nkbkb", 2ULL, "/a", "", "/b", "");
    TAKE(0, "");
    ASK(0, WAIT, "nk", 1ULL, "/c");
    ASK(1, SET, "kb", "/c", "");
    ASK(0, CANCEL_WAIT, ""); /* too late: both answers, in order */
    TAKE(0, "\0\1");
    ASK(0, WAIT, "nk", 1ULL, "/d");
    ASK(0, COMPARE_SET, "kbb", "/d", "", "own"); /* ends its own wait */
    TAKE(0, I64("\3") "own"
                      "\0");
    ASK(0, WAIT, "nk", 1ULL, "/e");
    ASK(0, WAIT, "nk", 1ULL, "/f");
    closed_for(0, C10D_REASON_WAITS_ALREADY, "WAIT");
    close_store();
}

/* Replies of every length: in one case the wait's answer comes when the reply fills its buffer. */
TEST(a_client_ends_its_own_wait_with_a_reply_of_any_length)
{
    char key[16], value[300] = "";

    open_store();
    for (size_t i = 1; i < sizeof value; i++) {
        memset(value, 'v', i);
        (void)snprintf(key, sizeof key, "/k%zu", i);
        ASK(0, WAIT, "nk", 1ULL, key);
        ASK(0, COMPARE_SET, "kbb", key, "", value);
        CHECK_EQ(tools.got[0].byte_count, 8 + i + 1);
        CHECK_EQ(tools.got[0].bytes[8 + i], 0);
        tools.got[0].byte_count = 0;
    }
    close_store();
}

TEST(a_barrier_lets_go_when_all_have_arrived)
{
    open_store();
    ASK(3, WAIT, "nk", 1ULL, "/b");
    ASK(0, BARRIER, "k8", "/b", 3LL);
    TAKE(3, "\0"); /* the counter is a key */
    ASK(1, BARRIER, "k8", "/b", 3LL);
    ASK(1, CANCEL_WAIT, "");
    TAKE(1, "\1"); /* counted all the same */
    TAKE(0, "");
    ASK(2, BARRIER, "k8", "/b", 3LL);
    TAKE(0, "\0");
    TAKE(1, "");
    TAKE(2, "\0");
    ASK(3, BARRIER, "k8", "/b", 3LL);
    TAKE(3, "\0");
    ASK(3, GET, "k", "/b");
    TAKE(3, I64("\1") "4");
    close_store();
}

TEST(who_does_not_say_hello_is_closed_with_the_reason)
{
    static const struct {
        const char *bytes;
        size_t byte_count;
        enum c10d_reason reason;
    } cases[] = {
        {"\x03\x05\0\0\0\0\0\0\0init/", 14, C10D_REASON_OLD_DIALECT}, /* as PyTorch 1.13 begins */
        {"\0\x06\0\0\0\0\0\0\0", 9, C10D_REASON_OLD_DIALECT},
        {"\0\xCE\xF7\x85\x3D", 5, C10D_REASON_WRONG_MAGIC},
        {"SSH-2.0-OpenSSH\n", 16, C10D_REASON_NOT_VALIDATED}};

    open_store();
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t client = 10 + i;

        tools_connect(&tools, client);
        tools_send(&tools, client, cases[i].bytes, cases[i].byte_count);
        closed_for(client, cases[i].reason, "");
    }
    tools_connect(&tools, 20);
    tools_send(&tools, 20, "\0\xCE\xF7\x85", 4);
    tools.now_us += tool_limits.hello_us - 1;
    tools_event(&tools, C10D_EVENT_TICK, 0);
    CHECK(tools.is_open[20]);
    tools.now_us++;
    tools_event(&tools, C10D_EVENT_TICK, 0);
    closed_for(20, C10D_REASON_SILENT, "");
    CHECK(tools.is_open[0]);
    close_store();
}

/* A length is refused as soon as it is read, before a client sends 8 MiB. */
TEST(what_is_too_long_closes_its_client_alone)
{
    static const char value[] = "\x01\x01\0\0\0\0\0\0\0k\x01\0\x80\0\0\0\0\0", /* 8 MiB and 1 */
        key[] = "\x03\x01\x20\0\0\0\0\0\0", huge[] = "\x03\xff\xff\xff\xff\xff\xff\xff\xff",
                      count[] = "\x05\x01\0\x02\0\0\0\0\0", unknown[] = "\x13";
    struct c10d_limits limits = tool_limits;

    open_store();
    tools_send(&tools, 0, value, sizeof value - 1);
    closed_for(0, C10D_REASON_VALUE_TOO_LONG, "SET");
    tools_send(&tools, 1, key, sizeof key - 1);
    closed_for(1, C10D_REASON_KEY_TOO_LONG, "GET");
    tools_send(&tools, 2, count, sizeof count - 1);
    closed_for(2, C10D_REASON_TOO_MANY_KEYS, "CHECK");
    tools_send(&tools, 3, unknown, 1);
    closed_for(3, C10D_REASON_UNKNOWN_COMMAND, "");
    validated(4);
    tools_send(&tools, 4, huge, sizeof huge - 1);
    closed_for(4, C10D_REASON_KEY_TOO_LONG, "GET");
    close_store();

    limits.message_bytes_max = 100;
    open_with(&limits);
    validated(0);
    validated(1);
    for (int i = 0; i < 10; i++)
        ASK(0, APPEND, "kb", "/k", "0123456789");
    ASK(1, GET, "k", "/k");
    closed_for(1, C10D_REASON_REPLY_TOO_LONG, "GET");
    tools_send(&tools, 0, "\x01\x01\0\0\0\0\0\0\0k\x53\0\0\0\0\0\0\0", 18); /* 18 + 83 */
    closed_for(0, C10D_REASON_MESSAGE_TOO_LONG, "SET");
    close_store();
}

TEST(a_full_store_closes_who_would_add_and_serves_the_others)
{
    struct c10d_limits limits = tool_limits;

    limits.keys_max = 2;
    open_with(&limits);
    for (uint32_t i = 0; i < 4; i++)
        validated(i);
    ASK(0, SET, "kb", "/a", "1");
    ASK(0, QUEUE_PUSH, "kb", "/q", "1");
    ASK(1, SET, "kb", "/b", "1");
    closed_for(1, C10D_REASON_STORE_FULL, "SET");
    ASK(2, QUEUE_PUSH, "kb", "/q", "2");
    closed_for(2, C10D_REASON_STORE_FULL, "QUEUE_PUSH");
    ASK(0, SET, "kb", "/a", "2");
    ASK(0, QUEUE_POP, "k", "/q");
    TAKE(0, I64("\1") I64("\1") "1");
    ASK(0, SET, "kb", "/b", "1");
    ASK(0, GETNUMKEYS, "");
    TAKE(0, I64("\2"));
    close_store();

    limits = tool_limits;
    limits.bytes_max = 100000;
    open_with(&limits);
    validated(0);
    validated(1);
    for (int i = 0; tools.is_open[0] && i < 100000; i++)
        ASK(0, APPEND, "kb", "/k", "0123456789");
    closed_for(0, C10D_REASON_NO_MEMORY, "APPEND");
    CHECK(c10d_totals(tools.core).bytes <= 100000);
    ASK(1, DELETE_KEY, "k", "/k");
    TAKE(1, I64("\1"));
    close_store();
}

TEST(no_memory_for_the_core_is_said)
{
    for (uint64_t n = 0; n < 7; n++) {
        CHECK(!tools_try_open(&tools, &tool_limits, n));
        CHECK_EQ(tools.blocks, 0);
    }
    CHECK(tools_try_open(&tools, &tool_limits, 7));
    close_store();
}

/* Each allocation of the story fails once: a client is closed or nothing changes; nothing leaks. */
TEST(no_memory_at_any_place_closes_a_client_at_most)
{
    for (uint64_t n = 0, refused = 1; refused > 0; n++) {
        refused = 0;
        open_with(&tool_limits);
        tools.allocations_left = n;
        validated(0);
        if (tools.is_open[0])
            validated(1);
        for (int round = 0; round < 2; round++) {
            if (tools.is_open[0] && tools.is_open[1])
                ASK(1, WAIT, "nkk", 2ULL, "/a", "/b");
            if (tools.is_open[0]) {
                ADD_REQUEST(MULTI_SET, "nkbkb", 2ULL, "/a", "1", "/b", "2");
                ADD_REQUEST(QUEUE_PUSH, "kb", "/q", "x");
                ADD_REQUEST(LIST_KEYS, "");
                ADD_REQUEST(GET, "k", "/a");
                tools_send(&tools, 0, requests.bytes, requests.byte_count - 1);
            }
            if (tools.is_open[0])
                tools_send(&tools, 0, "a", 1);
            requests.byte_count = 0;
        }
        for (uint32_t i = 0; i < 2; i++)
            refused += !tools.is_open[i];
        for (uint32_t i = 0; i < 2; i++)
            if (!tools.is_open[i] && tools.command[i] != NULL)
                CHECK_EQ(tools.reason[i], C10D_REASON_NO_MEMORY);
        CHECK(n < 1000);
        if (refused == 0)
            CHECK(n > 10);
        close_store();
    }
}

/* One stream of a client with every command, and the expected replies. */
static void add_story(void)
{
    ADD_REQUEST(VALIDATE, "4", MAGIC);
    ADD_REQUEST(PING, "4", 7u);
    ADD_REQUEST(SET, "kb", "/a", "value");
    ADD_REQUEST(COMPARE_SET, "kbb", "/a", "value", "other");
    ADD_REQUEST(GET, "k", "/a");
    ADD_REQUEST(ADD, "k8", "/n", 40LL);
    ADD_REQUEST(ADD, "k8", "/n", 2LL);
    ADD_REQUEST(CHECK_KEYS, "nkk", 2ULL, "/a", "/x");
    ADD_REQUEST(APPEND, "kb", "/a", "");
    ADD_REQUEST(MULTI_SET, "nkbkb", 2ULL, "/b", "bb", "/c", "");
    ADD_REQUEST(MULTI_GET, "nkkk", 3ULL, "/a", "/b", "/c");
    ADD_REQUEST(WAIT, "nk", 1ULL, "/z");
    ADD_REQUEST(CANCEL_WAIT, "");
    ADD_REQUEST(QUEUE_PUSH, "kb", "/q", "item");
    ADD_REQUEST(QUEUE_LEN, "k", "/q");
    ADD_REQUEST(QUEUE_POP, "k", "/q");
    ADD_REQUEST(DELETE_KEY, "k", "/b");
    ADD_REQUEST(BARRIER, "k8", "/bar", 1LL);
    ADD_REQUEST(GETNUMKEYS, "");
    ADD_REQUEST(LIST_KEYS, "");
}

TEST(a_stream_may_be_split_anywhere)
{
    struct buf story = {0}, whole = {0};

    requests.byte_count = 0;
    add_story();
    buf_add(&story, requests.bytes, requests.byte_count);
    for (size_t split = 0; split <= story.byte_count + 1; split++) {
        open_with(&tool_limits);
        tools_connect(&tools, 0);
        if (split <= story.byte_count) { /* in two; the first time in one */
            if (split > 0)
                tools_send(&tools, 0, story.bytes, split);
            tools_send(&tools, 0, story.bytes + split, story.byte_count - split);
        }
        for (size_t i = 0; split > story.byte_count && i < story.byte_count; i++) /* byte by byte */
            tools_send(&tools, 0, story.bytes + i, 1);
        CHECK(tools.is_open[0]);
        if (split == 0)
            buf_add(&whole, tools.got[0].bytes, tools.got[0].byte_count);
        take(0, whole.bytes, whole.byte_count);
        close_store();
    }
    CHECK(whole.byte_count > 100);
    buf_free(&story);
    buf_free(&whole);
}

TEST(long_replies_are_given_in_parts_that_the_client_has_to_read)
{
    const size_t value_bytes = 300000;
    size_t count = 0;

    open_store();
    for (size_t i = 0; i < value_bytes / 10; i++)
        ADD_REQUEST(APPEND, "kb", "/k", "0123456789");
    send(0);
    for (size_t i = 0; i < 40; i++)
        ADD_REQUEST(GET, "k", "/k");
    send(1);
    for (; tools.is_paused[1]; count++) {
        CHECK(tools.got[1].byte_count < (2u << 20));
        CHECK_EQ(tools.got[1].byte_count % (value_bytes + 8), 0);
        tools.got[1].byte_count = 0;
        if (count == 0)
            ASK(1, GETNUMKEYS, ""); /* arrives while the core does not read this client: kept */
        tools_event(&tools, C10D_EVENT_DRAINED, 1);
    }
    CHECK_EQ(count, 10);
    TAKE(1, I64("\1"));
    CHECK(c10d_totals(tools.core).bytes < 2000000);
    close_store();
}

TEST(who_waits_for_what_since_when_can_be_asked)
{
    struct c10d_client_info info;
    const char *key;
    size_t byte_count;
    uint32_t at = 0;

    open_store();
    tools.now_us = 500;
    tools_connect(&tools, 7);
    ASK(2, SET, "kb", "/b", "");
    ASK(2, WAIT, "nkkk", 3ULL, "/a", "/b", "/c");
    ASK(3, BARRIER, "k8", "/bar", 2LL);
    CHECK(c10d_next_client(tools.core, 2, &info));
    CHECK_EQ(info.client, 2);
    CHECK_EQ(info.waits, C10D_WAITS_FOR_KEYS);
    CHECK_EQ(info.waits_since_us, 500);
    CHECK_EQ(info.missing_keys, 2);
    CHECK(c10d_next_missing(tools.core, 2, &at, &key, &byte_count));
    CHECK_BYTES(key, "/a", 2);
    ASK(0, SET, "kb", "/a", "");
    at = 0;
    CHECK(c10d_next_missing(tools.core, 2, &at, &key, &byte_count));
    CHECK_EQ(byte_count, 2);
    CHECK_BYTES(key, "/c", 2);
    CHECK(!c10d_next_missing(tools.core, 2, &at, &key, &byte_count));
    CHECK(c10d_next_client(tools.core, 3, &info) && info.waits == C10D_WAITS_AT_BARRIER);
    at = 0;
    CHECK(c10d_next_missing(tools.core, 3, &at, &key, &byte_count));
    CHECK_BYTES(key, "/bar", 4);
    CHECK(c10d_next_client(tools.core, 4, &info));
    CHECK_EQ(info.client, 7);
    CHECK(!info.is_validated && info.connected_us == 500);
    CHECK(!c10d_next_client(tools.core, 8, &info));
    CHECK_EQ(c10d_totals(tools.core).clients, 5);
    close_store();
}

TEST(a_thousand_waiters_on_one_key_are_woken_in_one_step)
{
    open_with(&tool_limits);
    for (uint32_t i = 0; i < 1001; i++)
        validated(i);
    for (int round = 0; round < 100; round++) {
        for (uint32_t i = 1; i < 1001; i++)
            ASK(i, WAIT, "nk", 1ULL, "/k");
        ASK(0, SET, "kb", "/k", "");
        for (uint32_t i = 1; i < 1001; i++)
            TAKE(i, "\0");
        ASK(0, DELETE_KEY, "k", "/k");
        TAKE(0, I64("\1"));
    }
    close_store();
}

TEST(two_hundred_thousand_keys_take_little_memory)
{
    char key[32];
    uint64_t before;

    open_store();
    before = c10d_totals(tools.core).bytes;
    for (uint32_t i = 0; i < 200000; i++) {
        (void)snprintf(key, sizeof key, "/default_pg/0/%06u", i);
        ASK(0, SET, "kb", key, "0123456789");
    }
    CHECK_EQ(c10d_totals(tools.core).keys, 200000);
    CHECK((c10d_totals(tools.core).bytes - before) / 200000 <
          72); /* 30 of them are the key and the value */
    for (uint32_t i = 0; i < 200000; i += 7) {
        (void)snprintf(key, sizeof key, "/default_pg/0/%06u", i);
        ASK(1, GET, "k", key);
        TAKE(1, I64("\12") "0123456789");
    }
    close_store();
}

TEST_MAIN
