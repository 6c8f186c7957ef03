/* What to do about a failure, where what is known of it suggests something. Pure. */
#ifndef DDPCTL_WHY_ADVICE_H
#define DDPCTL_WHY_ADVICE_H

#include "common/msg.h"

/* A sentence, static; NULL: none. */
const char *why_advice(const struct part_failure *failure);

#endif
