/* Pages of keys, from a stand-in that counts the keys that etcd would read. */
#include "rendezvous/store/key_span.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

#define PREFIX "/ddp/rows/"
#define KEYS_MAX 60000u
#define KEY_BYTES 96u

static char keys[KEYS_MAX][KEY_BYTES];
static uint32_t key_count;

__attribute__((format(printf, 1, 2))) static void add(const char *format, ...)
{
    va_list args;
    int n;

    CHECK(key_count < KEYS_MAX);
    n = snprintf(keys[key_count], KEY_BYTES, PREFIX);
    va_start(args, format);
    (void)vsnprintf(keys[key_count++] + n, KEY_BYTES - (size_t)n, format, args);
    va_end(args);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool is_before(struct etcd_bytes a, struct etcd_bytes b)
{
    int order = memcmp(a.bytes, b.bytes, a.byte_count < b.byte_count ? a.byte_count : b.byte_count);

    return order != 0 ? order < 0 : a.byte_count < b.byte_count;
}

static struct etcd_bytes key_of(uint32_t i)
{
    return (struct etcd_bytes){keys[i], strlen(keys[i])};
}

struct cost {
    uint64_t looked_at; /* keys of all ranges */
    uint32_t pages;
};

/* Reads all keys as remote_load.c does; each must come once, in order. */
static struct cost read_all(uint32_t limit)
{
    struct key_span span = {.skip = strlen(PREFIX)};
    char next[KEY_BYTES + 1] = PREFIX, text[sizeof next + KEY_SPAN_BYTES_MORE];
    struct etcd_bytes from = {next, strlen(next)}, to = {"/ddp/rows0", 10}, end = {0};
    struct cost cost = {0};
    uint32_t i = 0;

    qsort(keys, key_count, KEY_BYTES, by_bytes);
    while (end.bytes != to.bytes) {
        uint32_t count = 0, page;
        bool has_more;

        end = key_span_end(&span, from, to, text, sizeof text);
        CHECK(is_before(from, end));
        CHECK(!is_before(to, end));
        while (i + count < key_count && is_before(key_of(i + count), end)) {
            CHECK(!is_before(key_of(i + count), from));
            count++;
        }
        cost.looked_at += count;
        cost.pages++;
        has_more = count > limit;
        page = has_more ? limit : count;
        i += page;
        if (has_more) {
            struct etcd_bytes last = key_of(i - 1);

            last.byte_count++;
            key_span_learn(&span, from, last, page, limit, true);
            memcpy(next, last.bytes, last.byte_count);
            from.byte_count = last.byte_count;
            end = (struct etcd_bytes){0};
        } else if (end.bytes != to.bytes) {
            key_span_learn(&span, from, end, page, limit, false);
            memcpy(next, end.bytes, end.byte_count);
            from.byte_count = end.byte_count;
        }
    }
    CHECK_EQ(i, key_count);
    return cost;
}

static void check_cost(struct cost cost, uint32_t limit, uint32_t tables)
{
    /* The first two pages of each table may be far too long. */
    CHECK(cost.looked_at <= UINT64_C(6) * key_count + UINT64_C(2) * tables * key_count);
    CHECK(cost.pages <= 4 * (key_count / limit) + 40 * tables);
}

TEST(tables_as_a_server_has_them)
{
    uint64_t random = 1;

    key_count = 0;
    for (uint32_t id = 1; id <= 10000; id++) {
        uint32_t job = id > 3000 ? id + 10000 : id; /* a restored state leaves numbers out */

        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        add("jobs/%016x", job);
        add("specs/%016x", job);
        add("ranks/%016x/%016x/%016x", job, 1 + id % 3, 0);
        add("request_ids/%016" PRIx64 "%016" PRIx64 "/alice", random, random * 3);
        if (id % 2 == 0)
            add("events/%016x", id + 700000);
        if (id % 100 == 0)
            add("principals/node%u", id);
    }
    add("meta/cluster");
    check_cost(read_all(256), 256, 7);
    check_cost(read_all(16), 16, 7);
}

TEST(few_or_no_keys)
{
    key_count = 0;
    CHECK_EQ(read_all(256).pages, 1);
    add("meta/cluster");
    CHECK_EQ(read_all(256).pages, 1);
    CHECK_EQ(read_all(1).pages, 1);
}

TEST(keys_of_any_kind)
{
    key_count = 0;
    for (uint32_t i = 0; i < 300; i++) {
        add("a/%016" PRIx64, UINT64_MAX - i); /* no number is behind the last */
        add("b/%016x/%u", 7, i);              /* all of one number */
        add("c%u", i);                        /* not ours */
        add("d/abcdef%u", i);
        add("e/%016X", 0xabcd00 + i);
        add("f/%016" PRIx64, (uint64_t)i << 55);
    }
    for (uint32_t limit = 1; limit < 2000; limit = limit * 3 + 1)
        (void)read_all(limit);
}

TEST_MAIN
