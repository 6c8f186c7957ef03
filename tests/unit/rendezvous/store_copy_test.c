/* The rows that a standby keeps, on a real etcd: while a leader changes and removes rows, while the
 * standby is cut off, while history is dropped, and when a leader dies in the middle of a large
 * commit. They must equal the rows that a reader of all of etcd gets. */
#include "rendezvous/store/store_copy.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/io/conn.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/past_key.h"
#include "rendezvous/store/remote.h"
#include "rendezvous/store/seen_keeper.h"
#include "tests/lib/etcd_lead.h"
#include "tests/lib/etcd_member.h"
#include "tests/lib/http_proxy.h"
#include "tests/lib/store_model.h"
#include "tests/lib/tcp_switch.h"
#include "tests/lib/test.h"

#define PREFIX "/ddp/"
#define PATIENCE_US 120000000u
#define SHORT_US 300000u /* for a request that gets no answer */

static struct etcd_member member;
static struct arena arena;
static struct err err;
static struct model model;
static struct model_random draws;
static jmp_buf ended;
/* From that request of the proxy on, none is answered. */
static struct proxy *dying;
static _Atomic uint64_t dies_from;

static uint64_t soon(void)
{
    return clock_boot_us() + PATIENCE_US;
}

static struct store_copy *copy_that_knows(uint16_t port, struct seen_keeper *seen)
{
    struct etcd_options options;
    struct store_copy *copy;

    etcd_lead_options(port, &options);
    CHECK_EQ(store_copy_open(&copy, &options, PREFIX, seen, &err), STATUS_OK);
    return copy;
}

static struct store_copy *copy_at(uint16_t port)
{
    return copy_that_knows(port, NULL);
}

static void rest(void)
{
    const struct timespec one = {.tv_nsec = 2000000};

    (void)nanosleep(&one, NULL); /* between two checks; the condition ends the wait */
}

/* Until the copy has the rows of that revision. */
static void await(struct store_copy *copy, int64_t revision)
{
    uint64_t until_us = soon();

    while (store_copy_revision(copy) < revision) {
        if (clock_boot_us() > until_us)
            FAIL("the copy has revision %lld, not %lld", (long long)store_copy_revision(copy),
                 (long long)revision);
        rest();
    }
}

/* How often the copy has read all rows. */
static int count_readings(struct store_copy *copy)
{
    char text[384];
    bool is_warning;
    int count = 0;

    while (store_copy_note(copy, &is_warning, text, sizeof text)) {
        if (is_warning)
            FAIL("%s", text);
        count++;
    }
    return count;
}

/* -- a leader ----------------------------------------------------------------------------------- */

struct leading {
    struct etcd_client *client;
    struct store *store;
};

static void on_lost(const char *why, void *context)
{
    (void)why;
    (void)context;
    longjmp(ended, 1);
}

static uint64_t until(void *context)
{
    (void)context;
    if (dying != NULL && proxy_requests(dying) + 1 >= atomic_load(&dies_from))
        return clock_boot_us() + SHORT_US;
    return clock_boot_us() + PATIENCE_US;
}

static struct leading lead(uint16_t port, struct store_copy *copy)
{
    struct leading leading = {.client = etcd_lead_connect(port)};
    struct etcd_client *direct = etcd_lead_connect(member.port);
    struct store_lead options = {.client = leading.client,
                                 .prefix = PREFIX,
                                 .quota_bytes = UINT64_C(2) << 30,
                                 .until_us = until,
                                 .on_lost = on_lost,
                                 .copy = copy,
                                 .revision = etcd_lead_take(direct, PREFIX)};

    if (copy != NULL)
        await(copy, options.revision);
    if (store_open_etcd(&leading.store, &options, &err) != STATUS_OK)
        FAIL("store_open_etcd: %s", err.text);
    etcd_close(&direct);
    return leading;
}

static void resign(struct leading *leading)
{
    store_release(leading->store);
    etcd_close(&leading->client);
}

/* `changes` in one commit, and rows that are removed, also some of those that share a value. */
static void change(struct store *store, uint32_t changes, bool removes)
{
    static const char *const removals[] = {
        "DELETE FROM main.ranks WHERE rank % 3 = 1",
        "DELETE FROM main.events WHERE id % 5 < 2",
        "DELETE FROM main.request_ids WHERE job_id % 2 = 0",
        "DELETE FROM main.drains WHERE slot % 2 = 0",
        "DELETE FROM main.jobs WHERE id % 4 = 3",
        "UPDATE OR REPLACE main.jobs SET id = id + 1000 WHERE id % 7 = 2 AND id < 1000",
        "INSERT OR REPLACE INTO main.request_ids VALUES ('a/b %c', 'd''\"e\xc3\xa9', 3)",
        "DELETE FROM main.request_ids WHERE user LIKE 'd%'"};

    store_begin(store);
    for (uint32_t i = 0; i < changes; i++)
        model_change(&model, &draws, store, true);
    if (removes)
        CHECK_EQ(store_execute(store, removals[model_draw(&draws, 8)], &err), STATUS_OK);
    store_commit(store);
}

static void work(struct store *store, uint32_t commits, bool removes)
{
    for (uint32_t i = 0; i < commits; i++)
        change(store, 1 + (uint32_t)model_draw(&draws, 4), removes);
}

/* -- the same rows ------------------------------------------------------------------------------ */

static bool add_row(const struct buf *value, void *context)
{
    buf_add(context, value->bytes, value->byte_count);
    buf_add_text(context, "\n");
    return true;
}

static void dump(sqlite3 *db, struct buf *out)
{
    struct rows rows;

    CHECK_EQ(rows_open(&rows, db, &err), STATUS_OK);
    for (uint32_t i = 0; i < rows.table_count; i++) {
        buf_printf(out, "table %s\n", rows.tables[i].name);
        rows.tables[i].layout = 1;
        CHECK(rows_each(&rows, &rows.tables[i], add_row, out));
    }
    rows_close(&rows);
}

/* The rows as a new reader gets them. */
static void dump_etcd(struct buf *out)
{
    struct store_lead reading = {.prefix = PREFIX};
    struct remote remote;
    struct store store = {0};

    reading.client = etcd_lead_connect(member.port);
    CHECK_EQ(store_open_memory(&store, &err), STATUS_OK);
    if (remote_open(&remote, store.db, &reading, &err) != STATUS_OK)
        FAIL("cold: %s", err.text);
    dump(store.db, out);
    remote_close(&remote);
    (void)sqlite3_close(store.db);
    etcd_close(&reading.client);
}

static void check_same(const struct leading *leading)
{
    struct buf warm = {0}, cold = {0};

    dump(leading->store->db, &warm);
    dump_etcd(&cold);
    CHECK(warm.byte_count > 1000);
    CHECK_EQ(warm.byte_count, cold.byte_count);
    CHECK_BYTES(warm.bytes, cold.bytes, cold.byte_count);
    buf_free(&warm);
    buf_free(&cold);
}

/* Another server leads with the copy, and writes; so does one after it, with nothing. Returns whether the copy has seen
 * the last leader commit. */
static bool take_over(struct store_copy *copy)
{
    struct leading next = lead(member.port, copy), last;
    const bool is_newest = store_is_newest(next.store);

    CHECK(store_copy_take(copy, 1) == NULL); /* it was given away */
    check_same(&next);
    draws.state += 77;
    model_init(&model);
    CHECK_EQ(store_execute(next.store, "BEGIN; DELETE FROM main.jobs WHERE id > 30", &err),
             STATUS_OK);
    next.store->in_transaction = true;
    store_commit(next.store);
    check_same(&next);
    resign(&next);
    last = lead(member.port, NULL);
    check_same(&last);
    resign(&last);
    return is_newest;
}

static void begin(uint64_t seed)
{
    memset(&arena, 0, sizeof arena);
    etcd_member_start(&member, NULL);
    model_init(&model);
    draws = (struct model_random){.state = seed};
    dying = NULL;
}

TEST(changes_and_removals_are_followed)
{
    struct leading leading;
    struct store_copy *copy;

    begin(1);
    copy = copy_at(member.port); /* before there is a state */
    leading = lead(member.port, NULL);
    work(leading.store, 20, false);
    work(leading.store, 40, true);
    change(leading.store, 300, true); /* more than one transaction of etcd takes */
    await(copy, leading.store->remote->revision);
    work(leading.store, 10, true);
    CHECK(take_over(copy));
    CHECK(count_readings(copy) >= 1);
    store_copy_close(&copy);
    resign(&leading);
    etcd_member_kill(&member);
}

/* goes_on: there are commits after the cut, too. Those of before it may be all that is left of a state that was put back. */
static void run_cut(bool drops_history, bool goes_on)
{
    struct leading leading;
    struct tcp_switch *relay;
    struct store_copy *copy;

    begin(drops_history ? 2 : 3);
    leading = lead(member.port, NULL);
    work(leading.store, 30, true);
    relay = tcp_switch_open(member.port);
    copy = copy_at(tcp_switch_port(relay));
    await(copy, leading.store->remote->revision);
    CHECK_EQ(count_readings(copy), 1);
    tcp_switch_set(relay, false);
    work(leading.store, 40, true);
    if (drops_history)
        CHECK_EQ(etcd_compact(leading.client, leading.store->remote->revision, soon(), &err),
                 STATUS_OK);
    work(leading.store, 2, true);
    tcp_switch_set(relay, true);
    await(copy, leading.store->remote->revision);
    CHECK_EQ(count_readings(copy), drops_history ? 1 : 0);
    if (goes_on)
        work(leading.store, 2, true);
    await(copy, leading.store->remote->revision);
    CHECK_EQ(take_over(copy), goes_on);
    store_copy_close(&copy);
    tcp_switch_close(relay);
    resign(&leading);
    etcd_member_kill(&member);
}

TEST(a_cut_is_made_up_for)
{
    run_cut(false, false);
    run_cut(false, true);
}

TEST(dropped_history_is_read_anew)
{
    run_cut(true, false);
    run_cut(true, true);
}

/* The next leader ends the commit, and has its rows too. */
static enum proxy_fault dies(uint64_t number, void *context)
{
    (void)context;
    return number >= atomic_load(&dies_from) ? PROXY_CUTS_BEFORE : PROXY_PASSES;
}

/* At that request of a large commit. False: all of its requests were answered. */
static bool die_at(uint64_t number)
{
    volatile bool is_dead = true;
    struct leading leading;

    atomic_store(&dies_from, UINT64_MAX);
    dying = proxy_open(member.port, dies, NULL);
    leading = lead(proxy_port(dying), NULL);
    atomic_store(&dies_from, proxy_requests(dying) + number);
    if (setjmp(ended) == 0) {
        change(leading.store, 300, true);
        is_dead = false;
    }
    resign(&leading);
    proxy_close(dying);
    dying = NULL;
    return is_dead;
}

TEST(a_commit_that_was_cut_short_is_ended)
{
    struct leading leading;
    bool is_dead = true;
    uint64_t opening = 0;

    begin(4);
    leading = lead(member.port, NULL);
    work(leading.store, 10, false);
    resign(&leading);
    for (uint64_t number = 1; is_dead; number++) {
        struct store_copy *copy = copy_at(member.port);

        await(copy, 1);
        is_dead = die_at(number);
        (void)take_over(copy); /* a leader that died before its commit was not seen to commit */
        store_copy_close(&copy);
        opening += is_dead;
        CHECK(number < 200);
    }
    CHECK(opening > 2);
    etcd_member_kill(&member);
}

/* The state has more commits than were seen, but not as many jobs: only all of its rows show it. */
TEST(a_state_of_the_past_is_told_and_not_noted)
{
    struct leading leading;
    struct store_copy *copy;
    struct seen_keeper *keeper;
    struct past_key past;
    struct seen seen;
    char path[512], text[512];
    bool is_warning = false, is_told = false;

    begin(6);
    leading = lead(member.port, NULL);
    work(leading.store, 30, false);
    CHECK_EQ(store_seen(leading.store, &seen, 2, &err), STATUS_OK);
    seen.job_id += 1000;
    (void)snprintf(path, sizeof path, "%s/etcd-seen", test_dir());
    CHECK_EQ(seen_write(path, &seen, &err), STATUS_OK);
    CHECK_EQ(seen_keeper_open(&keeper, path, &err), STATUS_OK);
    copy = copy_that_knows(member.port, keeper);
    await(copy, 1);
    CHECK_EQ(past_key_read(leading.client, PREFIX, soon(), &past, &err), STATUS_OK);
    CHECK_STR(past.of, seen_id(&seen));
    CHECK_EQ(past.seen.job_id, seen.job_id);
    CHECK_EQ(past.seen.commit, 2);
    CHECK(!store_copy_seen(copy, &seen));
    while (!is_told && store_copy_note(copy, &is_warning, text, sizeof text))
        is_told = is_warning && strstr(text, "The server that leads is told, by the key /ddp/past");
    CHECK(is_told);
    store_copy_close(&copy);
    seen_keeper_close(&keeper);
    resign(&leading);
    etcd_member_kill(&member);
}

#define SAMPLES_MAX 64u

/* What is missing at each request of a copy. */
struct samples {
    struct store_copy *_Atomic copy; /* requests wait until it is there, */
    atomic_bool is_over;             /* from then on it may be gone */
    uint32_t missing_pm[SAMPLES_MAX];
    _Atomic uint32_t count;
};

static enum proxy_fault sample(uint64_t number, void *context)
{
    struct samples *samples = context;
    const uint32_t i = atomic_load(&samples->count);

    (void)number;
    while (atomic_load(&samples->copy) == NULL)
        rest();
    if (!atomic_load(&samples->is_over) && i < SAMPLES_MAX) {
        samples->missing_pm[i] = store_copy_missing_pm(atomic_load(&samples->copy));
        atomic_store(&samples->count, i + 1);
    }
    return PROXY_PASSES;
}

/* More than one page of rows: some requests find a part missing, and less each time. */
TEST(it_tells_how_much_it_has_still_to_read)
{
    static struct samples samples;
    uint32_t least = STORE_COPY_MISSING_ALL, parts = 0;
    struct leading leading;
    struct store_copy *copy;
    struct proxy *proxy;

    begin(5);
    leading = lead(member.port, NULL);
    work(leading.store, 200, false);
    proxy = proxy_open(member.port, sample, &samples);
    copy = copy_at(proxy_port(proxy));
    atomic_store(&samples.copy, copy);
    await(copy, 1);
    CHECK_EQ(store_copy_missing_pm(copy), 0);
    for (uint32_t i = 0; i < atomic_load(&samples.count) && samples.missing_pm[i] > 0; i++) {
        CHECK(samples.missing_pm[i] <= least);
        parts += samples.missing_pm[i] < least;
        least = samples.missing_pm[i];
    }
    CHECK(parts > 0 && least > 1 && least < STORE_COPY_MISSING_ALL);
    atomic_store(&samples.is_over, true);
    (void)proxy_requests(proxy); /* a request that is looking at the copy has ended */
    store_copy_close(&copy);
    proxy_close(proxy);
    resign(&leading);
    etcd_member_kill(&member);
}

/* Without etcd it says so after one try, and does not begin another. */
TEST(without_etcd_there_is_no_copy)
{
    struct tcp_switch *relay = tcp_switch_open(1);
    struct store_copy *copy;

    tcp_switch_set(relay, false);
    copy = copy_at(tcp_switch_port(relay));
    CHECK_EQ(store_copy_missing_pm(copy), STORE_COPY_MISSING_ALL);
    CHECK_EQ(store_copy_revision(copy), 0);
    CHECK(store_copy_take(copy, 1) == NULL);
    store_copy_close(&copy);
    tcp_switch_close(relay);
}

TEST_MAIN
