/* What ddp.stack.v1 (inspect.h) says of a rank, in few words: for the server, when a job hangs. Pure but
 * for cJSON's heap. */
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

/* `json` need not be JSON: then that is what the stack says. The stack has lines for people: state and wait
 * channel, kernel frames, what py-spy has printed of the main thread. A Python is in a collective when its
 * main thread has a frame of torch.distributed, or waits for the device or for backward to end. */
void summary_make(const char *json, size_t byte_count, struct summary *out);
/* There is none, for this reason. */
void summary_of_problem(const char *problem, struct summary *out);

#endif
