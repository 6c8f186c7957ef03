/* Jobs of an array in the store, and what a job waits for. */
#include <string.h>

#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

static const struct store_viewer viewer = {.user = "ann"}, other = {.user = "bob"};

/* Of no array. It has ended at its own number. */
static struct rdzv_record make_record(uint64_t id, enum job_state state)
{
    return (struct rdzv_record){.job_id = id,
                                .name = "sweep",
                                .user = "ann",
                                .nodes = 1,
                                .nproc_per_node = 1,
                                .failed_rank = -1,
                                .state = state,
                                .ended_ms = rdzv_state_is_final(state) ? (int64_t)id : 0};
}

static void write_job(struct store *store, uint64_t id, uint64_t array, enum job_state state)
{
    struct rdzv_record record = make_record(id, state);

    record.array_job = array;
    record.array_index = (uint32_t)(id - array) * 10;
    record.array_count = array != 0 ? 3 : 0;
    store_write_job(store, &record);
}

/* The jobs 1, and 2 to 4 as an array; the newest, 5. */
static struct store *fill(void)
{
    static const char *const argv[] = {"train"};
    static const struct msg_submit submit = {
        .request_id = "0", .cwd = "/here", .array = "", .argv = {.items = argv, .count = 1}};
    struct store *store = open_or_fail(test_dir());

    store_begin(store);
    write_job(store, 1, 0, JOB_SUCCEEDED);
    store_write_spec(store, 1, "ann", &submit);
    for (uint64_t id = 2; id <= 4; id++)
        write_job(store, id, 2, id == 3 ? JOB_CANCELLED : JOB_SUCCEEDED);
    store_write_spec(store, 2, "ann", &submit);
    write_job(store, 5, 0, JOB_QUEUED);
    store_commit(store);
    return store;
}

static enum status read_spec(struct store *store, uint64_t id)
{
    struct arena arena = {0};
    struct store_spec spec;
    enum status status = store_spec(store, id, true, &arena, &spec);

    if (status == STATUS_OK)
        CHECK_STR(spec.cwd, "/here");
    arena_reset(&arena);
    return status;
}

/* Another job waits for the one of this id. */
static void mark(const void *awaited, struct rdzv_ids *ids, uint32_t count)
{
    const uint64_t id = *(const uint64_t *)awaited;

    for (uint32_t i = 0; i < count; i++)
        ids[i].is_awaited = ids[i].first <= id && ids[i].last >= id;
}

static uint32_t expire_but(struct store *store, int64_t before_ms, uint64_t awaited)
{
    uint64_t after_id = 0;
    uint32_t count = 0;
    bool is_at_end = false;

    while (!is_at_end) {
        store_begin(store);
        count += store_expire(store, before_ms, mark, &awaited, &after_id, &is_at_end);
        store_commit(store);
    }
    return count;
}

static void expire(struct store *store, int64_t before_ms)
{
    (void)expire_but(store, before_ms, 0);
}

TEST(a_job_of_an_array_is_found_by_its_index)
{
    struct store *store = fill();

    CHECK_EQ(store_find_job(store, "2_0", viewer), 2);
    CHECK_EQ(store_find_job(store, "2_20", viewer), 4);
    CHECK_EQ(store_find_job(store, "2_1", viewer), 0);
    CHECK_EQ(store_find_job(store, "1_0", viewer), 0);
    CHECK_EQ(store_find_job(store, "2_20", other), 0);
    store_close(&store);
}

TEST(the_jobs_of_an_array_stay_until_all_may_go)
{
    struct store *store = fill();

    for (uint64_t id = 1; id <= 4; id++)
        CHECK_EQ(read_spec(store, id), STATUS_OK);
    expire(store, 4); /* those that ended before: 1, 2 and 3 */
    CHECK_EQ(read_spec(store, 1), STATUS_NOT_FOUND);
    for (uint64_t id = 2; id <= 4; id++)
        CHECK_EQ(read_spec(store, id), STATUS_OK);
    store_begin(store);
    write_job(store, 4, 2, JOB_RUNNING);
    store_commit(store);
    expire(store, 100); /* one still runs */
    CHECK_EQ(store_find_job(store, "2_0", viewer), 2);
    store_begin(store);
    write_job(store, 4, 2, JOB_FAILED);
    store_commit(store);
    expire(store, 5);
    CHECK_EQ(store_find_job(store, "2_0", viewer), 0);
    CHECK_EQ(store_find_job(store, "2_20", viewer), 0);
    store_close(&store);
    execute("CREATE TABLE found AS SELECT 1 / (count(*) = 0) AS ok FROM specs");
    execute("CREATE TABLE checked (ok INTEGER NOT NULL)");
    execute(
        "INSERT INTO checked SELECT ok FROM found"); /* NULL, and so refused, where one is left */
}

TEST(a_job_stays_while_others_wait_for_it)
{
    struct rdzv_after after = {.count = 1, .items = {{.first = 1, .last = 1}}};
    struct store *store = fill();

    CHECK_EQ(expire_but(store, 100, 1), 3);
    store_find_failed(store, &after);
    CHECK_EQ(after.failed_id, 0);
    CHECK_EQ(expire_but(store, 100, 0), 1);
    store_close(&store);
}

TEST(an_array_stays_whole_while_others_wait_for_one_of_it)
{
    struct store *store = fill();

    CHECK_EQ(expire_but(store, 100, 4), 1);
    CHECK_EQ(store_find_job(store, "2_0", viewer), 2);
    CHECK_EQ(store_find_job(store, "2_20", viewer), 4);
    CHECK_EQ(read_spec(store, 3), STATUS_OK);
    CHECK_EQ(expire_but(store, 100, 0), 3);
    store_close(&store);
}

/* More than one piece of a sweep looks at. */
TEST(jobs_behind_many_that_stay_are_found)
{
    struct store *store = open_or_fail(test_dir());

    store_begin(store);
    for (uint64_t id = 1; id <= 3 * STORE_EXPIRE_MAX; id++) {
        struct rdzv_record record = make_record(id, JOB_SUCCEEDED);

        record.ended_ms = 1;
        record.array_job = 1;
        record.array_index = (uint32_t)id;
        record.array_count = 3 * STORE_EXPIRE_MAX;
        store_write_job(store, &record);
    }
    write_job(store, 3 * STORE_EXPIRE_MAX + 1, 0, JOB_SUCCEEDED);
    write_job(store, 3 * STORE_EXPIRE_MAX + 2, 0, JOB_QUEUED);
    store_commit(store);
    CHECK_EQ(expire_but(store, 100, 1), 1);
    CHECK_EQ(expire_but(store, 100, 0), 3 * STORE_EXPIRE_MAX);
    store_close(&store);
}

TEST(the_newest_job_stays_with_its_array)
{
    struct store *store = open_or_fail(test_dir());

    store_begin(store);
    for (uint64_t id = 2; id <= 4; id++)
        write_job(store, id, 2, JOB_SUCCEEDED);
    store_commit(store);
    expire(store, 100);
    CHECK_EQ(store_find_job(store, "2_0", viewer), 2);
    store_begin(store);
    write_job(store, 5, 0, JOB_SUCCEEDED);
    store_commit(store);
    expire(store, 100);
    CHECK_EQ(store_find_job(store, "2_0", viewer), 0);
    CHECK_EQ(store_find_job(store, "5", viewer), 5);
    store_close(&store);
}

TEST(what_has_not_succeeded_is_found)
{
    struct store *store = fill();
    struct rdzv_after after = {.count = 1, .items = {{.first = 1, .last = 1}}};

    store_find_failed(store, &after);
    CHECK_EQ(after.failed_id, 0);
    after.items[0] = (struct rdzv_after_item){.first = 2, .last = 4};
    store_find_failed(store, &after);
    CHECK_EQ(after.failed_id, 3);
    CHECK_EQ(after.failed_state, JOB_CANCELLED);
    after.items[0].any = true; /* it needs no success of those */
    after.items[1] = (struct rdzv_after_item){.first = 5, .last = 5}; /* it has not ended */
    after.count = 2;
    store_find_failed(store, &after);
    CHECK_EQ(after.failed_id, 0);
    after.items[2] = (struct rdzv_after_item){.first = 3, .last = 3};
    after.count = 3;
    store_find_failed(store, &after);
    CHECK_EQ(after.failed_id, 3);
    expire(store, 2);
    after = (struct rdzv_after){.count = 1, .items = {{.first = 1, .last = 1}}};
    store_find_failed(store, &after);
    CHECK_EQ(after.failed_id, 1); /* it is not there any more */
    CHECK(after.failed_state != JOB_SUCCEEDED);
    store_close(&store);
}

TEST_MAIN
