/* What a set writes into the cache and takes from it, and what it counts (plans.c, plan_build.c, plan_choose.c,
 * plan_cache.c). */
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/backend/cuda/plans/keep_fake.h"

TEST(a_cold_start_makes_one_engine_a_plan_and_keeps_it)
{
    const char *folder = keep_folder("cold");
    struct plan_info info;

    keep_reset(1000000);
    info = keep_build_all(folder, keep_several(), KEEP_REQUESTS);
    CHECK(!info.from_cache && info.time_us <= 0);
    CHECK_EQ(keep.counts.plans, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.queries, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.finalised, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.built, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.tuned + keep.counts.timed, 0);
    CHECK_EQ(keep.counts.untimed, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.cache_bytes, 0);
    CHECK_EQ(keep.proposals, KEEP_DISTINCT);
    CHECK_EQ(keep_files(folder), KEEP_DISTINCT);
}

TEST(a_second_start_reads_and_proposes_nothing)
{
    const char *folder = keep_folder("second");

    keep_reset(0);
    (void)keep_build_all(folder, keep_several(), KEEP_REQUESTS);
    (void)keep_build_all(folder, keep_several(), KEEP_REQUESTS);
    CHECK_EQ(keep.proposals + keep.timings, 0);
    CHECK_EQ(keep.counts.queries, 0);
    CHECK_EQ(keep.counts.finalised, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.from_cache, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.built, 0);
    CHECK_EQ(keep.counts.untimed, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.cache_bytes, KEEP_DISTINCT * strlen("time_us 0.000\n0"));
}

/* Two requests of 16 channels share a plan, so a step's time is twice that of a run; still less than
 * that of 64. */
TEST(the_costliest_plans_are_timed_first)
{
    const char *folder = keep_folder("costliest");

    keep_reset(0);
    (void)keep_build_all(folder, keep_several(), KEEP_REQUESTS);
    keep_reset(1000000000);
    (void)keep_build_all(folder, keep_several(), KEEP_REQUESTS);
    CHECK_EQ(keep.timings, KEEP_DISTINCT);
    CHECK_EQ(keep.timed[0], 64);
    CHECK_EQ(keep.timed[KEEP_DISTINCT - 1], 8);
    CHECK_EQ(keep.counts.tuned, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.timed, KEEP_DISTINCT * KEEP_CANDIDATES);
    CHECK_EQ(keep.counts.queries, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.finalised, KEEP_DISTINCT * (1 + KEEP_CANDIDATES));
    CHECK_EQ(keep.counts.untimed, 0);
    (void)keep_build_all(folder, keep_several(), KEEP_REQUESTS);
    CHECK_EQ(keep.proposals + keep.timings, 0);
    CHECK_EQ(keep.counts.finalised, KEEP_DISTINCT);
}

/* However short the time is, a start times one plan: so runs get faster by themselves. */
TEST(what_one_start_has_no_time_for_a_later_one_times)
{
    const char *folder = keep_folder("budget");

    keep_reset(0);
    (void)keep_build_all(folder, keep_several(), KEEP_REQUESTS);
    for (uint32_t i = 0; i < KEEP_DISTINCT + 1; i++) {
        keep_reset(1000000000);
        keep.takes_all = true;
        (void)keep_build_all(folder, keep_several(), KEEP_REQUESTS);
        CHECK_EQ(keep.timings, i < KEEP_DISTINCT ? 1 : 0);
        CHECK_EQ(keep.counts.untimed, i < KEEP_DISTINCT ? KEEP_DISTINCT - 1 - i : 0);
    }
}

TEST(tune_times_all_at_a_cold_start_too)
{
    const char *folder = keep_folder("all");

    keep_reset(PLAN_TUNE_ALL);
    keep.options.tunes_cold = true;
    (void)keep_build_all(folder, keep_several(), KEEP_REQUESTS);
    CHECK_EQ(keep.counts.tuned, KEEP_DISTINCT);
    CHECK_EQ(keep.counts.untimed, 0);
    keep_reset(PLAN_TUNE_ALL);
    (void)keep_build_all(folder, keep_several(), KEEP_REQUESTS);
    CHECK_EQ(keep.proposals + keep.timings, 0);
}

/* Of the four plans two have another way. */
TEST(what_has_another_way_is_made_by_tune_alone_and_then_taken_from_the_cache)
{
    const char *folder = keep_folder("if-timed");
    struct plan_request requests[KEEP_REQUESTS];
    struct plan_info info;

    memcpy(requests, keep_several(), sizeof requests);
    requests[0].if_timed = requests[2].if_timed = true;
    for (uint64_t start = 0; start < 2; start++) {
        keep_reset(start * 1000000000);
        info = keep_build_all(folder, requests, KEEP_REQUESTS);
        CHECK(info.status == STATUS_UNSUPPORTED && info.is_put_off);
        CHECK_STR(info.engine, "its engines are not timed yet (--tune)");
        CHECK_EQ(keep.counts.built, start == 0 ? KEEP_DISTINCT - 2 : 0);
        CHECK_EQ(keep.counts.untimed, start == 0 ? KEEP_DISTINCT - 2 : 0);
        CHECK_EQ(keep_files(folder), KEEP_DISTINCT - 2);
    }
    keep_reset(PLAN_TUNE_ALL);
    keep.options.tunes_cold = true;
    info = keep_build_all(folder, requests, KEEP_REQUESTS);
    CHECK(info.status == STATUS_OK && info.time_us > 0 && !info.is_put_off);
    CHECK_EQ(keep.timings, 2);
    CHECK_EQ(keep_files(folder), KEEP_DISTINCT);
    keep_reset(0);
    info = keep_build_all(folder, requests, KEEP_REQUESTS);
    CHECK(info.status == STATUS_OK && info.from_cache && info.time_us > 0);
    CHECK_EQ(keep.proposals, 0);
}

TEST(without_memory_nothing_is_timed_and_the_engine_stays)
{
    const char *folder = keep_folder("untimed");
    struct plan_info info;

    keep_reset(0);
    (void)keep_build(folder, 0);
    keep_reset(1000000);
    keep.no_memory = true;
    info = keep_build(folder, 0);
    CHECK(info.from_cache && info.time_us <= 0);
    CHECK_EQ(keep.proposals + keep.timings, 0);
    keep_reset(1000000);
    info = keep_build(folder, 0); /* the next run has memory again */
    CHECK_EQ(keep.timings, 1);
    CHECK_NEAR(info.time_us, 12.5, 0.001);
    info = keep_build(folder, 0);
    CHECK_EQ(keep.proposals + keep.timings, 0);
    CHECK(info.from_cache);
    CHECK_NEAR(info.time_us, 12.5, 0.001);
    CHECK_EQ(keep_files(folder), 1);
}

TEST(what_shall_not_be_timed_is_kept)
{
    const char *folder = keep_folder("one");

    keep_reset(1000000);
    CHECK(!keep_build(folder, 1).from_cache);
    CHECK_EQ(keep_files(folder), 1);
    CHECK(keep_build(folder, 1).from_cache);
    CHECK_EQ(keep.proposals + keep.timings, 0);
    CHECK_EQ(keep.counts.untimed, 0); /* it never will be */
}

/* The engine is the first that is proposed, whatever the time and whatever others have found. */
TEST(deterministic_does_not_depend_on_times)
{
    const char *folder = keep_folder("deterministic");
    struct plan_set *set;
    struct err err;

    keep_reset(PLAN_TUNE_ALL);
    keep.options.tunes_cold = true;
    (void)keep_build(folder, 0);
    CHECK_EQ(keep.timings, 1); /* the fastest is another one than the first */
    for (int i = 0; i < 4; i++) {
        keep_reset(i < 2 ? PLAN_TUNE_ALL : 0);
        keep.options.deterministic = true;
        keep.options.tunes_cold = true;
        set = keep_open(i % 2 == 0 ? folder : "", 0);
        CHECK_EQ(cuda_plans.build(set, &keep_request, 1, &err), STATUS_OK);
        CHECK_EQ(keep.timings, 0);
        CHECK_EQ(set->plans[0].candidates[set->plans[0].chosen].engine, 0);
        CHECK(cuda_plans.info(set, 0)->time_us <= 0);
        cuda_plans.close(&set);
    }
}

TEST(where_no_candidate_runs_later_starts_know_it)
{
    const char *folder = keep_folder("none");

    keep_reset(PLAN_TUNE_ALL);
    keep.options.tunes_cold = true;
    keep.none_runs = true;
    CHECK_EQ(keep_build_all(folder, &keep_request, 1).status, STATUS_UNSUPPORTED);
    keep_reset(0);
    CHECK_EQ(keep_build_all(folder, &keep_request, 1).status, STATUS_UNSUPPORTED);
    CHECK_EQ(keep.proposals + keep.timings, 0);
    CHECK_EQ(keep.counts.finalised, 0);
}

TEST(an_untimed_engine_that_does_not_run_is_replaced)
{
    const char *folder = keep_folder("replaced");
    void *const pointers[PLAN_PORTS] = {NULL};

    for (int i = 0; i < 3; i++) {
        struct plan_set *set;
        struct err err = {.text = ""};

        keep_reset(0);
        keep.options.deterministic = i == 2;
        keep.fails_below = i == 1 ? 0 : 1;
        set = keep_open(i == 2 ? "" : folder, 0);
        CHECK_EQ(cuda_plans.build(set, &keep_request, 1, &err), STATUS_OK);
        CHECK_EQ(cuda_plans.run(set, 0, NULL, NULL, pointers, &err), STATUS_OK);
        CHECK_EQ(keep.ran, 1); /* the second time, out of the cache */
        CHECK_STR(keep.notes, i == 1 ? "" : "engine 0 fails");
        keep.fails_below = KEEP_CANDIDATES;
        CHECK_EQ(cuda_plans.run(set, 0, NULL, NULL, pointers, &err), STATUS_LIBRARY);
        CHECK_STR(err.text, "engine 1 fails"); /* it has run: this is another trouble */
        cuda_plans.close(&set);
    }
    keep.fails_below = 0;
}

TEST(sets_of_one_device_share_its_handles)
{
    struct plan_set *first, *second = NULL;
    struct err err;

    keep_reset(0);
    first = keep_open("", 0);
    keep.handles = 0;
    keep.options.shares = first;
    CHECK_EQ(cuda_plans.open(&second, &keep.options, &err), STATUS_OK);
    CHECK_EQ(keep.handles, 0);
    CHECK(second->handle == first->handle && second->owner == first);
    cuda_plans.close(&second);
    CHECK_EQ(keep.handles, 0);
    cuda_plans.close(&first);
    CHECK_EQ(keep.handles, -1);
}

TEST(times_of_other_work_are_kept)
{
    const char *folder = keep_folder("times");
    struct plan_set *set;

    keep_reset(0);
    set = keep_open(folder, 0);
    CHECK_NEAR(cuda_plans.time_read(set, "addition of 8"), 0, 0);
    cuda_plans.time_write(set, "addition of 8", 3.25F);
    cuda_plans.close(&set);
    set = keep_open(folder, 0);
    CHECK_NEAR(cuda_plans.time_read(set, "addition of 8"), 3.25, 0.001);
    CHECK_NEAR(cuda_plans.time_read(set, "addition of 9"), 0, 0);
    cuda_plans.close(&set);
}

TEST_MAIN
