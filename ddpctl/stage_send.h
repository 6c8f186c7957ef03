/* Sends a packed working directory to the server. */
#ifndef DDPCTL_STAGE_SEND_H
#define DDPCTL_STAGE_SEND_H

#include "ddpctl/ctl.h"
#include "ddpctl/stage_pack.h"

/* Sends until the server has the whole archive on its disk; sends nothing if it has it already.
 * Returns 0, or the exit code of the error that was shown. After a lost connection it starts again,
 * for at most 60 s. */
int stage_send(struct ctl *ctl, const struct stage_packed *packed);

#endif
