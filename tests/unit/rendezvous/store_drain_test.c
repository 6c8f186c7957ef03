/* Drains and holds in the store. */
#include <stdio.h>

#include "rendezvous/store/store.h"
#include "tests/lib/test.h"
#include "tests/unit/rendezvous/store_tools.h"

TEST(drains_are_kept)
{
    const struct rdzv_drain all[] = {{.node = "gpu1",
                                      .slot = RDZV_WHOLE_NODE,
                                      .user = "ann",
                                      .reason = "fan \xc3\xa9",
                                      .at_ms = 5},
                                     {.node = "gpu1", .slot = 0, .user = "bob", .reason = "x"}};
    struct store *store = open_or_fail(test_dir());
    struct rdzv_drain found[4];

    store_begin(store);
    store_write_drains(store, all, 2);
    store_write_drains(store, all, 2); /* in place of the first */
    store_close(&store);
    store = open_or_fail(test_dir());
    CHECK_EQ(store_drains(store, found, 1), 1);
    CHECK_EQ(store_drains(store, found, 4), 2);
    CHECK_EQ(found[0].slot, 0);
    CHECK_STR(found[1].node, "gpu1");
    CHECK_STR(found[1].user, "ann");
    CHECK_STR(found[1].reason, "fan \xc3\xa9");
    CHECK_EQ(found[1].slot, RDZV_WHOLE_NODE);
    CHECK_EQ(found[1].at_ms, 5);
    store_begin(store);
    store_write_drains(store, all, 0);
    CHECK_EQ(store_drains(store, found, 4), 0);
    store_close(&store);
}

TEST(holds_are_kept)
{
    struct rdzv_hold hold = {.node = "n1",
                             .identity = {.machine = UINT64_MAX, .boot = 2, .state = 3},
                             .slot_mask = 1ull << 63},
                     found;
    struct store *store = open_or_fail(test_dir());

    store_begin(store);
    store_write_hold(store, &hold);
    (void)snprintf(hold.node, sizeof hold.node, "n0");
    store_write_hold(store, &hold);
    hold.slot_mask = 5; /* in place of the first */
    store_write_hold(store, &hold);
    store_close(&store);
    store = open_or_fail(test_dir());
    CHECK(store_hold_after(store, "", &found));
    CHECK_STR(found.node, "n0");
    CHECK_EQ(found.slot_mask, 5);
    CHECK(store_hold_after(store, found.node, &found));
    CHECK_STR(found.node, "n1");
    CHECK(found.identity.machine == UINT64_MAX && found.identity.boot == 2);
    CHECK(found.identity.state == 3 && found.slot_mask == 1ull << 63);
    CHECK(!store_hold_after(store, found.node, &found));
    hold.slot_mask = 0;
    store_begin(store);
    store_write_hold(store, &hold);
    CHECK(store_hold_after(store, "", &found));
    CHECK_STR(found.node, "n1");
    store_close(&store);
}

TEST_MAIN
