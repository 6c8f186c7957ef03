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

/* Adds all fields from `pid` to `children`. False: the process is gone, or is no child of `parent`
 * any more, so that its pid may belong to another process. */
bool stack_describe(pid_t pid, pid_t parent, struct cJSON *out);
/* The process itself if it is a Python, otherwise its first descendant that is one (it may be a
 * shell, for instance); 0: none. */
pid_t stack_find_python(pid_t pid);

#endif
