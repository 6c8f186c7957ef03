/* The store on a real etcd, with a proxy between that loses, doubles and delays requests: all that was
 * acknowledged is there exactly once, what was not is there whole or not at all, and a server that does not
 * lead any more writes nothing. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io/conn.h"
#include "rendezvous/store/etcd_client.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/remote.h"
#include "rendezvous/store/row_code.h"
#include "tests/lib/etcd_lead.h"
#include "tests/lib/etcd_member.h"
#include "tests/lib/http_proxy.h"
#include "tests/lib/store_model.h"
#include "tests/lib/test.h"

#define PREFIX "/ddp/"
#define PATIENCE_US 30000000u
#define SHORT_US 300000u /* for a request that gets no answer */
#define FAULTY_US 6000000u

static struct etcd_member member;
static struct arena arena;
static struct err err;

/* One server's life. */
static struct life {
    struct etcd_client *client;
    struct store *store;
    jmp_buf ended;
    struct model acknowledged, pending; /* pending: with the commit that was under way */
    char why[256];
    bool has_faults;
    bool is_dying; /* no request will be answered any more */
    struct proxy *proxy;
    uint64_t dies_at; /* request of the proxy; 0: never */
} life;

static uint64_t soon(void)
{
    return clock_boot_us() + PATIENCE_US;
}

static void put(struct etcd_client *client, const char *key, const char *value)
{
    struct etcd_op op = {.kind = ETCD_PUT, .key = etcd_text(key), .value = etcd_text(value)};
    struct etcd_txn txn = {.then = &op, .then_count = 1};
    struct etcd_answer answer;

    CHECK_EQ(etcd_transact(client, &txn, soon(), &arena, &answer, &err), STATUS_OK);
    arena_reset(&arena);
}

static uint32_t count_keys(struct etcd_client *client, const char *from, const char *to)
{
    struct etcd_op range = {.kind = ETCD_RANGE, .key = etcd_text(from), .end = etcd_text(to)};
    struct etcd_answer answer;

    CHECK_EQ(etcd_range(client, &range, soon(), &arena, &answer, &err), STATUS_OK);
    arena_reset(&arena);
    return answer.row_count;
}

static void on_lost(const char *why, void *context)
{
    (void)context;
    (void)snprintf(life.why, sizeof life.why, "%s", why);
    store_release(life.store); /* as by kill -9: nothing more is written */
    life.store = NULL;
    longjmp(life.ended, 1);
}

static uint64_t until(void *context)
{
    bool dies;

    (void)context;
    dies = life.dies_at != 0 && proxy_requests(life.proxy) + 1 >= life.dies_at;
    if (dies || life.is_dying)
        return clock_boot_us() + SHORT_US;
    return clock_boot_us() + (life.has_faults ? FAULTY_US : PATIENCE_US);
}

/* Opens the store of a new leader. */
static bool start_at(uint16_t port)
{
    struct store_lead leading = {
        .prefix = PREFIX, .quota_bytes = UINT64_C(2) << 30, .until_us = until, .on_lost = on_lost};
    struct etcd_client *direct = etcd_lead_connect(member.port);

    leading.revision = etcd_lead_take(direct, PREFIX);
    etcd_close(&direct);
    life.client = leading.client = etcd_lead_connect(port);
    life.why[0] = '\0';
    err.text[0] = '\0';
    if (store_open_etcd(&life.store, &leading, &err) == STATUS_OK)
        return true;
    CHECK(err.text[0] != '\0');
    life.store = NULL;
    return false;
}

static void kill_it(void)
{
    if (life.store != NULL)
        store_release(life.store);
    life.store = NULL;
    etcd_close(&life.client);
}

/* Commits with up to `changes_max` changes each; false: the server was lost. */
static bool work(struct model_random *random, uint32_t commits, uint32_t changes_max, bool big)
{
    if (setjmp(life.ended) != 0)
        return false;
    for (uint32_t i = 0; i < commits; i++) {
        life.pending = life.acknowledged;
        store_begin(life.store);
        for (uint64_t changes = 1 + model_draw(random, changes_max); changes > 0; changes--)
            model_change(&life.pending, random, life.store, big);
        store_commit(life.store);
        life.acknowledged = life.pending;
    }
    return true;
}

/* A new leader, connected directly to etcd, checks the state. */
static void check(const char *what)
{
    char text[200] = "", other[200] = "";

    if (!start_at(member.port))
        FAIL("%s: the store does not open again: %s", what, err.text);
    if (!model_matches(&life.acknowledged, life.store, text, sizeof text)) {
        if (!model_matches(&life.pending, life.store, other, sizeof other))
            FAIL("%s: lost what was acknowledged: %s (or half a commit: %s)", what, text, other);
        life.acknowledged = life.pending;
    }
    CHECK_EQ(count_keys(life.client, PREFIX "pending/", PREFIX "pending0"), 0);
}

static void begin(const char *option)
{
    memset(&life, 0, sizeof life);
    etcd_member_start(&member, option);
    model_init(&life.acknowledged);
    life.pending = life.acknowledged;
}

TEST(a_new_leader_has_all_of_it)
{
    struct model_random random = {.state = 5};
    char cluster[33];

    begin(NULL);
    CHECK(start_at(member.port));
    (void)snprintf(cluster, sizeof cluster, "%s", store_cluster(life.store));
    CHECK_EQ(strlen(cluster), 32);
    for (int i = 0; i < 6; i++) {
        CHECK(work(&random, 30, 4, i % 2 == 1));
        kill_it();
        check("after a new leader");
        CHECK_STR(store_cluster(life.store), cluster);
    }
    kill_it();
    etcd_member_kill(&member);
}

/* A commit with more writes, or more bytes, than one transaction may have. */
TEST(large_commits_are_whole)
{
    struct model_random random = {.state = 9};

    begin(NULL);
    CHECK(start_at(member.port));
    CHECK(work(&random, 3, 400, false));
    CHECK(work(&random, 3, 200, true));
    kill_it();
    check("after large commits");
    kill_it();
    etcd_member_kill(&member);
}

/* A row is one request, which etcd refuses above 1.5 MiB: the server takes no larger job. */
TEST(the_largest_job_is_kept)
{
    static char value[4u << 20];
    static const char *const words[] = {"x"};
    const struct msg_pair variable = {"V", value};
    const struct msg_submit submit = {.request_id = "0123456789abcdef0123456789abcdef",
                                      .cwd = "/",
                                      .argv = {words, 1},
                                      .env = {&variable, 1},
                                      .array = "0-1"}; /* else it counts as ended: it has no row */

    begin(NULL);
    CHECK(start_at(member.port));
    CHECK(store_spec_bytes_max(life.store) < sizeof value);
    memset(value, 'x', store_spec_bytes_max(life.store) - 100);
    if (setjmp(life.ended) != 0)
        FAIL("%s", life.why);
    store_begin(life.store);
    store_write_spec(life.store, 1, "u", &submit);
    store_commit(life.store);
    kill_it();
    etcd_member_kill(&member);
}

/* `commits`: of the next leader before; with none it has only read. */
static void write_as_old_leader(uint32_t changes_max, uint32_t commits)
{
    struct model_random random = {.state = 3};
    struct life old;
    struct store *newer;

    begin(NULL);
    CHECK(start_at(member.port));
    CHECK(work(&random, 5, 3, false));
    old = life;
    CHECK(start_at(member.port)); /* the next one */
    CHECK(work(&random, commits, 3, false));
    newer = life.store;
    life.pending = life.acknowledged;
    old.acknowledged = life.acknowledged; /* what must be there */
    life.store = old.store;
    CHECK(!work(&random, 1, changes_max, false));
    CHECK(strstr(life.why, "another server leads") != NULL);
    life.store = newer;
    kill_it();
    etcd_close(&old.client);
    life.acknowledged = life.pending = old.acknowledged;
    check("after an old leader's write");
    kill_it();
    etcd_member_kill(&member);
}

TEST(an_old_leader_writes_nothing)
{
    write_as_old_leader(3, 5);
    write_as_old_leader(3, 0);
}

TEST(an_old_leader_writes_no_large_commit)
{
    write_as_old_leader(600, 5);
    write_as_old_leader(600, 0);
}

static enum proxy_fault dies(uint64_t number, void *context)
{
    return number >= life.dies_at ? *(enum proxy_fault *)context : PROXY_PASSES;
}

/* Dead from request `number` on, which the server gets or not, in the middle of small and large commits. By hand, with
 * STORE_ETCD_SEEDS, at every request. */
static void die_at_every_request(enum proxy_fault how)
{
    bool is_whole = false;
    char what[80];

    begin(NULL);
    for (uint64_t number = 1; !is_whole; number++) {
        struct model_random random = {.state = 77};

        CHECK(number < 200);
        life.proxy = proxy_open(member.port, dies, &how);
        life.dies_at = number;
        is_whole = start_at(proxy_port(life.proxy)) && work(&random, 2, 3, false) &&
                   work(&random, 1, 300, true) && work(&random, 1, 3, false);
        kill_it();
        life.dies_at = 0;
        proxy_close(life.proxy);
        (void)snprintf(what, sizeof what, "dead from request %llu on", (unsigned long long)number);
        check(what);
        kill_it();
        if (number > 8)
            number += getenv("STORE_ETCD_SEEDS") != NULL ? 0 : 9;
    }
    etcd_member_kill(&member);
}

TEST(death_before_a_request_loses_nothing)
{
    die_at_every_request(PROXY_CUTS_BEFORE);
}

TEST(death_after_a_request_loses_nothing)
{
    die_at_every_request(PROXY_CUTS_AFTER);
}

static enum proxy_fault choose_any(uint64_t number, void *context)
{
    uint64_t drawn = model_draw(context, 3 * PROXY_FAULTS);

    (void)number;
    if (drawn == PROXY_SILENT && model_draw(context, 4) > 0) /* this fault costs much time */
        return PROXY_PASSES;
    return drawn < PROXY_FAULTS ? (enum proxy_fault)drawn : PROXY_PASSES;
}

/* Every request may be lost, doubled or late, and all succeed in the end. STORE_ETCD_SEEDS runs
 * further seeds. */
TEST(faults_of_the_network_lose_and_double_nothing)
{
    const char *more = getenv("STORE_ETCD_SEEDS");
    uint64_t seeds = more != NULL ? strtoull(more, NULL, 10) : 2;
    char what[80];

    begin(NULL);
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct model_random random = {.state = seed}, faults = {.state = seed + 1000};
        struct proxy *proxy = proxy_open(member.port, choose_any, &faults);

        life.has_faults = true;
        life.is_dying = seed % 2 == 0; /* less patience: some give up */
        if (start_at(proxy_port(proxy))) {
            bool is_whole = work(&random, 25, 3, false) && work(&random, 1, 300, true);

            CHECK(is_whole || life.is_dying);
        }
        kill_it();
        life.has_faults = life.is_dying = false;
        proxy_settle(proxy);
        (void)snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
        check(what);
        kill_it();
        proxy_close(proxy);
    }
    etcd_member_kill(&member);
}

TEST(what_is_not_ours_is_left_alone)
{
    struct etcd_client *client;

    begin(NULL);
    client = etcd_lead_connect(member.port);
    put(client, PREFIX "rows/jobs/0000000000000001", "something");
    CHECK(!start_at(member.port));
    CHECK_EQ(err.status, STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "it has rows but no format") != NULL);
    kill_it();
    put(client, PREFIX "format", "1 999");
    CHECK(!start_at(member.port));
    CHECK(strstr(err.text, "has schema 999, written by a newer rendezvous") != NULL);
    kill_it();
    put(client, PREFIX "format", "1 7");
    put(client, PREFIX "seq", "1");
    CHECK(!start_at(member.port));
    CHECK_EQ(err.status, STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "table jobs has no known columns") != NULL);
    kill_it();
    put(client, PREFIX "layout/jobs/1", "id,colour");
    CHECK(!start_at(member.port));
    CHECK(strstr(err.text, "the column colour, which this rendezvous") != NULL);
    kill_it();
    put(client, PREFIX "layout/shoes/1", "id");
    CHECK(!start_at(member.port));
    kill_it();
    etcd_close(&client);
    etcd_member_kill(&member);
}

/* Rows of an earlier version lack columns: they get what an old row of a file gets. */
TEST(rows_with_fewer_columns_are_read)
{
    struct etcd_client *client;
    struct rdzv_record record;
    struct buf value = {0};
    const struct row_value id = {.kind = ROW_INTEGER, .integer = 12},
                           name = {.kind = ROW_TEXT, .bytes = "old", .byte_count = 3},
                           parts = {.kind = ROW_TEXT, .bytes = "[]", .byte_count = 2};

    begin(NULL);
    CHECK(start_at(member.port));
    kill_it();
    client = etcd_lead_connect(member.port);
    put(client, PREFIX "layout/jobs/7", "name,id,parts");
    row_put_number(&value, 7);
    row_put(&value, &name);
    row_put(&value, &id);
    row_put(&value, &parts);
    buf_add(&value, "", 1);
    put(client, PREFIX "rows/jobs/000000000000000c", value.bytes);
    CHECK(start_at(member.port));
    CHECK(store_get_job(life.store, 12, &arena, &record));
    CHECK_STR(record.name, "old");
    CHECK(record.state == JOB_FAILED && record.priority == 0 && record.reason[0] == '\0');
    CHECK_EQ(store_next_job_id(life.store), 13);
    kill_it();
    buf_free(&value);
    etcd_close(&client);
    etcd_member_kill(&member);
}

TEST(a_nearly_full_etcd_takes_no_new_work)
{
    struct model_random random = {.state = 4};
    uint64_t free_bytes;
    bool was_low = false;

    begin("--quota-backend-bytes=40000000");
    CHECK(start_at(member.port));
    life.store->remote->lead.quota_bytes = 40000000;
    CHECK_EQ(store_free_bytes(life.store), UINT64_MAX); /* nobody has asked etcd yet */
    CHECK(!store_is_low(life.store));
    free_bytes = store_free_bytes(life.store);
    CHECK(free_bytes > 30000000 && free_bytes < 36000000);
    CHECK(work(&random, 1, 8, true));
    CHECK(store_free_bytes(life.store) <
          free_bytes); /* by what was written, before etcd is asked again */
    for (int i = 0; i < 1000 && !was_low; i++) {
        CHECK(work(&random, 1, 8, true));
        life.store->remote->health_at_us = 0; /* ask now */
        was_low = store_is_low(life.store);
    }
    CHECK(was_low);
    CHECK(store_free_bytes(life.store) < free_bytes / 2);
    CHECK(work(&random, 3, 2, false)); /* what runs goes on */
    kill_it();
    check("nearly full");
    kill_it();
    etcd_member_kill(&member);
}

TEST_MAIN
