/* Sends a packed working directory to the server. */
#ifndef DDPCTL_STAGE_SEND_H
#define DDPCTL_STAGE_SEND_H

#include "ddpctl/ctl.h"
#include "ddpctl/stage_pack.h"

/* Until the server has all of it on its disk; nothing is sent if it has it already. 0, or the exit
 * code of the error that was shown. After a lost connection it begins again, for at most 60 s. */
int stage_send(struct ctl *ctl, const struct stage_packed *packed);

#endif
