/* submit without --wait: sends the request and prints the number of the job; --dry-run: prints the request. */
#ifndef DDPCTL_SUBMIT_ONLY_H
#define DDPCTL_SUBMIT_ONLY_H

#include "ddpctl/submit.h"

#define SUBMIT_ROOM_MS 1000u /* --wait-for-room: how often it is tried again */
/* What helps against a refusal whose code is "full". */
#define SUBMIT_ROOM_HINT "ddpctl ps lists the jobs; --wait-for-room submits it when there is room"

/* Both return the exit code. */
int submit_only(struct ctl *ctl, struct submission *submission);
int submit_dry(struct ctl *ctl, const struct submission *submission);
/* Whether the server has refused for want of room, which there may be later. */
bool submit_is_full(const struct msg_error *error);
/* Says once that it waits for room, and why. */
void submit_tell_full(struct ctl *ctl, const struct msg_error *error, bool *is_told);

#endif
