#include "common/array_spec.h"

#include <string.h>

#include "tests/lib/test.h"

static struct array_spec spec;
static struct err err;

static enum status parse(const char *text)
{
    return array_spec_parse(text, &spec, &err);
}

TEST(indices_are_ranges_with_steps_and_rise)
{
    static const uint32_t wanted[] = {1, 3, 7, 9, 11, 13, 15, 17, 19};

    CHECK_EQ(parse("7-20:2,1,3"), STATUS_OK);
    CHECK_EQ(spec.count, sizeof wanted / sizeof wanted[0]);
    CHECK(memcmp(spec.indices, wanted, sizeof wanted) == 0);
    CHECK_EQ(spec.at_most, 0);
    CHECK_EQ(parse("0-9%4"), STATUS_OK);
    CHECK_EQ(spec.count, 10);
    CHECK_EQ(spec.at_most, 4);
    CHECK_EQ(parse("5"), STATUS_OK);
    CHECK_EQ(spec.count, 1);
    CHECK_EQ(spec.indices[0], 5);
    CHECK_EQ(parse("0-999"), STATUS_OK);
    CHECK_EQ(spec.count, ARRAY_JOBS_MAX);
    CHECK_EQ(parse("999999"), STATUS_OK);
}

TEST(what_is_none_is_refused)
{
    static const char *const bad[] = {"",     "-",     "1-",    "a",       "1,",
                                      ",1",   "5-3",   "1-9:0", "1-9:",    "1%",
                                      "1%0",  "1%4x",  "1 2",   "1000000", "+1",
                                      "1--2", "1%4,2", "0x3",   "1-3:2:2", "99999999999999999999"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_EQ(parse(bad[i]), STATUS_BAD_INPUT);
    CHECK_EQ(parse("1,2,1-3"), STATUS_BAD_INPUT);
    CHECK(strstr(err.text, "index 1 is there twice") != NULL);
    CHECK_EQ(parse("0-1000"), STATUS_TOO_BIG);
    CHECK_EQ(parse("0-999,0-999999"), STATUS_TOO_BIG);
}

TEST(a_job_of_an_array_is_named_by_both_numbers)
{
    uint64_t array;
    uint32_t index;

    CHECK(array_spec_job("12_3", &array, &index));
    CHECK_EQ(array, 12);
    CHECK_EQ(index, 3);
    CHECK(!array_spec_job("12", &array, &index));
    CHECK(!array_spec_job("12_", &array, &index));
    CHECK(!array_spec_job("_3", &array, &index));
    CHECK(!array_spec_job("12_3x", &array, &index));
    CHECK(!array_spec_job("a_3", &array, &index));
    CHECK(!array_spec_job("12_9999999", &array, &index));
}

TEST(a_word_stands_for_the_array_unless_it_is_of_one_job)
{
    CHECK(array_spec_is_whole("12", 12));
    CHECK(array_spec_is_whole("sweep", 12));
    CHECK(array_spec_is_whole("@last", 12));
    CHECK(!array_spec_is_whole("13", 12));
    CHECK(!array_spec_is_whole("12_0", 12));
    CHECK(!array_spec_is_whole("12", 0));
}

TEST_MAIN
