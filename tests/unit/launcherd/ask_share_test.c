/* Who gets a place for a question (ask_share.h). */
#include "launcherd/node/ask_share.h"

#include <stddef.h>

#include "common/msg.h"
#include "tests/lib/test.h"

#define PLACES 8u

static uint64_t ids[PLACES];
static uint32_t count;

/* A new question of that user; users from 1000 on are administrators. */
static const char *ask(uint64_t user)
{
    static uint64_t serial;
    const uint64_t id = ++serial << NODE_ASKER_SHIFT | (user >= 1000 ? NODE_ASKER_ADMIN : 0) |
                        (user & NODE_ASKER_BITS);
    const char *why = ask_share(ids, count, PLACES, id);

    if (why == NULL)
        ids[count++] = id;
    return why;
}

TEST(one_user_takes_half_of_the_places)
{
    count = 0;
    for (int i = 0; i < 4; i++)
        CHECK(ask(1) == NULL);
    CHECK_STR(ask(1), NODE_ANSWERS_YOU);
    CHECK_STR(ask(1), NODE_ANSWERS_YOU);
    CHECK(ask(2) == NULL);
    CHECK(ask(1000) == NULL);
    CHECK_EQ(count, 6);
}

TEST(the_last_place_is_kept_for_administrators)
{
    count = 0;
    for (uint64_t i = 0; i < 7; i++)
        CHECK(ask(1 + i % 2) == NULL);
    CHECK_STR(ask(3), NODE_ANSWERS_OTHERS);
    CHECK(ask(1000) == NULL);
    CHECK_STR(ask(1000), NODE_ANSWERS_OTHERS);
    count = 0;
    for (uint64_t i = 0; i < 8; i++)
        CHECK(ask(1000) == NULL); /* they may take all */
}

TEST_MAIN
