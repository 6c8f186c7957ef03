/* Backups: a moved state is the same to the last number, and the old one is not used again; a copy never gives a
 * number that was given before; from either kind of store to either; a damaged file changes nothing. */
#include "rendezvous/store/backup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "rendezvous/core/job.h"
#include "rendezvous/store/backup_file.h"
#include "rendezvous/store/etcd_client.h"
#include "tests/lib/etcd_member.h"
#include "tests/lib/store_model.h"
#include "tests/lib/test.h"

#define PREFIX "/ddp/"
#define NOW_MS 1790000000000

static struct err err;
static struct arena arena;

static const char *path_of(const char *name)
{
    static char paths[8][600];
    static uint32_t used;
    char *path = paths[used++ % 8];

    (void)snprintf(path, sizeof paths[0], "%.500s/%s", test_dir(), name);
    return path;
}

static struct store *open_dir(const char *name)
{
    struct store *store = NULL;

    if (store_open(&store, path_of(name), true, &err) != STATUS_OK)
        FAIL("store_open: %s", err.text);
    return store;
}

static void fill(struct store *store, struct model *model, uint64_t seed, uint32_t commits)
{
    struct model_random random = {.state = seed};

    for (uint32_t i = 0; i < commits; i++) {
        store_begin(store);
        for (int changes = 0; changes < 5; changes++)
            model_change(model, &random, store, true);
        store_commit(store);
    }
}

static void check_same(const struct model *model, struct store *store)
{
    char text[200] = "";

    if (!model_matches(model, store, text, sizeof text))
        FAIL("%s", text);
}

/* -- etcd -- */

static struct etcd_client *connect_to(const struct etcd_member *member)
{
    char prefix[ETCD_PREFIX_BYTES_MAX];
    struct etcd_options options;
    struct etcd_client *client;

    CHECK_EQ(etcd_url_parse(member->url, &options, prefix, &err), STATUS_OK);
    CHECK_EQ(etcd_open(&client, &options, &err), STATUS_OK);
    return client;
}

static struct store *open_etcd(struct etcd_client *client)
{
    struct etcd_op op = {.kind = ETCD_DELETE, .key = etcd_text(PREFIX "leader")};
    struct etcd_txn txn = {.then = &op, .then_count = 1};
    struct store_lead lead = {.client = client, .prefix = PREFIX, .quota_bytes = UINT64_C(2) << 30};
    struct store *store = NULL;
    struct etcd_answer answer;
    uint64_t deadline_us = clock_boot_us() + 30000000;

    CHECK_EQ(etcd_transact(client, &txn, deadline_us, &arena, &answer, &err), STATUS_OK);
    op.kind = ETCD_PUT;
    op.value = etcd_text("test");
    CHECK_EQ(etcd_transact(client, &txn, deadline_us, &arena, &answer, &err), STATUS_OK);
    lead.revision = answer.revision;
    arena_reset(&arena);
    if (store_open_etcd(&store, &lead, &err) != STATUS_OK)
        FAIL("store_open_etcd: %s", err.text);
    return store;
}

/* -- tests -- */

TEST(a_moved_state_is_the_same_and_the_old_one_is_not_used)
{
    struct backup_facts facts;
    struct model model;
    struct store *store = open_dir("old");
    char cluster[33];
    struct stat info;

    model_init(&model);
    fill(store, &model, 1, 40);
    (void)snprintf(cluster, sizeof cluster, "%s", store_cluster(store));
    CHECK_EQ(backup_move(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    CHECK(facts.is_moved && facts.row_count > 0 && facts.job_count > 0);
    store_close(&store);
    CHECK(stat(path_of("b"), &info) == 0 && (info.st_mode & 0777) == 0600);
    CHECK_EQ(store_open(&store, path_of("old"), true, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "was moved away") != NULL);
    CHECK_EQ(backup_dir(path_of("old"), path_of("c"), NOW_MS, &facts, &err), STATUS_UNSUPPORTED);
    store = open_dir("new");
    CHECK_EQ(backup_restore(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    store = open_dir("new");
    CHECK_STR(store_cluster(store), cluster);
    check_same(&model, store);
    fill(store, &model, 2, 3); /* and goes on */
    check_same(&model, store);
    store_close(&store);
}

static bool is_above(uint64_t number, uint64_t given);

/* Restored a second time, the first restore may have gone on with the numbers. */
TEST(a_moved_file_is_good_for_one_restore)
{
    struct backup_facts facts;
    struct model model;
    struct store *store = open_dir("old");
    char cluster[33];

    model_init(&model);
    fill(store, &model, 1, 40);
    (void)snprintf(cluster, sizeof cluster, "%s", store_cluster(store));
    CHECK_EQ(backup_move(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    for (int i = 0; i < 3; i++) {
        store = open_dir(i == 0 ? "first" : i == 1 ? "second" : "third");
        CHECK_EQ(backup_check(path_of("b"), &facts, &err), STATUS_OK); /* is no use */
        CHECK_EQ(backup_restore(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
        CHECK_EQ(facts.is_moved, i == 0);
        CHECK_STR(facts.why_copy, i == 0 ? "" : "it was restored once already");
        store_close(&store);
        store = open_dir(i == 0 ? "first" : i == 1 ? "second" : "third");
        CHECK_EQ(strcmp(store_cluster(store), cluster) == 0, i == 0);
        if (i == 0)
            CHECK_EQ(store_next_job_id(store), model.next_job_id);
        else
            CHECK(is_above(store_next_job_id(store), model.next_job_id) && store_is_copy(store));
        store_close(&store);
    }
}

TEST(a_moved_file_that_cannot_be_marked_is_a_copy)
{
    struct backup_facts facts;
    struct model model;
    struct store *store = open_dir("old");
    int fd;

    model_init(&model);
    fill(store, &model, 1, 40);
    CHECK_EQ(backup_move(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    fd = open(path_of("b"), O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0); /* another restore marks it now */
    store = open_dir("new");
    CHECK_EQ(backup_restore(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    CHECK(facts.was_moved && !facts.is_moved);
    CHECK(strstr(facts.why_copy, "cannot be marked as restored") != NULL);
    CHECK(is_above(store_next_job_id(store), model.next_job_id));
    store_close(&store);
    (void)close(fd);
}

/* By the gap, whose length is drawn. */
static bool is_above(uint64_t number, uint64_t given)
{
    return number >= given + STORE_ID_GAP &&
           number <= given + (uint64_t)STORE_ID_GAP * STORE_ID_GAP_SPAN;
}

/* The old server goes on after the copy was made: what it gives then is not given again. */
TEST(a_copy_of_a_live_state_gives_no_number_twice)
{
    struct backup_facts facts;
    struct model model, later;
    struct store *live = open_dir("live"), *store;
    struct part_event events[1];

    model_init(&model);
    fill(live, &model, 1, 40);
    CHECK_EQ(backup_dir(path_of("live"), path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    CHECK(!facts.is_moved);
    CHECK_STR(facts.cluster, store_cluster(live));
    later = model;
    fill(live, &later, 2, 40);
    CHECK(later.next_job_id > model.next_job_id);
    check_same(&later, live);
    store = open_dir("new");
    CHECK_EQ(backup_restore(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    CHECK_EQ(facts.made_ms, NOW_MS);
    store_close(&store);
    store = open_dir("new");
    CHECK(strcmp(store_cluster(store), store_cluster(live)) != 0);
    CHECK(is_above(store_next_job_id(store), model.next_job_id));
    CHECK(is_above(store_last_event_id(store), model.last_event_id));
    CHECK(store_next_job_id(store) > later.next_job_id);
    CHECK_EQ(store_events(store, (struct store_viewer){.sees_all = true}, 0, model.last_event_id, 1,
                          &arena, events),
             1);
    CHECK(strstr(events[0].text, "restored from a backup of 2026-") != NULL);
    model.next_job_id = store_next_job_id(store);
    store_close(&live);
    /* a backup of it keeps the gap */
    CHECK_EQ(backup_dir(path_of("new"), path_of("c"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    store = open_dir("third");
    CHECK_EQ(backup_restore(store, path_of("c"), NOW_MS, &facts, &err), STATUS_OK);
    CHECK(is_above(store_next_job_id(store), model.next_job_id));
    store_close(&store);
    arena_reset(&arena);
}

static void write_job(struct store *store, uint64_t id, enum job_state state,
                      enum stop_cause stopping)
{
    struct rdzv_part part = {.node = "n1", .local_count = 1, .slot_mask = 1};
    const struct rdzv_record record = {.job_id = id,
                                       .name = "train",
                                       .user = "ann",
                                       .nodes = 1,
                                       .nproc_per_node = 1,
                                       .failed_rank = -1,
                                       .generation = 2,
                                       .restarts = 1,
                                       .state = state,
                                       .failed_class = FAILURE_NODE,
                                       .preempted_by = 7,
                                       .stopping = stopping,
                                       .parts = &part,
                                       .part_count = state == JOB_RESTARTING ? 0 : 1};

    store_write_job(store, &record);
}

/* Its stop says nothing of the program. A failure that came before it still counts. */
static void check_planned(struct store *store, uint64_t id, bool planned)
{
    struct rdzv_record record;

    CHECK(store_get_job(store, id, &arena, &record));
    CHECK_EQ(record.state, JOB_RESTARTING);
    CHECK_EQ(record.planned, planned);
    CHECK_EQ(record.failed_class, planned ? FAILURE_PROGRAM : FAILURE_NODE);
    CHECK_EQ(record.preempted_by, 0);
    CHECK_EQ(record.stopping, STOP_NONE);
    arena_reset(&arena);
}

TEST(a_job_that_ran_in_the_copy_starts_again_without_a_failure)
{
    struct backup_facts facts;
    struct store *store = open_dir("live");

    store_begin(store);
    write_job(store, 1, JOB_RUNNING, STOP_NONE);
    write_job(store, 2, JOB_STARTING, STOP_NONE);
    write_job(store, 3, JOB_RUNNING, STOP_PLANNED);
    write_job(store, 4, JOB_RUNNING, STOP_FAILURE);
    write_job(store, 5, JOB_RESTARTING, STOP_NONE);
    store_commit(store);
    CHECK_EQ(backup_dir(path_of("live"), path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    store = open_dir("new");
    CHECK_EQ(backup_restore(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    store = open_dir("new");
    for (uint64_t id = 1; id <= 5; id++)
        check_planned(store, id, id <= 3);
    store_close(&store);
}

TEST(a_job_that_ran_in_the_copy_waits_for_the_longest_lease)
{
    struct backup_facts facts;
    struct rdzv_record record;
    struct store *store = open_dir("leased");

    store_begin(store);
    write_job(store, 1, JOB_RUNNING, STOP_NONE);
    store_write_lease(store, 150000000);
    store_commit(store);
    CHECK_EQ(backup_dir(path_of("leased"), path_of("l"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    store = open_dir("later");
    CHECK_EQ(backup_restore(store, path_of("l"), NOW_MS, &facts, &err), STATUS_OK);
    CHECK_EQ(store_lease_us(store), 150000000);
    CHECK(store_get_job(store, 1, &arena, &record));
    CHECK_EQ(record.retry_at_ms, NOW_MS + 150000 + LEASE_MARGIN_US / 1000);
    CHECK_EQ(store_keys_lost_ms(store), NOW_MS);
    CHECK(store_is_copy(store)); /* until a server has waited for the lease */
    store_begin(store);
    store_write_copy_over(store);
    store_commit(store);
    CHECK(!store_is_copy(store));
    arena_reset(&arena);
    store_close(&store);
}

TEST(from_a_file_to_etcd_and_back)
{
    struct backup_facts facts;
    struct etcd_member member;
    struct etcd_client *client;
    struct model model;
    struct store *store = open_dir("old");
    char cluster[33];

    etcd_member_start(&member, NULL);
    client = connect_to(&member);
    CHECK_EQ(backup_etcd(client, PREFIX, path_of("x"), NOW_MS, &facts, &err), STATUS_NOT_FOUND);
    model_init(&model);
    fill(store, &model, 1, 60);
    (void)snprintf(cluster, sizeof cluster, "%s", store_cluster(store));
    CHECK_EQ(backup_move(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    store = open_etcd(client);
    CHECK_EQ(backup_restore(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    store = open_etcd(client);
    CHECK_STR(store_cluster(store), cluster);
    check_same(&model, store);
    fill(store, &model, 3, 20);
    CHECK_EQ(backup_etcd(client, PREFIX, path_of("live"), NOW_MS, &facts, &err), STATUS_OK);
    CHECK_STR(facts.cluster, cluster);
    CHECK_EQ(backup_move(store, path_of("c"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    store = open_dir("new");
    CHECK_EQ(backup_restore(store, path_of("c"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    store = open_dir("new");
    CHECK_STR(store_cluster(store), cluster);
    check_same(&model, store);
    store_close(&store);
    etcd_close(&client);
    etcd_member_kill(&member);
}

TEST(nothing_is_overwritten)
{
    struct backup_facts facts;
    struct model model;
    struct store *store = open_dir("old");

    model_init(&model);
    fill(store, &model, 1, 5);
    CHECK_EQ(backup_dir(path_of("old"), path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    CHECK_EQ(backup_dir(path_of("old"), path_of("b"), NOW_MS, &facts, &err), STATUS_CONFLICT);
    CHECK_EQ(backup_restore(store, path_of("b"), NOW_MS, &facts, &err), STATUS_CONFLICT);
    check_same(&model, store);
    CHECK_EQ(backup_dir(path_of("nowhere"), path_of("c"), NOW_MS, &facts, &err), STATUS_NOT_FOUND);
    CHECK(access(path_of("c"), F_OK) != 0);
    CHECK_EQ(backup_restore(store, path_of("none"), NOW_MS, &facts, &err), STATUS_CONFLICT);
    store_close(&store);
}

static void write_bytes(const char *path, const char *bytes, size_t byte_count)
{
    FILE *file = fopen(path, "wb");

    CHECK(file != NULL && fwrite(bytes, 1, byte_count, file) == byte_count);
    CHECK(fclose(file) == 0);
}

/* Every byte, and every end. */
TEST(a_damaged_file_changes_nothing)
{
    struct backup_facts facts;
    struct model model;
    struct store *store = open_dir("old"), *new;
    static char bytes[1 << 20];
    size_t byte_count;
    FILE *file;

    model_init(&model);
    fill(store, &model, 1, 1);
    CHECK_EQ(backup_dir(path_of("old"), path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    file = fopen(path_of("b"), "rb");
    CHECK(file != NULL);
    byte_count = fread(bytes, 1, sizeof bytes, file);
    CHECK(byte_count > 100 && byte_count < sizeof bytes && fclose(file) == 0);
    new = open_dir("new");
    for (size_t i = 0; i < byte_count; i += i < 300 ? 1 : 97) {
        bytes[i] ^= 0x10;
        write_bytes(path_of("bad"), bytes, byte_count);
        bytes[i] ^= 0x10;
        CHECK_EQ(backup_restore(new, path_of("bad"), NOW_MS, &facts, &err), STATUS_BAD_INPUT);
        write_bytes(path_of("bad"), bytes, i);
        CHECK_EQ(backup_restore(new, path_of("bad"), NOW_MS, &facts, &err), STATUS_BAD_INPUT);
    }
    CHECK_EQ(store_writes(new), 0);
    CHECK_EQ(backup_restore(new, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&new);
}

/* A file whose checksum is right and whose last rows are not: what a restore that ends in the middle leaves. */
TEST(half_a_restore_is_not_used)
{
    static const char head[] =
        "schema=9 moved=0 made_ms=1 cluster=0123456789abcdef0123456789abcdef";
    static const char *const tables[] = {"jobs id,name", "shoes id"};
    struct backup_facts facts;
    struct backup_file file;
    struct store *store = open_dir("new");

    CHECK_EQ(backup_file_make(&file, path_of("b"), &err), STATUS_OK);
    CHECK_EQ(backup_file_put(&file, 'H', head, sizeof head - 1, &err), STATUS_OK);
    for (size_t i = 0; i < 2; i++)
        CHECK_EQ(backup_file_put(&file, 'T', tables[i], strlen(tables[i]), &err), STATUS_OK);
    CHECK_EQ(backup_file_finish(&file, &err), STATUS_OK);
    backup_file_close(&file);
    CHECK_EQ(backup_restore(store, path_of("b"), NOW_MS, &facts, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "shoes") != NULL);
    store_close(&store);
    CHECK_EQ(store_open(&store, path_of("new"), true, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "is half of a restored backup") != NULL);
}

TEST_MAIN
