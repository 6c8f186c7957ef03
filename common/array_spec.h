/* The indices of a job array, as in --array: "0-9", "1,3,7-20:2" (every second from 7 to 20),
 * "0-99%4" (at most 4 of its jobs at a time). */
#ifndef COMMON_ARRAY_SPEC_H
#define COMMON_ARRAY_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

struct array_spec {
    uint32_t count;                   /* at least 1 */
    uint32_t at_most;                 /* at a time; 0: all */
    uint32_t indices[ARRAY_JOBS_MAX]; /* [count], rising */
};

/* STATUS_BAD_INPUT, STATUS_TOO_BIG. */
enum status array_spec_parse(const char *text, struct array_spec *spec, struct err *err);
/* Parses "12_3": an array and the index of one of its jobs. */
bool array_spec_job(const char *text, uint64_t *array, uint32_t *index);
/* Whether a word that names a job of the array `array_job` means the whole array: the array's
 * number, a name or @last do, the number of one of its jobs does not. */
bool array_spec_is_whole(const char *word, uint64_t array_job);

#endif
