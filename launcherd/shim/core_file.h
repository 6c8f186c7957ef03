/* Where the kernel puts the core file of a process: core(5). Pure, except core_file_describe. */
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
    const char *cwd; /* the directory in which it was started */
    bool has_pid;    /* kernel.core_uses_pid */
};

/* Says where the core file is, from `pattern` (kernel.core_pattern): the path, with '*' for each
 * part that we do not know, or the program that the kernel gives it to. `out` is one printable
 * line. */
void core_file_place(const char *pattern, const struct core_file_facts *facts,
                     char out[REASON_BYTES_MAX]);
/* The same with the core_pattern of this machine. Sets facts->has_pid. */
void core_file_describe(struct core_file_facts *facts, char out[REASON_BYTES_MAX]);

#endif
