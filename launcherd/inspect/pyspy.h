/* The stack of a Python process, by `py-spy dump`, where that is installed. It runs as the user of the job,
 * in the job's cgroup, from the job's PATH or the node's: it is no more than the job itself could run.
 * Where the kernel refuses that (kernel.yama.ptrace_scope) and we are root, a py-spy that is root's own,
 * in the node's PATH, runs as root. The process is not stopped for it. */
#ifndef LAUNCHERD_INSPECT_PYSPY_H
#define LAUNCHERD_INSPECT_PYSPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcherd/process/account.h"

#define PYSPY_MS 5000u
#define PYSPY_BYTES_MAX (256u * 1024u)

struct pyspy_order {
    pid_t pid;
    const struct account *user; /* NULL: as this process */
    const char *cgroup;         /* NULL: ours */
    const char *job_path;       /* NULL: none */
    const char *node_path;
};

/* `text` [PYSPY_BYTES_MAX]: what it printed, as lines of printable text. False: `problem` says why not. */
bool pyspy_dump(const struct pyspy_order *order, char *text, char *problem, size_t problem_bytes);

#endif
