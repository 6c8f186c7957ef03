/* A restore that is interrupted at any point: a server takes the state for nothing, or refuses it with words, or has all
 * of it. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io/conn.h"
#include "common/log.h"
#include "rendezvous/store/backup.h"
#include "rendezvous/store/etcd_client.h"
#include "rendezvous/store/internal.h"
#include "tests/lib/disk_vfs.h"
#include "tests/lib/etcd_member.h"
#include "tests/lib/store_model.h"
#include "tests/lib/test.h"

#define PREFIX "/ddp/"
#define NOW_MS 1790000000000

static const char dir[] = "/state";
static struct err err;
static struct model model;
static struct store *now;
static jmp_buf ended;

static const char *path_of(const char *name)
{
    static char path[600];

    (void)snprintf(path, sizeof path, "%.500s/%s", test_dir(), name);
    return path;
}

/* A moved state. */
static void make_backup(void)
{
    struct model_random random = {.state = 1};
    struct backup_facts facts;
    struct store *store = NULL;

    log_open("store", (enum log_level)(LOG_ERROR + 1), false); /* each failure would be a line */
    model_init(&model);
    CHECK_EQ(store_open(&store, path_of("old"), true, &err), STATUS_OK);
    for (int i = 0; i < 6; i++) {
        store_begin(store);
        model_change(&model, &random, store, false);
        store_commit(store);
    }
    CHECK_EQ(backup_move(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
}

/* Each restore gets a file that was not used. */
static const char *unused_file(void)
{
    static char bytes[1 << 20];
    static size_t byte_count;
    FILE *file = fopen(path_of("b"), "rbe");

    CHECK(file != NULL);
    byte_count = fread(bytes, 1, sizeof bytes, file);
    CHECK(byte_count > 0 && byte_count < sizeof bytes && fclose(file) == 0);
    (void)unlink(path_of("unused")); /* that of a restore that was interrupted is locked */
    file = fopen(path_of("unused"), "wbe");
    CHECK(file != NULL && fwrite(bytes, 1, byte_count, file) == byte_count && fclose(file) == 0);
    return path_of("unused");
}

static void on_end(struct store *store, int code)
{
    CHECK_EQ(code, STORE_EXIT_CODE);
    disk_bury(store);
    now = NULL;
    longjmp(ended, 1);
}

/* True: it has ended well. */
static bool restore(void)
{
    struct backup_facts facts;

    now = NULL;
    if (setjmp(ended) != 0)
        return false;
    if (store_open_restore_on(&now, disk_table(on_end), dir, &err) != STATUS_OK) {
        disk_process_killed();
        return false;
    }
    if (backup_restore(now, unused_file(), NOW_MS, &facts, &err) != STATUS_OK) {
        disk_bury(now);
        return false;
    }
    store_close(&now);
    return true;
}

/* What a server then finds. `is_begun`: the restore has left something. */
static void check_server(uint64_t change, enum disk_rest rest, bool is_begun)
{
    struct store *store = NULL;
    char text[200] = "";

    if (store_open_on(&store, disk_table(on_end), dir, true, &err) != STATUS_OK) {
        if (strstr(err.text, "a restore was interrupted") == NULL &&
            strstr(err.text, "a restore of a backup was interrupted") == NULL)
            FAIL("change %llu, rest %d: %s", (unsigned long long)change, (int)rest, err.text);
        disk_process_killed();
        return;
    }
    if (!model_matches(&model, store, text, sizeof text) && (is_begun || !store_was_made(store)))
        FAIL("change %llu, rest %d: a server starts with another state: %s",
             (unsigned long long)change, (int)rest, text);
    store_close(&store);
}

/* A kill leaves all that was written (DISK_REST_ALL); a power cut may leave less. */
TEST(an_interrupted_restore_is_refused_at_every_point)
{
    static const enum disk_rest rests[] = {DISK_REST_ALL, DISK_REST_NONE, DISK_REST_SOME};
    uint64_t changes;

    make_backup();
    disk_init(1, 0);
    CHECK(restore());
    changes = disk_changes();
    CHECK(changes > 10);
    check_server(0, DISK_REST_ALL, true);
    for (size_t i = 0; i < sizeof rests / sizeof rests[0]; i++)
        for (uint64_t change = 1; change <= changes; change++) {
            disk_init(change, 0);
            disk_cut_at(change);
            CHECK(!restore() || disk_is_off());
            disk_power_on(rests[i]);
            check_server(change, rests[i], rests[i] == DISK_REST_ALL && change > 1);
        }
    disk_free();
}

/* The first restore was killed before its state.db was there. */
TEST(a_restore_can_be_begun_again)
{
    make_backup();
    for (uint64_t change = 2; change < 8; change++) {
        disk_init(change, 0);
        disk_cut_at(change);
        CHECK(!restore());
        disk_power_on(DISK_REST_ALL);
        if (!restore()) /* state.db is there, and is to be removed first */
            CHECK(strstr(err.text, "is half of a restored backup") != NULL);
        check_server(change, DISK_REST_ALL, true);
    }
    disk_free();
}

TEST(nor_is_one_on_etcd_used)
{
    struct etcd_op op = {
        .kind = ETCD_PUT, .key = etcd_text(PREFIX "leader"), .value = etcd_text("test")};
    struct etcd_txn txn = {.then = &op, .then_count = 1};
    struct store_lead lead = {.prefix = PREFIX, .quota_bytes = UINT64_C(2) << 30};
    char prefix[ETCD_PREFIX_BYTES_MAX], text[200];
    struct etcd_options options;
    struct backup_facts facts;
    struct store *store = NULL;
    struct etcd_member member;
    struct etcd_client *client;
    struct etcd_answer answer;
    struct arena arena = {0};

    make_backup();
    etcd_member_start(&member, NULL);
    CHECK_EQ(etcd_url_parse(member.url, &options, prefix, &err), STATUS_OK);
    CHECK_EQ(etcd_open(&client, &options, &err), STATUS_OK);
    CHECK_EQ(etcd_transact(client, &txn, clock_boot_us() + 30000000, &arena, &answer, &err),
             STATUS_OK);
    lead.client = client;
    lead.revision = answer.revision;
    lead.is_restore = true;
    CHECK_EQ(store_open_etcd(&store, &lead, &err), STATUS_OK);
    store_close(&store); /* its process ends here */
    lead.is_restore = false;
    CHECK_EQ(store_open_etcd(&store, &lead, &err), STATUS_UNSUPPORTED);
    CHECK(strstr(err.text, "is half of a restored backup") != NULL);
    CHECK(strstr(err.text, "etcdctl del --prefix") != NULL);
    op = (struct etcd_op){.kind = ETCD_DELETE, .key = etcd_text(PREFIX), .end = etcd_text("/ddp0")};
    CHECK_EQ(etcd_transact(client, &txn, clock_boot_us() + 30000000, &arena, &answer, &err),
             STATUS_OK);
    op = (struct etcd_op){
        .kind = ETCD_PUT, .key = etcd_text(PREFIX "leader"), .value = etcd_text("test")};
    CHECK_EQ(etcd_transact(client, &txn, clock_boot_us() + 30000000, &arena, &answer, &err),
             STATUS_OK);
    lead.revision = answer.revision;
    lead.is_restore = true;
    CHECK_EQ(store_open_etcd(&store, &lead, &err), STATUS_OK);
    CHECK_EQ(backup_restore(store, path_of("b"), NOW_MS, &facts, &err), STATUS_OK);
    store_close(&store);
    lead.is_restore = false;
    CHECK_EQ(store_open_etcd(&store, &lead, &err), STATUS_OK);
    if (!model_matches(&model, store, text, sizeof text))
        FAIL("%s", text);
    store_close(&store);
    arena_reset(&arena);
    etcd_close(&client);
    etcd_member_kill(&member);
}

TEST_MAIN
