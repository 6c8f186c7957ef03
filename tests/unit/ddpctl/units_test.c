#include "ddpctl/units.h"
#include "tests/lib/test.h"

TEST(numbers_as_text)
{
    char words[TEXT_BYTES];

    duration_text(0, words);
    CHECK_STR(words, "0s");
    duration_text(90000000, words);
    CHECK_STR(words, "1m30s");
    duration_text(180000000, words);
    CHECK_STR(words, "3m");
    duration_text(3720000000, words);
    CHECK_STR(words, "1h02m");
    duration_text(187200000000, words);
    CHECK_STR(words, "2d04h");
    count_text(950, words);
    CHECK_STR(words, "950");
    count_text(5120, words);
    CHECK_STR(words, "5.1k");
    count_text(90000, words);
    CHECK_STR(words, "90k");
    count_text(12400, words);
    CHECK_STR(words, "12.4k");
    count_text(999999, words);
    CHECK_STR(words, "1M");
    count_text(2.5, words);
    CHECK_STR(words, "2.5");
    time_text(1795224042123, words);
    CHECK_STR(words, "2026-11-21T01:20:42.123Z");
    signal_text(9, words);
    CHECK_STR(words, "SIGKILL");
    signal_text(41, words);
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
