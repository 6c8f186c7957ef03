/* Which refused nodes the server remembers, and for how long. */
#include <stdio.h>
#include <stdlib.h>

#include "rendezvous/server/refused.h"
#include "tests/lib/test.h"

#define SECOND_US 1000000ull

static struct refused_nodes *refused;

static void note(const char *name, uint64_t now_us)
{
    const struct msg_node_hello hello = {
        .name = name, .address = "10.0.0.7", .version = "0.2.0", .protocol = 3, .pid = 17};

    refused_note(refused, &hello, "another build", now_us, (int64_t)(now_us / 1000));
}

static void begin(void)
{
    free(refused);
    refused = calloc(1, sizeof *refused);
    CHECK(refused != NULL);
}

TEST(it_is_known_since_its_first_hello_until_one_is_accepted)
{
    begin();
    CHECK(refused_find(refused, "a", SECOND_US) == NULL);
    note("a", 10 * SECOND_US);
    note("a", 20 * SECOND_US);
    CHECK_EQ(refused_find(refused, "a", 21 * SECOND_US)->since_ms, 10000);
    CHECK_EQ(refused_find(refused, "a", 21 * SECOND_US)->at_us, 20 * SECOND_US);
    refused_forget(refused, "a");
    refused_forget(refused, "b");
    CHECK(refused_find(refused, "a", 21 * SECOND_US) == NULL);
    note("a", 30 * SECOND_US);
    CHECK_EQ(refused_find(refused, "a", 31 * SECOND_US)->since_ms, 30000);
}

TEST(one_that_calls_no_more_is_forgotten)
{
    begin();
    note("a", SECOND_US);
    CHECK(refused_find(refused, "a", SECOND_US + REFUSED_FOR_US - 1) != NULL);
    CHECK(refused_find(refused, "a", SECOND_US + REFUSED_FOR_US) == NULL);
    CHECK(refused_after(refused, "", NULL, SECOND_US + REFUSED_FOR_US) == NULL);
    note("a", 2 * SECOND_US + REFUSED_FOR_US);
    CHECK_EQ(refused_find(refused, "a", 2 * SECOND_US + REFUSED_FOR_US)->since_ms, 3602000);
}

TEST(they_are_listed_by_name)
{
    begin();
    note("n10", SECOND_US);
    note("n9", SECOND_US);
    note("b", SECOND_US);
    CHECK_STR(refused_after(refused, "", NULL, SECOND_US), "b");
    CHECK_STR(refused_after(refused, "b", NULL, SECOND_US), "n9");
    CHECK_STR(refused_after(refused, "n9", NULL, SECOND_US), "n10");
    CHECK(refused_after(refused, "n10", NULL, SECOND_US) == NULL);
    CHECK(refused_after(refused, "b", "n9", SECOND_US) == NULL);
}

/* Those that call have their places; the one that has been silent for longest gives its own. */
TEST(the_memory_is_bounded)
{
    char name[32];

    begin();
    for (uint32_t i = 0; i < REFUSED_NODES_MAX; i++) {
        (void)snprintf(name, sizeof name, "n%u", i);
        note(name, (i + 1) * SECOND_US);
    }
    note("n0", 1000 * SECOND_US);
    note("more", 1001 * SECOND_US);
    CHECK(refused_find(refused, "n1", 1001 * SECOND_US) == NULL);
    CHECK(refused_find(refused, "n0", 1001 * SECOND_US) != NULL);
    CHECK(refused_find(refused, "n2", 1001 * SECOND_US) != NULL);
    CHECK(refused_find(refused, "more", 1001 * SECOND_US) != NULL);
}

TEST(what_is_up_stays_so)
{
    struct part_node up = {.name = "a", .state = NODE_UP, .version = "0.1.0", .beat_age_us = 5};
    struct part_node lost = {
        .name = "a", .state = NODE_LOST, .version = "0.1.0", .beat_age_us = -1};

    begin();
    note("a", SECOND_US);
    refused_add(refused_find(refused, "a", 3 * SECOND_US), 3 * SECOND_US, &up);
    CHECK_STR(up.version, "0.1.0");
    CHECK_STR(up.notice, "another build");
    CHECK_EQ(up.refused_ms, 1000);
    refused_add(refused_find(refused, "a", 3 * SECOND_US), 3 * SECOND_US, &lost);
    CHECK_STR(lost.version, "0.2.0");
    CHECK_EQ(lost.beat_age_us, (int64_t)(2 * SECOND_US));
}

TEST_MAIN
