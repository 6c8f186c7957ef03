#include "ddpctl/units.h"
#include "tests/lib/test.h"

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

TEST_MAIN
