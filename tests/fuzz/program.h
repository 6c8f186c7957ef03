/* Inputs of the targets for the cores are small programs: each byte decides something. At the end of
 * the bytes all decisions are 0, and the program ends. */
#ifndef TESTS_FUZZ_PROGRAM_H
#define TESTS_FUZZ_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/msg_random.h"
#include "tests/fuzz/target.h"

struct program {
    const uint8_t *bytes;
    size_t byte_count, at;
};

static inline bool program_has_more(const struct program *program)
{
    return program->at < program->byte_count;
}

static inline uint32_t program_byte(struct program *program)
{
    return program_has_more(program) ? program->bytes[program->at++] : 0;
}

/* 0..limit-1, limit at most 256 */
static inline uint32_t program_below(struct program *program, uint32_t limit)
{
    return program_byte(program) % limit;
}

/* A random message of that type, by two bytes. */
static inline void program_msg(struct program *program, struct arena *arena, enum msg_type type,
                               struct msg *msg)
{
    uint32_t first = program_byte(program);
    struct random random = {.state = first << 8 | program_byte(program)};

    msg_random(&random, arena, type, msg);
}

/* From a moment to longer than every limit of the cores but those of days. */
static inline uint64_t program_pause_us(struct program *program)
{
    static const uint64_t pauses_us[] = {0,       1000,    100000,   1000000,  1000000,
                                         5000000, 2000000, 16000000, 61000000, 700000000};

    return pauses_us[program_below(program, sizeof pauses_us / sizeof pauses_us[0])];
}

/* So many random programs, for driver.c. */
static inline void program_corpus(fuzz_add *add, uint32_t count)
{
    struct random random = {.state = 20261122};
    char bytes[600];

    for (uint32_t i = 0; i < count; i++) {
        size_t byte_count = 40 + random_below(&random, sizeof bytes - 40);

        for (size_t j = 0; j < byte_count; j++)
            bytes[j] = (char)random_next(&random);
        add(bytes, byte_count);
    }
}

#endif
