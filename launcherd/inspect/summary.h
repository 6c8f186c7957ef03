/* A short summary of ddp.stack.v1 (inspect.h) of one rank, for the server when a job hangs. Pure,
 * apart from cJSON's heap. */
#ifndef LAUNCHERD_INSPECT_SUMMARY_H
#define LAUNCHERD_INSPECT_SUMMARY_H

#include <stddef.h>

#include "common/msg.h"

/* Backs the texts of a rank_look. */
struct summary {
    char state[2];
    char where[LOOK_WHERE_BYTES_MAX];
    char stack[LOOK_STACK_BYTES_MAX];
    enum look_place place;
};

/* Makes the summary. If `json` is no JSON, the summary's stack says so. The stack has lines for
 * people: state and wait channel, kernel frames, and py-spy's frames of the main thread. A Python
 * process is in a collective if its main thread has a frame of torch.distributed, or waits for the
 * device or for the end of backward. */
void summary_make(const char *json, size_t byte_count, struct summary *out);
/* There is no stack, for this reason. */
void summary_of_problem(const char *problem, struct summary *out);

#endif
