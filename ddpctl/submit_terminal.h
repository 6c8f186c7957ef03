/* The size of our terminal, for the ranks. */
#ifndef DDPCTL_SUBMIT_TERMINAL_H
#define DDPCTL_SUBMIT_TERMINAL_H

#include "ddpctl/submit.h"

/* "24x80": the size of our terminal; 24x80 if we have none. */
void submit_terminal_size(char text[SUBMISSION_SIZE_BYTES]);
/* Ranks whose output a terminal shows as it comes get COLUMNS and LINES, unless the user has set them: a program that
 * draws to a pipe looks there. Behind prefixes they have fewer columns. With --tty a rank has a terminal to ask, which
 * also changes its size. */
void submit_terminal_environ(struct submission *submission, const struct ctl *ctl);

/* Whether one terminal shows all that one rank writes, as it comes. Its stdout and stderr are one stream then, as they
 * are for a local program: only so their order is exact (launcherd/shim/output.h). */
bool submit_is_one_stream(const struct submission *submission, const struct ctl *ctl);

#endif
