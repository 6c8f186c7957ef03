#include "common/msg.h"
#include "ddpctl/units.h"
#include "tests/lib/test.h"

TEST(durations_are_parsed)
{
    static const struct {
        const char *text;
        uint64_t us;
    } cases[] = {{"90", 90000000},     {"0", 0},          {"1.5s", 1500000},
                 {"500ms", 500000},    {"5m", 300000000}, {"1h30m", 5400000000},
                 {"2d", 172800000000}, {"10us", 10}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t us = 1;

        CHECK_EQ(duration_parse(cases[i].text, &us, NULL), STATUS_OK);
        CHECK_EQ(us, cases[i].us);
    }
}

TEST(bad_durations_are_refused)
{
    static const char *const cases[] = {"",    "m",   "5x",    "5mm", "-1",
                                        "1e3", "5 m", "1..5s", " 5",  "."};
    uint64_t us = 7;
    struct err err = {0};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (duration_parse(cases[i], &us, &err) == STATUS_OK)
            FAIL("'%s' was taken as %llu us", cases[i], (unsigned long long)us);
    CHECK_EQ(duration_parse("400d", &us, &err), STATUS_TOO_BIG);
    CHECK_STR(err.text, "400d is longer than 366 days");
}

TEST(words_for_people)
{
    char words[WORDS_BYTES];

    duration_words(0, words);
    CHECK_STR(words, "0s");
    duration_words(90000000, words);
    CHECK_STR(words, "1m30s");
    duration_words(180000000, words);
    CHECK_STR(words, "3m");
    duration_words(3720000000, words);
    CHECK_STR(words, "1h02m");
    duration_words(187200000000, words);
    CHECK_STR(words, "2d04h");
    count_words(950, words);
    CHECK_STR(words, "950");
    count_words(5120, words);
    CHECK_STR(words, "5.1k");
    count_words(90000, words);
    CHECK_STR(words, "90k");
    count_words(12400, words);
    CHECK_STR(words, "12.4k");
    count_words(999999, words);
    CHECK_STR(words, "1M");
    count_words(2.5, words);
    CHECK_STR(words, "2.5");
    time_words(1795224042123, words);
    CHECK_STR(words, "2026-11-21T01:20:42.123Z");
    signal_words(9, words);
    CHECK_STR(words, "SIGKILL");
    signal_words(41, words);
    CHECK_STR(words, "signal 41");
}

TEST(signals_are_parsed)
{
    uint32_t signal = 0;

    CHECK_EQ(signal_parse("USR1", &signal, NULL), STATUS_OK);
    CHECK_EQ(signal, 10);
    CHECK_EQ(signal_parse("sigterm", &signal, NULL), STATUS_OK);
    CHECK_EQ(signal, 15);
    CHECK_EQ(signal_parse("9", &signal, NULL), STATUS_OK);
    CHECK_EQ(signal, 9);
    CHECK_EQ(signal_parse("0", &signal, NULL), STATUS_BAD_INPUT);
    CHECK_EQ(signal_parse("NONE", &signal, NULL), STATUS_BAD_INPUT);
}

TEST(numbers_are_whole_and_in_range)
{
    uint64_t value = 0;

    CHECK_EQ(number_parse("x", "18446744073709551615", 0, UINT64_MAX, &value, NULL),
             STATUS_TOO_BIG);
    CHECK_EQ(number_parse("x", "9007199254740991", 0, UINT64_MAX, &value, NULL), STATUS_OK);
    CHECK_EQ(value, 9007199254740991ull);
    CHECK_EQ(number_parse("x", "+1", 0, 9, &value, NULL), STATUS_BAD_INPUT);
    CHECK_EQ(number_parse("x", "", 0, 9, &value, NULL), STATUS_BAD_INPUT);
    CHECK_EQ(number_parse("x", "10", 0, 9, &value, NULL), STATUS_TOO_BIG);
}

TEST(near_words_are_guessed)
{
    static const char *const words[] = {"status", "submit", "run", "ps", "nproc-per-node", "nodes"};

    CHECK_STR(guess_word("statsu", words, 6), "status");
    CHECK_STR(guess_word("stat", words, 6), "status");
    CHECK_STR(guess_word("rnu", words, 6), "run");
    CHECK_STR(guess_word("nproc-per-nod", words, 6), "nproc-per-node");
    CHECK(guess_word("frobnicate", words, 6) == NULL);
    CHECK(guess_word("", words, 6) == NULL);
}

TEST_MAIN
