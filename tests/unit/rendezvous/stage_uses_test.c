/* Which user has sent or named which archive of late, and what the store adds to that. */
#include "rendezvous/server/stage_uses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/server/stage_files.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

#define KEPT_US ((uint64_t)STAGE_KEEP_FULL_MS * 1000)

static char *hash_of(uint32_t number)
{
    static char hashes[4][STAGE_HASH_CHARS + 1];
    static uint32_t next;
    char *hash = hashes[next++ % 4];

    (void)snprintf(hash, STAGE_HASH_CHARS + 1, "%064x", number);
    return hash;
}

static bool note(struct stage_uses *uses, const char *user, uint32_t number, uint64_t now_us)
{
    return stage_uses_note(uses, user, hash_of(number), now_us);
}

/* Whoever sends many small ones must not drive out what others, or the same user, have sent. */
TEST(no_user_has_more_than_half_of_what_others_leave)
{
    struct stage_uses uses = {0};
    uint32_t ann = 0, bob = 0;

    while (note(&uses, "ann", ann, 1000))
        ann++;
    while (note(&uses, "bob", bob, 1000))
        bob++;
    CHECK_EQ(ann, STAGE_USES_MAX / 2);
    CHECK_EQ(bob, STAGE_USES_MAX / 4);
    CHECK(note(&uses, "eve", 0, 1000));
    CHECK(!stage_uses_takes(&uses, "ann", hash_of(ann), 1000));
    CHECK(note(&uses, "ann", 0, 2000)); /* it is noted already */
    CHECK(!stage_uses_takes(&uses, "ann", hash_of(ann), 1000 + KEPT_US));
    CHECK(note(&uses, "ann", ann, 1001 + KEPT_US));
    CHECK_EQ(uses.count, 2); /* that one, and the one that was used again */
    stage_uses_free(&uses);
}

static void write_job(struct store *store, uint64_t id, const char *user, uint32_t number,
                      enum job_state state)
{
    static const char *const argv[] = {"train"};
    char request_id[REQUEST_ID_CHARS + 1], cwd[STAGE_CWD_BYTES_MAX];
    const struct msg_submit submit = {
        .request_id = request_id, .cwd = cwd, .array = "", .argv = {argv, 1}};
    struct rdzv_record record = {.job_id = id,
                                 .name = "job",
                                 .nodes = 1,
                                 .nodes_max = 1,
                                 .nproc_per_node = 1,
                                 .failed_rank = -1,
                                 .state = state,
                                 .ended_ms = rdzv_state_is_final(state) ? 1 : 0};

    (void)snprintf(record.user, sizeof record.user, "%s", user);
    (void)snprintf(request_id, sizeof request_id, "%032llu", (unsigned long long)id);
    (void)snprintf(cwd, sizeof cwd, STAGE_PREFIX "%s", hash_of(number));
    store_begin(store);
    store_write_job(store, &record);
    store_write_spec(store, id, user, &submit);
    store_commit(store);
}

static void expect(const struct store_staged *one, uint32_t number, bool is_named, bool is_of_user)
{
    CHECK_STR(one->hash, hash_of(number));
    CHECK_EQ(one->is_named, is_named);
    CHECK_EQ(one->is_of_user, is_of_user);
}

TEST(an_archive_counts_for_each_of_its_users)
{
    struct store *store = open_or_fail(test_dir());
    struct stage_uses uses = {0};
    struct store_staged *used;
    uint32_t count;

    write_job(store, 1, "ann", 5, JOB_QUEUED);
    write_job(store, 2, "bob", 5, JOB_RUNNING);
    write_job(store, 3, "bob", 3, JOB_QUEUED);
    write_job(store, 4, "ann", 7, JOB_CANCELLED);
    CHECK(note(&uses, "ann", 3, 1));
    CHECK(note(&uses, "bob", 5, 1));
    CHECK(note(&uses, "bob", 9, 1));
    CHECK(note(&uses, "ann", 1, 1));
    used = store_staged(store, "ann", &count);
    CHECK_EQ(count, 2);
    expect(&used[0], 3, true, false);
    expect(&used[1], 5, true, true);
    CHECK(stage_uses_add(&uses, "ann", 1, &used, &count));
    CHECK_EQ(count, 4);
    expect(&used[0], 1, false, true);
    expect(&used[1], 3, true, true);
    expect(&used[2], 5, true, true);
    expect(&used[3], 9, false, false);
    free(used);
    used = store_staged(store, "nobody", &count);
    CHECK_EQ(count, 2);
    CHECK(stage_uses_add(&uses, "nobody", 2 + KEPT_US, &used, &count)); /* all are old */
    CHECK_EQ(count, 2);
    expect(&used[0], 3, true, false);
    expect(&used[1], 5, true, false);
    free(used);
    stage_uses_free(&uses);
    store_close(&store);
}

TEST_MAIN
