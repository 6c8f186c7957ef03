/* The data from ddpctl's stdin to a rank: no byte is lost or sent twice, and a restarted rank gets
 * none of it. */
#include "ddpctl/feed.h"

#include <string.h>

#include "tests/lib/test.h"

static void add(struct feed *feed, const char *text)
{
    feed_add(feed, (const uint8_t *)text, (uint32_t)strlen(text));
}

/* The next request has these bytes at this offset. */
static void expect(struct feed *feed, uint64_t offset, const char *text, bool is_end)
{
    struct msg_input request;

    CHECK(feed_next(feed, &request));
    CHECK_EQ(request.generation, feed->generation);
    CHECK_EQ(request.rank, feed->rank);
    CHECK_EQ(request.offset, offset);
    CHECK_EQ(request.bytes.count, strlen(text));
    CHECK_BYTES(request.bytes.items, text, strlen(text));
    CHECK_EQ(request.is_end, is_end);
}

static enum feed_answer answer(struct feed *feed, uint64_t taken, bool is_closed,
                               const char *problem)
{
    return feed_take(feed, &(struct msg_input_state){
                               .taken = taken, .is_closed = is_closed, .problem = problem});
}

TEST(bytes_go_once_and_in_order)
{
    struct feed feed = {.rank = 3};
    struct msg_input request;

    add(&feed, "abcdef");
    CHECK(!feed_next(&feed, &request)); /* nothing runs yet */
    CHECK(!feed_generation(&feed, 1));
    expect(&feed, 0, "abcdef", false);
    CHECK(!feed_next(&feed, &request)); /* one at a time */
    CHECK_EQ(feed_room(&feed), 0);
    CHECK_EQ(answer(&feed, 2, false, ""), FEED_GOES_ON);
    expect(&feed, 2, "cdef", false);
    CHECK_EQ(answer(&feed, 2, false, ""), FEED_WAITS); /* the pipe is full */
    expect(&feed, 2, "cdef", false);
    CHECK_EQ(answer(&feed, 0, false, "its node is not connected"), FEED_WAITS);
    expect(&feed, 2, "cdef", false);
    feed_lost(&feed); /* the answer is lost */
    expect(&feed, 2, "cdef", false);
    CHECK_EQ(answer(&feed, 6, false, ""), FEED_GOES_ON);
    CHECK(!feed_next(&feed, &request));
    CHECK_EQ(feed_room(&feed), STDIN_BYTES_MAX);
    add(&feed, "g");
    feed_end(&feed);
    expect(&feed, 6, "g", true);
    CHECK_EQ(answer(&feed, 7, true, ""), FEED_OVER);
    CHECK(!feed_next(&feed, &request));
    CHECK_EQ(feed_room(&feed), 0);
}

TEST(a_restart_gets_what_nobody_has_had)
{
    struct feed feed = {0};

    add(&feed, "abc");
    CHECK(!feed_generation(&feed, 1));
    expect(&feed, 0, "abc", false);
    CHECK_EQ(answer(&feed, 0, false, "the rank does not run now"), FEED_WAITS);
    CHECK(!feed_generation(&feed, 2)); /* the rank never began to read */
    expect(&feed, 0, "abc", false);
    CHECK_EQ(answer(&feed, 1, false, ""), FEED_GOES_ON);
    CHECK(feed_generation(&feed, 3));
    expect(&feed, 0, "", true); /* its stdin is at the end */
    CHECK_EQ(answer(&feed, 0, true, ""), FEED_OVER);
    CHECK(feed_generation(&feed, 4)); /* as are those of all later ones */
    expect(&feed, 0, "", true);
}

TEST(what_may_have_been_taken_is_not_given_again)
{
    struct feed feed = {0};

    add(&feed, "abc");
    CHECK(!feed_generation(&feed, 1));
    expect(&feed, 0, "abc", false);
    feed_lost(&feed);
    CHECK(feed_generation(&feed, 2));
    expect(&feed, 0, "", true);
}

TEST(a_terminal_goes_on_in_the_next_generation)
{
    struct feed feed = {.is_terminal = true};
    struct msg_input request;

    CHECK(!feed_generation(&feed, 1));
    add(&feed, "ab");
    feed_size(&feed, 30, 100);
    CHECK(feed_next(&feed, &request));
    CHECK_EQ(request.rows, 30);
    CHECK_EQ(request.columns, 100);
    CHECK_EQ(answer(&feed, 1, false, ""), FEED_GOES_ON);
    CHECK(!feed_generation(&feed, 2));
    CHECK(!feed_next(&feed, &request)); /* earlier input is dropped, and the size is known */
    add(&feed, "c");
    expect(&feed, 0, "c", false);
}

/* A terminal is made raw once the rank takes input. */
TEST(it_can_be_asked_whether_the_rank_takes_input)
{
    struct feed feed = {.rank = 3, .is_terminal = true};
    struct msg_input request;

    feed_probe(&feed);
    CHECK(!feed_next(&feed, &request)); /* nothing runs yet */
    CHECK(!feed_generation(&feed, 1));
    expect(&feed, 0, "", false);
    CHECK_EQ(answer(&feed, 0, false, "the rank does not run now"), FEED_WAITS);
    expect(&feed, 0, "", false);
    CHECK_EQ(answer(&feed, 0, false, ""), FEED_GOES_ON);
    CHECK(!feed_next(&feed, &request));
}

TEST_MAIN
