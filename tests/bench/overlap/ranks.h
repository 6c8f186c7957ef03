/* Forks the ranks of a benchmark and connects them over loopback. */
#ifndef TESTS_BENCH_OVERLAP_RANKS_H
#define TESTS_BENCH_OVERLAP_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/comm/comm.h"

/* Runs `body` in `world` processes, each with its connected comm; waits for all. True: all left
 * well. */
bool ranks_run(uint32_t world, void (*body)(void *user, struct comm *comm, uint32_t rank),
               void *user);
/* Ends this rank, with the reason on stderr, unless it went well. */
void ranks_must(enum status status, const struct err *err);
uint64_t ranks_now_us(void);
/* Sorts. */
uint64_t ranks_median(uint64_t *values, uint32_t count);
/* false: not a number from 1 to `most`. */
bool ranks_parse(const char *text, uint32_t most, uint32_t *value);

#endif
