/* Durations, counts, times and signals as people write and read them. Pure. */
#ifndef DDPCTL_UNITS_H
#define DDPCTL_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define TEXT_BYTES 40

/* "0s", "42s", "3m", "1h02m", "2d04h": the two largest units, the second one only after hours and
 * days. */
void duration_text(uint64_t duration_us, char text[TEXT_BYTES]);
/* 950 is "950", 5120 "5.1k", 90000 "90k", 12400000 "12.4M". */
void count_text(double value, char text[TEXT_BYTES]);
/* RFC 3339 in UTC with milliseconds: "2026-11-21T01:20:42.123Z". */
void time_text(int64_t wall_ms, char text[TEXT_BYTES]);
/* 9 is "SIGKILL"; a signal without a name is "signal 41". */
void signal_text(uint32_t signal, char text[TEXT_BYTES]);
/* "USR1", "SIGUSR1", "usr1", "10". STATUS_BAD_INPUT. */
enum status signal_parse(const char *text, uint32_t *signal, struct err *err);

#endif
