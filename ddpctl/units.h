/* Words and numbers that people type and read: durations, counts, times, signals. Pure. */
#ifndef DDPCTL_UNITS_H
#define DDPCTL_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define WORDS_BYTES 40

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

#endif
