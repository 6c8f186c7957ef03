/* What a job takes over from the process that submits it, beside its environment: the working directory as
 * typed, the umask and the limits. Part of the edge. */
#ifndef DDPCTL_CALLER_H
#define DDPCTL_CALLER_H

#include <stdbool.h>

#include "common/job_limits.h"
#include "common/status.h"

#define CALLER_MASK_BYTES 8

#define CALLER_PATH_BYTES 4096

/* The working directory of a job, absolute: `wanted` ("stage:HASH" stays), else where we are. That is
 * $PWD, if it names the directory, so a link on the way stays one. `is_local`: it must be there now.
 * Errors say what to do. */
enum status caller_choose_directory(const char *wanted, bool is_local, char path[CALLER_PATH_BYTES],
                                    struct err *err);
/* "027"; empty: 022, which jobs have anyway. Call it while the process has one thread. */
void caller_mask(char text[CALLER_MASK_BYTES]);
/* As common/job_limits.h has them; empty: those that jobs have anyway. */
void caller_limits(char text[JOB_LIMITS_TEXT_BYTES]);

#endif
