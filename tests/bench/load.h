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

struct crowd;

struct line {
    struct caller caller;
    uint32_t index;
    bool is_greeted, is_waiting; /* hello answered; a request is under way */
    uint64_t asked_us;
};

/* Connections in one epoll set. */
struct crowd {
    struct load *load;
    struct line *lines;
    uint32_t count, opened, greeted, lost, answered, asked, asked_max;
    int epoll;
    bool as_nodes;
    /* takes what is no answer to a request; NULL: it is dropped */
    void (*on_order)(struct crowd *crowd, struct line *line, const char *json, size_t byte_count);
    void *owner;
    uint32_t *times_us; /* [asked_max] */
};

void crowd_open(struct crowd *crowd, struct load *load, uint32_t count, uint32_t asked_max);
void crowd_close(struct crowd *crowd);
/* Opens all connections and waits until each has its answer to the hello. */
void crowd_greet(struct crowd *crowd);
/* One round of epoll, for at most `wait_ms`. */
void crowd_turn(struct crowd *crowd, int wait_ms);
/* Sends a request; its answer is timed. */
void crowd_ask(struct crowd *crowd, struct line *line, const struct msg *msg);
/* Sends without waiting for an answer. */
void crowd_tell(struct crowd *crowd, struct line *line, const struct msg *msg);

/* Modes; each prints one JSON object. See load.c. */
void load_handshakes(struct load *load, uint32_t seconds, uint32_t at_a_time);
void load_beats(struct load *load, uint32_t count, uint32_t seconds, bool as_nodes);
void load_round(struct load *load, const char *unix_address, uint32_t nodes, uint32_t nproc);
void load_submits(struct load *load, uint32_t count, uint32_t clients);

#endif
