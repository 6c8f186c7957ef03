/* What the fuzz targets share. A target is LLVMFuzzerTestOneInput in a file of its own; driver.c
 * runs it without libFuzzer. */
#ifndef TESTS_FUZZ_TARGET_H
#define TESTS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count);

typedef void fuzz_add(const char *bytes, size_t byte_count);
/* A target may have it: inputs of its own for driver.c, in place of the messages. */
void fuzz_corpus(fuzz_add *add) __attribute__((weak));

#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
