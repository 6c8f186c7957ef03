/* Which connection of a user is closed when they hold too much, and when its answers wait. */
#include "rendezvous/core/backlog.h"

#include "tests/lib/test.h"

#define MIB (1ull << 20)

TEST(a_request_waits_for_the_answer_before_it)
{
    CHECK(!backlog_waits(0));
    CHECK(backlog_waits(1));
}

TEST(the_slowest_connection_of_the_user_is_closed)
{
    struct backlog_conn conns[] = {
        {.user = 1, .bytes = 20 * MIB, .moved_us = 500},
        {.user = 2, .bytes = 60 * MIB, .moved_us = 1},
        {.user = 1, .bytes = 20 * MIB, .moved_us = 300},
        {.user = 1, .bytes = 0, .moved_us = 2},
        {.user = 1, .bytes = 24 * MIB, .moved_us = 300},
    };
    struct backlog_view view = backlog_look(conns, 5, 1, 124 * MIB);

    CHECK_EQ(view.user_bytes, 64 * MIB);
    CHECK_EQ(view.slowest, BACKLOG_NONE); /* as much as the user may hold */
    conns[0].bytes++;
    view = backlog_look(conns, 5, 1, 124 * MIB + 1);
    CHECK_EQ(view.slowest, 4); /* of two that are as slow, the one that holds more */
    CHECK(!view.is_full);
    view = backlog_look(conns, 5, 2, 124 * MIB + 1);
    CHECK_EQ(view.slowest, BACKLOG_NONE);
    view = backlog_look(conns, 5, 3, 124 * MIB + 1);
    CHECK_EQ(view.user_bytes, 0);
}

TEST(what_is_closing_counts_until_it_is_free)
{
    struct backlog_conn conns[] = {
        {.user = 1, .bytes = 70 * MIB, .moved_us = 1, .is_closing = true},
        {.user = 1, .bytes = 58 * MIB, .moved_us = 2},
        {.user = 2, .bytes = MIB, .moved_us = 3},
    };
    struct backlog_view view = backlog_look(conns, 3, 1, 59 * MIB);

    CHECK_EQ(view.user_bytes, 58 * MIB);
    CHECK_EQ(view.slowest, BACKLOG_NONE);
    CHECK(!view.is_full);
    conns[1].bytes++;
    CHECK(backlog_look(conns, 3, 1, 59 * MIB).is_full);
    CHECK(!backlog_look(conns, 3, 2, 59 * MIB).is_full);
}

TEST(when_all_hold_too_much_each_may_hold_less)
{
    const struct backlog_conn conns[] = {{.user = 1, .bytes = 9 * MIB, .moved_us = 1},
                                         {.user = 2, .bytes = 8 * MIB, .moved_us = 1}};

    CHECK_EQ(backlog_look(conns, 2, 1, BACKLOG_ALL_BYTES_MAX).slowest, BACKLOG_NONE);
    CHECK_EQ(backlog_look(conns, 2, 1, BACKLOG_ALL_BYTES_MAX + 1).slowest, 0);
    CHECK_EQ(backlog_look(conns, 2, 2, BACKLOG_ALL_BYTES_MAX + 1).slowest, BACKLOG_NONE);
}

TEST_MAIN
