/* The verbs. Each takes parsed options and returns the exit code. */
#ifndef DDPCTL_VERBS_H
#define DDPCTL_VERBS_H

#include "ddpctl/ctl.h"

int verb_run(struct ctl *ctl);
int verb_submit(struct ctl *ctl);
int verb_ps(struct ctl *ctl);
int verb_status(struct ctl *ctl);
int verb_logs(struct ctl *ctl);
int verb_cancel(struct ctl *ctl);
int verb_wait(struct ctl *ctl);
int verb_nodes(struct ctl *ctl);
int verb_node(struct ctl *ctl);
int verb_user(struct ctl *ctl);
int verb_login(struct ctl *ctl);
int verb_logout(struct ctl *ctl);
int verb_events(struct ctl *ctl);
int verb_metrics(struct ctl *ctl);
int verb_report(struct ctl *ctl);

/* Exit codes: CTL_OK, or that of the error that was shown. A job must be named; there are at most `most`
 * words. */
int verb_need_job(struct ctl *ctl);
int verb_too_many(struct ctl *ctl, int most);

/* add, list, remove, rotate: the words of `node` and `user` that are about keys. */
bool verb_key_is(const char *word);
int verb_key_node(struct ctl *ctl);

#endif
