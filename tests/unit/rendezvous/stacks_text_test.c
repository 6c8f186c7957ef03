/* The stacks of a hung generation as one text: a rank that stands alone comes first, and the text
 * is bounded. */
#include "rendezvous/server/stacks_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"

#define RANKS 200u

static struct part_rank_look looks[RANKS];
static char text[STACKS_BYTES_MAX];

static void look(uint32_t i, uint32_t rank, const char *stack)
{
    looks[i] = (struct part_rank_look){.rank = rank, .state = "S", .where = "", .stack = stack};
}

TEST(equal_stacks_stand_together_the_fewest_first)
{
    const uint32_t order[] = {5, 0, 3, 1, 4, 2, 7};

    for (uint32_t i = 0; i < 7; i++)
        look(i, order[i], order[i] == 1 ? "state S\n  load\n" : "state S\n  all_reduce\n");
    stacks_text(looks, 7, 0, text);
    CHECK_STR(text, "rank 1\n"
                    "  state S\n"
                    "    load\n"
                    "ranks 0,2-5,7\n"
                    "  state S\n"
                    "    all_reduce\n");
}

TEST(ranks_without_an_answer_are_counted)
{
    look(0, 4, "state D\n");
    stacks_text(looks, 1, 3, text);
    CHECK_STR(text, "rank 4\n  state D\nof 3 ranks there was no answer\n");
    stacks_text(looks, 0, 2, text);
    CHECK_STR(text, "of 2 ranks there was no answer\n");
    stacks_text(looks, 0, 0, text);
    CHECK_STR(text, "");
}

TEST(many_ranks_are_cut_short)
{
    const char *end;

    for (uint32_t i = 0; i < RANKS; i++)
        look(i, 2 * i, "state S\n"); /* no two follow each other */
    stacks_text(looks, RANKS, 0, text);
    CHECK(strncmp(text, "ranks 0,2,4,6,", 14) == 0);
    end = strstr(text, " more\n");
    CHECK(end != NULL && end - text < 90);
    CHECK_STR(end, " more\n  state S\n");
}

/* Every rank stands at a different place, in deep stacks: omitted ranks are counted, and each line
 * is whole. */
TEST(what_does_not_fit_is_said)
{
    static char stacks[RANKS][512];
    uint32_t shown = 0, left = 0;

    for (uint32_t i = 0; i < RANKS; i++) {
        (void)snprintf(stacks[i], sizeof stacks[i], "state S\n%0200u\n%0200u\n", i, i);
        look(i, i, stacks[i]);
    }
    stacks_text(looks, RANKS, 7, text);
    CHECK(strlen(text) < STACKS_BYTES_MAX);
    CHECK_EQ(text[strlen(text) - 1], '\n');
    for (const char *at = text; (at = strstr(at, "rank ")) != NULL; at++)
        shown++;
    for (const char *at = strstr(text, "of "); at != NULL && left == 0;
         at = strstr(at + 1, "of ")) {
        char *end;

        left = (uint32_t)strtoul(at + 3, &end, 10);
        CHECK(strncmp(end, " ranks the stacks are left out", 30) == 0);
    }
    CHECK(shown > 2);
    CHECK_EQ(shown + left, RANKS);
    CHECK(strstr(text, "of 7 ranks there was no answer\n") != NULL);
}

TEST_MAIN
