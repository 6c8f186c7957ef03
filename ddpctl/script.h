/* The command of run and submit: a Python script or module, or any program. */
#ifndef DDPCTL_SCRIPT_H
#define DDPCTL_SCRIPT_H

#include "ddpctl/submit.h"

/* Makes the job's argv from ctl->words, whose first one is the program. Without words argv is
 * unchanged. The working directory must be known. STATUS_TOO_BIG, STATUS_BAD_INPUT. */
enum status script_take(struct submission *submission, struct ctl *ctl, struct err *err);

#endif
