/* Failures that come again: whether one in a row with others says that the next try fails, too. Pure. */
#ifndef RENDEZVOUS_CORE_FAILURE_ALIKE_H
#define RENDEZVOUS_CORE_FAILURE_ALIKE_H

#include "rendezvous/core/job.h"

/* A hash of a Python exception and its place: the file's name, the line and the function of the last frame, and the exception's
 * first line, in which numbers do not count. `error`: the end of a traceback. 0: it is none, or names what may be over a
 * minute later, such as a refused connection. */
uint32_t failure_exception_mark(const char *error);
/* Whether an interpreter or a shell says that the program which it was to run does not exist. No try will find it. */
bool failure_is_for_want_of_program(const struct rdzv_record *record);
/* Detects a program that can never work: a missing file, a wrong argument or a syntax error fails
 * in the same way each time. True: the program has failed three times in a row within EARLY_US of
 * its start, each time with the same exit code and the same last line of output, and it has never
 * run for longer nor reported a step or a checkpoint. (Two equal failures may come from one
 * shortage of the machine.) Then `why` says so. These never count: a death by a
 * signal, also as a shell passes it on (128 + N); a failure without output; failures of nodes or of
 * the network. Call once for each failed generation, after failure_count: it stores the newest
 * failure. */
bool failure_early(struct rdzv *rdzv, struct job *job, char why[REASON_BYTES_MAX]);
/* Detects a program that always fails in the same way. True:
 * - two failures of the program in a row were the same exception at the same place (failure_exception_mark; three, if
 *   the user has asked for a number of restarts), and no checkpoint and no hour of running came between them; or
 * - three failures of the program (or hangs) in a row had the same rank, exit code or signal, and last line of output, at
 *   the same step, as exactly as reported progress tells.
 * Then `why` says so. Of the second kind these never count: a signal from outside (SIGKILL, SIGTERM and so on); a failure
 * without output, unless it is a crash; a generation that reported no step. */
bool failure_same(struct rdzv *rdzv, struct job *job, char why[REASON_BYTES_MAX]);

#endif
