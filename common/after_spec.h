/* The list of jobs that a job waits for, as in --after and `submit`: "12",
 * "prep:ok,13:any,@last". */
#ifndef COMMON_AFTER_SPEC_H
#define COMMON_AFTER_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

struct after_spec_item {
    char job[JOB_NAME_BYTES_MAX]; /* number, name or @last */
    bool any;                     /* until it has ended; false: until it has succeeded */
};

struct after_spec {
    uint32_t count; /* at least 1 */
    struct after_spec_item items[AFTER_MAX];
};

/* STATUS_BAD_INPUT, STATUS_TOO_BIG. */
enum status after_spec_parse(const char *text, struct after_spec *spec, struct err *err);

#endif
