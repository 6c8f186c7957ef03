/* What the modes of the load generator share. */
#ifndef TESTS_BENCH_LOAD_H
#define TESTS_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/lib/caller.h"

/* Keys: one URL a line. One key is everybody's; else connection i has the i-th. None: plain. */
struct load {
    struct caller_place place;
    struct tls_context **contexts;
    struct key *keys;
    uint32_t key_count;
};

void load_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void load_open(struct load *load, const char *address, const char *key_path);
void load_close(struct load *load);
struct tls_context *load_context(const struct load *load, uint32_t i);
const char *load_name(const struct load *load, uint32_t i, char name[32]);

uint64_t load_now_us(void);
/* Prints a line, and waits until the driver has answered it with one (unless it is a terminal): the
 * server is measured meanwhile. */
void load_mark(const char *line);
/* Sorts `us`. Prints ,"NAME_p50_ms":..,"NAME_p99_ms":..,"NAME_max_ms":.. */
void load_print_times(const char *name, uint32_t *us, uint32_t count);

/* Modes; each prints one JSON object. See load.c. */
void load_handshakes(struct load *load, uint32_t seconds, uint32_t at_a_time);
void load_beats(struct load *load, uint32_t count, uint32_t seconds, bool as_nodes);
void load_submits(struct load *load, uint32_t count, uint32_t clients);

#endif
