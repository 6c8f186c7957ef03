/* The stack of a Python process from `py-spy dump`, if that is installed. py-spy runs as the job's
 * user, in the job's cgroup, from the job's PATH or the node's, so it can do no more than the job
 * itself. If the kernel forbids that (kernel.yama.ptrace_scope) and we are root, a py-spy in the
 * node's PATH that belongs to root runs as root. The process is not stopped. */
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
