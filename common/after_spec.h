/* The jobs that a job waits for, as --after and `submit` have them: "12", "prep:ok,13:any,@last". */
#ifndef COMMON_AFTER_SPEC_H
#define COMMON_AFTER_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

struct after_spec_item {
    char job[JOB_NAME_BYTES_MAX]; /* number, name or @last */
    bool any;                     /* however it ends; else only if it succeeds */
};

struct after_spec {
    uint32_t count; /* at least 1 */
    struct after_spec_item items[AFTER_MAX];
};

/* STATUS_BAD_INPUT, STATUS_TOO_BIG. */
enum status after_spec_parse(const char *text, struct after_spec *spec, struct err *err);

#endif
