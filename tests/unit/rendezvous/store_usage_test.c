/* What each user has in the store, and what stays of a job's spec when it has ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

#define BIG_BYTES 900000u
#define FAILURE_BYTES 8192u
/* In a spec of "/here", [], {} and {}; and in one with ["train"]. */
#define BARE_BYTES (5u + 2 + 2 + 2)
#define SMALL_BYTES (BARE_BYTES + 7)

static void write_job(struct store *store, uint64_t id, const char *user, uint64_t array,
                      enum job_state state)
{
    struct rdzv_record record = {.job_id = id,
                                 .name = "job",
                                 .nodes = 2,
                                 .nodes_max = 3,
                                 .nproc_per_node = 4,
                                 .failed_rank = -1,
                                 .array_job = array,
                                 .array_index = (uint32_t)(id - array),
                                 .array_count = array != 0 ? 3 : 0,
                                 .state = state,
                                 .ended_ms = rdzv_state_is_final(state) ? (int64_t)id : 0};

    (void)snprintf(record.user, sizeof record.user, "%s", user);
    store_begin(store);
    store_write_job(store, &record);
}

/* `array`: of which it is the first job; "": of none. */
static void write_spec(struct store *store, uint64_t id, const char *user, const char *array,
                       const char *last_word, const struct msg_pair *env, uint32_t env_count)
{
    const char *const argv[] = {"train", last_word};
    static const struct msg_pair launch = {.name = "input", .value = "secret"};
    char request_id[REQUEST_ID_CHARS + 1];
    const struct msg_submit submit = {.request_id = request_id,
                                      .cwd = "/here",
                                      .array = array,
                                      .argv = {argv, last_word != NULL ? 2 : 1},
                                      .env = {env, env_count},
                                      .launch = {&launch, env_count > 0}};

    (void)snprintf(request_id, sizeof request_id, "%032llu", (unsigned long long)id);
    store_begin(store);
    store_write_spec(store, id, user, &submit);
}

/* The table is made anew at each start, and must be the same then. */
static struct store *reopen(struct store *store, uint64_t ann, uint64_t bob)
{
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(store_user_bytes(store, "ann"), ann);
        CHECK_EQ(store_user_bytes(store, "bob"), bob);
        CHECK_EQ(store_user_bytes(store, "nobody"), 0);
        if (i == 0) {
            store_close(&store);
            store = open_or_fail(test_dir());
        }
    }
    return store;
}

TEST(each_row_counts_for_its_user)
{
    struct store *store = open_or_fail(test_dir());
    struct part_failure failure = {.generation = 1,
                                   .node = "n",
                                   .core = "",
                                   .cause = "",
                                   .tail = "",
                                   .error = "",
                                   .stacks = "",
                                   .decision = "",
                                   .world = 8};

    write_job(store, 1, "ann", 0, JOB_RUNNING);
    write_spec(store, 1, "ann", "", NULL, NULL, 0);
    write_job(store, 2, "bob", 0, JOB_QUEUED);
    store = reopen(store, STORE_JOB_BYTES + SMALL_BYTES, STORE_JOB_BYTES);
    store_begin(store);
    store_write_failure(store, 1, &failure, false);
    store_write_failure(store, 1, &failure, false); /* again: it replaces the first */
    for (failure.generation = 2; failure.generation < 90; failure.generation++)
        store_write_failure(store, 2, &failure, false);
    write_job(store, 2, "bob", 0, JOB_RUNNING);
    store = reopen(store, STORE_JOB_BYTES + SMALL_BYTES + FAILURE_BYTES,
                   STORE_JOB_BYTES + FAILURES_KEPT_MAX * FAILURE_BYTES);
    store_close(&store);
    execute("UPDATE jobs SET generation = 5 WHERE id = 1"); /* 3 nodes of 4 ranks */
    store = open_or_fail(test_dir());
    CHECK_EQ(store_user_bytes(store, "ann"),
             STORE_JOB_BYTES + 5 * 12 * 128 + SMALL_BYTES + FAILURE_BYTES);
    write_job(store, 1, "ann", 0, JOB_FAILED); /* a record of generation 0 */
    store = reopen(store, STORE_JOB_BYTES + SMALL_BYTES + FAILURE_BYTES,
                   STORE_JOB_BYTES + FAILURES_KEPT_MAX * FAILURE_BYTES);
    store_close(&store);
}

static void expire_all(struct store *store)
{
    uint64_t after_id = 0;
    bool is_at_end = false;

    store_begin(store);
    while (!is_at_end)
        (void)store_expire(store, INT64_MAX, NULL, NULL, &after_id, &is_at_end);
    store_commit(store);
}

TEST(what_is_removed_does_not_count)
{
    struct store *store = open_or_fail(test_dir());

    for (uint64_t id = 1; id <= 3; id++)
        write_job(store, id, "ann", 1, JOB_SUCCEEDED);
    write_spec(store, 1, "ann", "0-2", NULL, NULL,
               0); /* of the array; its first job is removed first */
    write_job(store, 4, "bob", 0, JOB_QUEUED);
    store = reopen(store, 3 * STORE_JOB_BYTES + SMALL_BYTES, STORE_JOB_BYTES);
    expire_all(store);
    store = reopen(store, 0, STORE_JOB_BYTES);
    store_close(&store);
}

static void check_spec(struct store *store, uint64_t id, uint32_t env_count, size_t last_bytes)
{
    struct arena arena = {0};
    struct store_spec spec;

    CHECK_EQ(store_spec(store, id, true, &arena, &spec), STATUS_OK);
    CHECK_STR(spec.cwd, "/here");
    CHECK_EQ(spec.argv.count, 2);
    CHECK_STR(spec.argv.items[0], "train");
    CHECK_EQ(strlen(spec.argv.items[1]), last_bytes);
    if (last_bytes < BIG_BYTES)
        CHECK_STR(spec.argv.items[1] + last_bytes - 3, "...");
    CHECK_EQ(spec.env.count, env_count);
    if (env_count == 1)
        CHECK_STR(spec.env.items[0].name, "PATH");
    CHECK_EQ(spec.launch.count, env_count > 1);
    arena_reset(&arena);
}

/* [BIG_BYTES + 1] of a character that has two bytes; the caller frees it. */
static char *big_text(void)
{
    char *text = malloc(BIG_BYTES + 1);

    CHECK(text != NULL);
    for (size_t i = 0; i < BIG_BYTES; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    text[BIG_BYTES] = '\0';
    return text;
}

/* The command is 8 KiB long then: "train", a NUL, and as many whole characters as fit. */
#define KEPT_BYTES (8192u - 6 + 3)
#define ENDED_BYTES (5u + 2 + 7 + 1 + 2 + KEPT_BYTES + 19 + 2)

TEST(an_ended_job_keeps_what_is_shown)
{
    struct store *store = open_or_fail(test_dir());
    char *big = big_text();
    const struct msg_pair env[] = {
        {"TOKEN", "secret"}, {"PATH", "/usr/bin"}, {"PYTHONPATH", big}, {"OTHER", big}};

    write_job(store, 1, "ann", 0, JOB_QUEUED);
    write_spec(store, 1, "ann", "", big, env, 4);
    check_spec(store, 1, 4, BIG_BYTES);
    CHECK(store_user_bytes(store, "ann") > 3 * BIG_BYTES);
    write_job(store, 1, "ann", 0, JOB_CANCELLED);
    check_spec(store, 1, 1, KEPT_BYTES);
    for (uint64_t id = 2; id <= 4; id++)
        write_job(store, id, "bob", 2, id == 4 ? JOB_RUNNING : JOB_SUCCEEDED);
    write_spec(store, 2, "bob", "0-2", big, env, 4);
    write_job(store, 3, "bob", 2, JOB_SUCCEEDED);
    check_spec(store, 4, 4, BIG_BYTES); /* one of the array still runs */
    write_job(store, 4, "bob", 2, JOB_FAILED);
    check_spec(store, 2, 1, KEPT_BYTES);
    store = reopen(store, STORE_JOB_BYTES + ENDED_BYTES, 3 * STORE_JOB_BYTES + ENDED_BYTES);
    store_close(&store);
    free(big);
}

/* Jobs that ended under an earlier version. */
TEST(a_sweep_shortens_large_specs_of_ended_jobs)
{
    struct store *store = open_or_fail(test_dir());
    uint64_t after_id = 0;
    uint32_t calls = 0;
    bool is_at_end = false;

    for (uint64_t id = 1; id <= 20; id++) {
        write_job(store, id, "ann", 0, id == 20 ? JOB_QUEUED : JOB_FAILED);
        write_spec(store, id, "ann", "", NULL, NULL, 0);
    }
    store_close(&store);
    execute("UPDATE specs SET env = '{\"A\":\"' || hex(zeroblob(450000)) || '\"}'");
    store = open_or_fail(test_dir());
    CHECK(store_user_bytes(store, "ann") > 20 * BIG_BYTES);
    store_begin(store);
    for (; !is_at_end; calls++)
        CHECK_EQ(store_expire(store, 0, NULL, NULL, &after_id, &is_at_end), 0);
    CHECK(calls >= 3); /* a few at a time: each takes a moment */
    store = reopen(store, 20 * (STORE_JOB_BYTES + SMALL_BYTES) + 900000 + 6, 0);
    store_close(&store);
}

TEST_MAIN
