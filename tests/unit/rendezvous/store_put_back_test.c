/* An etcd that is put back to an earlier state, with real etcd: a leader knows it by what its directory has seen (seen.h), or by the
 * word of a standby (past_key.h), and no number that was seen is given again. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "common/io/conn.h"
#include "rendezvous/store/internal.h"
#include "rendezvous/store/past_key.h"
#include "rendezvous/store/remote.h"
#include "rendezvous/store/seen_keeper.h"
#include "tests/lib/etcd_lead.h"
#include "tests/lib/etcd_member.h"
#include "tests/lib/test.h"

#define PREFIX "/ddp/"
#define PATIENCE_US 30000000u

static struct etcd_member member;
static char seen_path[512]; /* "": none */
static struct seen_keeper *seen_file;
static struct arena arena;
static struct err err;

/* One server's life. */
static struct life {
    struct etcd_client *client;
    struct store *store;
    jmp_buf ended;
    char why[256];
} life;

static uint64_t soon(void)
{
    return clock_boot_us() + PATIENCE_US;
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
    (void)context;
    return soon();
}

/* Opens the store of a new leader. */
static bool start(void)
{
    if (seen_path[0] != '\0')
        CHECK_EQ(seen_keeper_open(&seen_file, seen_path, &err), STATUS_OK);
    struct store_lead leading = {.prefix = PREFIX,
                                 .quota_bytes = UINT64_C(2) << 30,
                                 .seen = seen_file,
                                 .until_us = until,
                                 .on_lost = on_lost};

    life.client = leading.client = etcd_lead_connect(member.port);
    leading.revision = etcd_lead_take(life.client, PREFIX);
    life.why[0] = '\0';
    if (store_open_etcd(&life.store, &leading, &err) == STATUS_OK)
        return true;
    life.store = NULL;
    return false;
}

static void kill_it(void)
{
    if (life.store != NULL)
        store_release(life.store);
    life.store = NULL;
    seen_keeper_close(&seen_file);
    etcd_close(&life.client);
}

static void begin(void)
{
    memset(&life, 0, sizeof life);
    seen_path[0] = '\0';
    seen_file = NULL;
    etcd_member_start(&member, NULL);
}

static void write_job(uint64_t id)
{
    const struct rdzv_record record = {.job_id = id,
                                       .name = "train",
                                       .user = "ann",
                                       .nodes = 1,
                                       .nproc_per_node = 1,
                                       .failed_rank = -1,
                                       .state = JOB_QUEUED};

    store_write_job(life.store, &record);
}

/* Gives numbers of jobs, in one commit. */
static void give_some(uint64_t first, uint64_t last)
{
    store_begin(life.store);
    for (uint64_t id = first; id <= last; id++)
        write_job(id);
    store_commit(life.store);
}

static void give(uint64_t id)
{
    give_some(id, id);
}

static void show_alive(void)
{
    store_begin(life.store);
    store_write_alive(life.store);
    store_commit(life.store);
}

static uint64_t job_seen(void)
{
    struct seen seen;

    CHECK_EQ(seen_read(seen_path, &seen, NULL, &err), STATUS_OK);
    return seen.job_id;
}

/* However fast they follow one another: etcd may be put back to any commit. */
TEST(a_number_is_noted_before_anybody_is_told_of_it)
{
    begin();
    (void)snprintf(seen_path, sizeof seen_path, "%s/etcd-seen", test_dir());
    CHECK(start());
    CHECK(store_is_newest(life.store)); /* it is new */
    for (uint64_t id = 1; id <= 5; id++) {
        give(id);
        CHECK_EQ(job_seen(), id);
    }
    kill_it();
    CHECK(start());
    CHECK(!store_is_newest(life.store)); /* something may have followed what was noted */
    CHECK(store_is_copy(life.store));    /* what waits in it starts after a lease */
    give(6);
    CHECK_EQ(job_seen(), 6);
    kill_it();
    etcd_member_kill(&member);
}

/* False: the server was lost. */
static bool gives(uint64_t first, uint64_t last)
{
    if (setjmp(life.ended) != 0)
        return false;
    give_some(first, last);
    return true;
}

static void put_back(void)
{
    kill_it();
    etcd_member_kill(&member);
    etcd_member_put_back(&member, "kept");
    etcd_member_again(&member, NULL);
}

/* The second time its cluster id is not the one that was seen last, for the first time gave it another. */
TEST(a_state_that_is_put_back_twice_is_noticed_twice)
{
    char clusters[4][33];
    struct seen old;

    begin();
    (void)snprintf(seen_path, sizeof seen_path, "%s/etcd-seen", test_dir());
    CHECK(start());
    give(1);
    (void)snprintf(clusters[0], sizeof clusters[0], "%s", store_cluster(life.store));
    CHECK_EQ(store_seen(life.store, &old, life.store->remote->seq, &err), STATUS_OK);
    kill_it();
    etcd_member_kill(&member);
    etcd_member_keep(&member, "kept");
    etcd_member_again(&member, NULL);
    CHECK(start());
    give(2);
    for (uint64_t i = 1, newest = 2; i <= 3; i++) {
        put_back();
        CHECK_EQ(seen_write(seen_path, &old, &err), STATUS_OK); /* what a standby sees of it */
        CHECK(start());
        (void)snprintf(clusters[i], sizeof clusters[i], "%s", store_cluster(life.store));
        for (uint64_t j = 0; j < i; j++)
            CHECK(strcmp(clusters[i], clusters[j]) != 0);
        CHECK(store_is_copy(life.store)); /* its jobs wait */
        CHECK(store_next_job_id(life.store) > newest + STORE_ID_GAP);
        newest = store_next_job_id(life.store);
        give(newest);
        CHECK_EQ(job_seen(), newest);
    }
    kill_it();
    CHECK(start()); /* not put back */
    CHECK_STR(store_cluster(life.store), clusters[3]);
    kill_it();
    etcd_member_kill(&member);
}

/* It has the state's earlier id in its own file. */
TEST(a_server_that_was_away_when_it_was_put_back_takes_what_the_other_made)
{
    char away[512], cluster[33];
    struct seen before;

    begin();
    (void)snprintf(seen_path, sizeof seen_path, "%s/etcd-seen", test_dir());
    (void)snprintf(away, sizeof away, "%s/away-seen", test_dir());
    CHECK(start());
    kill_it();
    etcd_member_kill(&member);
    etcd_member_keep(&member, "kept");
    etcd_member_again(&member, NULL);
    CHECK(start());
    for (uint64_t id = 1; id <= 9; id++)
        give(id);
    put_back();
    CHECK_EQ(seen_read(seen_path, &before, NULL, &err), STATUS_OK);
    CHECK_EQ(seen_write(away, &before, &err), STATUS_OK);
    CHECK(start());
    (void)snprintf(cluster, sizeof cluster, "%s", store_cluster(life.store));
    kill_it();
    (void)snprintf(seen_path, sizeof seen_path, "%s", away);
    CHECK(start());
    CHECK_STR(store_cluster(life.store), cluster);
    kill_it();
    etcd_member_kill(&member);
}

#define LONG_LEASE_US UINT64_C(900000000)

/* Job 1 in the state that is put back, whose file of then is `old_path`; up to job 9 is known in `better_path`, with a longer lease. */
static struct seen make_past(char old_path[512], char better_path[512])
{
    struct seen better;

    begin();
    (void)snprintf(better_path, 512, "%s/better-seen", test_dir());
    (void)snprintf(old_path, 512, "%s/old-seen", test_dir());
    (void)snprintf(seen_path, sizeof seen_path, "%s", better_path);
    CHECK(start());
    give(1);
    kill_it();
    CHECK_EQ(seen_read(better_path, &better, NULL, &err), STATUS_OK);
    CHECK_EQ(seen_write(old_path, &better, &err), STATUS_OK);
    etcd_member_kill(&member);
    etcd_member_keep(&member, "kept");
    etcd_member_again(&member, NULL);
    CHECK(start());
    for (uint64_t id = 2; id <= 9; id++)
        give(id);
    store_begin(life.store);
    store_write_lease(life.store, LONG_LEASE_US);
    store_commit(life.store);
    put_back();
    CHECK_EQ(seen_read(better_path, &better, NULL, &err), STATUS_OK);
    CHECK_EQ(better.job_id, 9);
    CHECK_EQ(better.lease_us, LONG_LEASE_US);
    (void)snprintf(seen_path, sizeof seen_path, "%s", old_path);
    return better;
}

static void look(const struct seen *before, bool is_past)
{
    struct etcd_client *client = etcd_lead_connect(member.port);
    struct past_look look;

    CHECK_EQ(past_key_look(client, PREFIX, before, &look, &err), STATUS_OK);
    CHECK_EQ(look.is_past, is_past);
    etcd_close(&client);
}

static uint32_t past_keys(void)
{
    return count_keys(life.client, PREFIX "past", PREFIX "pasu");
}

/* What the standby knows is left out from the next commit on, and what waits is held for the lease that it knows. */
TEST(a_leader_that_knows_less_is_told_by_a_standby)
{
    char old_path[512], better_path[512], cluster[33];
    struct seen better = make_past(old_path, better_path);

    CHECK(start());
    (void)snprintf(cluster, sizeof cluster, "%s", store_cluster(life.store));
    CHECK(gives(2, 2)); /* before the standby has looked, nobody knows */
    show_alive();
    look(&better, true);
    look(&better, true); /* and a second one */
    CHECK(!gives(3, 3));
    CHECK(strstr(life.why, "another one has seen commit ") != NULL &&
          strstr(life.why, ", job 9") != NULL);
    CHECK_EQ(job_seen(), 2); /* job 3 is not in etcd */
    kill_it();
    CHECK(start());
    CHECK(strcmp(store_cluster(life.store), cluster) != 0);
    CHECK(store_next_job_id(life.store) > 9 + STORE_ID_GAP);
    CHECK(store_is_copy(life.store) && !store_is_newest(life.store));
    CHECK_EQ(store_lease_us(life.store), LONG_LEASE_US);
    CHECK_EQ(past_keys(), 0);
    look(&better, false); /* that state is another one now */
    (void)snprintf(cluster, sizeof cluster, "%s", store_cluster(life.store));
    CHECK(gives(store_next_job_id(life.store), store_next_job_id(life.store)));
    kill_it();
    CHECK_EQ(remove(old_path), 0); /* the lease is in the state, too */
    CHECK(start());
    CHECK_STR(store_cluster(life.store), cluster);
    CHECK_EQ(store_lease_us(life.store), LONG_LEASE_US);
    kill_it();
    etcd_member_kill(&member);
}

/* Before any server leads: then no number is given twice. Of several standbys, what the best one knows counts. */
TEST(a_standby_that_comes_first_leaves_word)
{
    char old_path[512], better_path[512];
    struct seen better = make_past(old_path, better_path), half = better;

    half.job_id = 5;
    half.commit -= 2;
    look(&half, true);
    look(&better, true);
    look(&half, true);
    CHECK(start());
    CHECK(store_next_job_id(life.store) > 9 + STORE_ID_GAP);
    CHECK(store_is_copy(life.store));
    CHECK_EQ(past_keys(), 0);
    kill_it();
    etcd_member_kill(&member);
}

/* Its own file is no help: the leader has made more commits than were seen, but has not given as many numbers. */
TEST(a_state_that_went_on_is_still_of_the_past)
{
    char old_path[512], better_path[512];
    struct seen better = make_past(old_path, better_path);

    CHECK(start());
    while (life.store->remote->seq <= better.commit)
        show_alive();
    kill_it();
    (void)snprintf(seen_path, sizeof seen_path, "%s", better_path);
    CHECK(start());
    CHECK(store_next_job_id(life.store) > 9 + STORE_ID_GAP);
    CHECK(store_is_copy(life.store));
    kill_it();
    etcd_member_kill(&member);
}

/* Large commits compare it, too. */
TEST(a_key_of_another_state_is_removed)
{
    const struct etcd_op put = {
        .kind = ETCD_PUT, .key = etcd_text(PREFIX "past"), .value = etcd_text("0123 something")};
    const struct etcd_txn txn = {.then = &put, .then_count = 1};
    struct etcd_client *client;
    struct etcd_answer answer;
    char cluster[33];

    begin();
    CHECK(start());
    (void)snprintf(cluster, sizeof cluster, "%s", store_cluster(life.store));
    CHECK(gives(1, 2));
    client = etcd_lead_connect(member.port);
    CHECK_EQ(etcd_transact(client, &txn, soon(), &arena, &answer, &err), STATUS_OK);
    CHECK(!gives(3, 400));
    kill_it();
    CHECK(start());
    CHECK_EQ(store_next_job_id(life.store), 3);
    CHECK(gives(3, 400));
    CHECK_STR(store_cluster(life.store), cluster);
    CHECK_EQ(past_keys(), 0);
    kill_it();
    CHECK(start());
    CHECK_EQ(store_next_job_id(life.store), 401);
    kill_it();
    etcd_close(&client);
    etcd_member_kill(&member);
}

TEST_MAIN
