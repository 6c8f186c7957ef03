/* Where the kernel puts the core file of a process: core(5). Pure, but for core_file_describe. */
#ifndef LAUNCHERD_SHIM_CORE_FILE_H
#define LAUNCHERD_SHIM_CORE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/limits.h"

struct core_file_facts {
    pid_t pid;
    uid_t uid;
    uint32_t signal;
    const char *cwd; /* in which it was started */
    bool has_pid;    /* kernel.core_uses_pid */
};

/* By kernel.core_pattern: the path, with '*' for what we do not know, or which program has got it. A line. */
void core_file_place(const char *pattern, const struct core_file_facts *facts,
                     char out[REASON_BYTES_MAX]);
/* The same by the pattern and has_pid of this machine. */
void core_file_describe(struct core_file_facts *facts, char out[REASON_BYTES_MAX]);

#endif
