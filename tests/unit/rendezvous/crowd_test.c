/* Which connection without a hello makes room for a newcomer. */
#include "rendezvous/core/crowd.h"

#include "tests/lib/test.h"

#define YOUNG_US 100u
#define NOW_US 1000u
static const struct crowd_limits limits = {.places_max = 6, .group_max = 3, .young_us = YOUNG_US};

static uint32_t choose(const struct crowd_place *places, uint32_t count, uint64_t *again_us)
{
    return crowd_choose(places, count, &limits, NOW_US, again_us);
}

TEST(within_the_limits_nobody_is_closed)
{
    const struct crowd_place places[] = {{{1, 0}, 1, false, false}, {{1, 0}, 2, false, false},
                                         {{1, 0}, 3, false, false}, {{1, 1}, 4, false, false},
                                         {{2, 0}, 5, false, false}, {{2, 0}, 6, false, false}};
    uint64_t again_us = 1;

    CHECK_EQ(choose(places, 0, &again_us), CROWD_NONE);
    CHECK_EQ(again_us, 0);
    for (uint32_t count = 1; count <= 6; count++)
        CHECK_EQ(choose(places, count, &again_us), CROWD_NONE);
    CHECK_EQ(again_us, 0);
}

TEST(of_a_crowded_group_the_oldest_that_has_sent_nothing_is_closed)
{
    struct crowd_place places[] = {{{2, 0}, 1, false, false},
                                   {{1, 0}, 2, true, false},
                                   {{1, 0}, 3, false, false},
                                   {{1, 0}, 4, false, false},
                                   {{1, 0}, NOW_US, false, false}};
    uint64_t again_us = 1;

    CHECK_EQ(choose(places, 5, &again_us), 2);
    CHECK_EQ(again_us, 0);
    places[2].has_sent = places[3].has_sent = true;
    CHECK_EQ(choose(places, 5, &again_us), 1);
    places[1].is_unread = true;
    CHECK_EQ(choose(places, 5, &again_us), 2);
}

TEST(without_a_crowded_group_the_most_crowded_one_makes_room)
{
    struct crowd_place places[] = {{{1, 0}, 1, false, false}, {{2, 0}, 2, true, false},
                                   {{3, 0}, 3, false, false}, {{2, 0}, 4, true, false},
                                   {{4, 0}, 5, false, false}, {{5, 0}, 6, false, false},
                                   {{6, 0}, 7, false, false}};
    uint64_t again_us;

    CHECK_EQ(choose(places, 7, &again_us), 1);
    places[3].group[0] = 7; /* each has one */
    CHECK_EQ(choose(places, 7, &again_us), 0);
}

/* As many as there may be. */
TEST(a_large_crowd_is_counted_by_its_groups)
{
    static struct crowd_place places[CROWD_PLACES_MAX];
    const struct crowd_limits wide = {.places_max = CROWD_PLACES_MAX - 1,
                                      .group_max = CROWD_PLACES_MAX};
    uint64_t again_us;

    for (uint32_t i = 0; i < CROWD_PLACES_MAX; i++)
        places[i] = (struct crowd_place){.group = {i * 2048u, 0}, .since_us = i};
    CHECK_EQ(crowd_choose(places, CROWD_PLACES_MAX, &wide, NOW_US, &again_us), 0);
    places[700].group[0] = places[900].group[0];
    CHECK_EQ(crowd_choose(places, CROWD_PLACES_MAX, &wide, NOW_US, &again_us), 700);
    places[700].group[0] = 0;
    places[700].group[1] = places[900].group[0]; /* the same, in the other half: another group */
    CHECK_EQ(crowd_choose(places, CROWD_PLACES_MAX, &wide, NOW_US, &again_us), 0);
    CHECK_EQ(again_us, 0);
}

TEST(nobody_is_closed_too_young_and_the_newcomer_never)
{
    struct crowd_place places[] = {{{2, 0}, 1, false, false},
                                   {{1, 0}, 901, false, false},
                                   {{1, 0}, 902, false, false},
                                   {{1, 0}, 903, false, false},
                                   {{1, 0}, 904, false, false}};
    uint64_t again_us;

    CHECK_EQ(choose(places, 5, &again_us), CROWD_NONE);
    CHECK_EQ(again_us, 901 + YOUNG_US);
    places[1].since_us = 900;
    places[1].has_sent = true;
    CHECK_EQ(choose(places, 5, &again_us), 1); /* the others are too young */
    places[1].is_unread = true;
    CHECK_EQ(choose(places, 5, &again_us), CROWD_NONE);
    CHECK(again_us > NOW_US && again_us <= NOW_US + 1000);
    CHECK_EQ(crowd_choose(&places[4], 1, &(struct crowd_limits){0}, NOW_US, &again_us), CROWD_NONE);
}

TEST(ipv6_is_counted_by_its_network)
{
    uint8_t one[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 1}, other[16] = {0x20, 0x01, 0x0d, 0xb8};
    uint8_t v4[16] = {[10] = 0xff, [11] = 0xff, [15] = 1};
    uint64_t group[2], other_group[2];

    crowd_group_of(one, group);
    crowd_group_of(other, other_group);
    CHECK(group[0] == other_group[0] && group[1] == other_group[1]);
    other[7] = 1;
    crowd_group_of(other, other_group);
    CHECK(group[0] != other_group[0]);
    crowd_group_of(v4, group);
    v4[15] = 2;
    crowd_group_of(v4, other_group);
    CHECK(group[1] != other_group[1]);
}

TEST_MAIN
