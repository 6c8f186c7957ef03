/* Words and numbers that people type and read: durations, counts, times, signals, near guesses.
 * Pure. */
#ifndef DDPCTL_UNITS_H
#define DDPCTL_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define WORDS_BYTES 40

/* "90" (seconds), "1.5s", "500ms", "5m", "1h30m", "2d" to microseconds. STATUS_BAD_INPUT,
 * STATUS_TOO_BIG. */
enum status duration_parse(const char *text, uint64_t *duration_us, struct err *err);
/* "0s", "42s", "3m", "1h02m", "2d04h": the two largest units, the second only where it says much.
 */
void duration_words(uint64_t duration_us, char words[WORDS_BYTES]);
/* 950 "950", 5120 "5.1k", 90000 "90k", 12400000 "12.4M". */
void count_words(double value, char words[WORDS_BYTES]);
/* RFC 3339 in UTC with milliseconds: "2026-11-21T01:20:42.123Z". */
void time_words(int64_t wall_ms, char words[WORDS_BYTES]);
/* 9 "SIGKILL"; "signal 41" where it has no name. */
void signal_words(uint32_t signal, char words[WORDS_BYTES]);
/* "USR1", "SIGUSR1", "usr1", "10". STATUS_BAD_INPUT. */
enum status signal_parse(const char *text, uint32_t *signal, struct err *err);
/* A whole decimal number in min..max; `what` is for the message. STATUS_BAD_INPUT, STATUS_TOO_BIG.
 */
enum status number_parse(const char *what, const char *text, uint64_t min, uint64_t max,
                         uint64_t *value, struct err *err);

/* The word of `words` [count] that `typed` was most likely meant to be; NULL when none is near. */
const char *guess_word(const char *typed, const char *const *words, size_t count);

#endif
