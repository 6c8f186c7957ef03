/* The numbers that a state of the past leaves out. */
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

TEST(numbers_that_are_left_out_stay_so)
{
    struct store *store = open_or_fail(test_dir());

    store_begin(store);
    CHECK_EQ(store_write_event(store, 5, 0, 0, "before"), 1);
    CHECK_EQ(store_submitted_ms(store, 4), 0);
    store_write_gap(store, 500);
    CHECK_EQ(store_write_event(store, 5, 0, 0, "of the past"), 2 + STORE_ID_GAP);
    store_close(&store);
    store = open_or_fail(test_dir());
    CHECK_EQ(store_next_job_id(store), 501);
    CHECK_EQ(store_last_event_id(store), 2 + STORE_ID_GAP);
    store_begin(store);
    store_write_gap(store, 2); /* never lower */
    store_commit(store);
    CHECK_EQ(store_next_job_id(store), 501);
    store_close(&store);
}

TEST(the_longest_lease_is_kept)
{
    struct store *store = open_or_fail(test_dir());

    CHECK_EQ(store_lease_us(store), 0);
    store_begin(store);
    store_write_lease(store, 150000000);
    store_close(&store);
    store = open_or_fail(test_dir());
    CHECK_EQ(store_lease_us(store), 150000000);
    store_close(&store);
}

TEST_MAIN
