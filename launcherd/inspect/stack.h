/* A process as JSON, schema ddp.stack.v1: what the kernel says of it and of its threads. */
#ifndef LAUNCHERD_INSPECT_STACK_H
#define LAUNCHERD_INSPECT_STACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cJSON;

#define STACK_THREADS_MAX 64u
#define STACK_CHILDREN_MAX 64u
#define STACK_FRAMES_MAX 64u

/* Adds the fields from `pid` to `children`. False: the process is gone, or is no longer a child of
 * `parent`, so that its number may be another one's. */
bool stack_describe(pid_t pid, pid_t parent, struct cJSON *out);
/* The process itself or, where that is a shell for instance, its first descendant that is a Python; 0:
 * none is. */
pid_t stack_find_python(pid_t pid);

#endif
