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
int verb_server(struct ctl *ctl);
int verb_backup(struct ctl *ctl);
int verb_doctor(struct ctl *ctl);
int verb_restore(struct ctl *ctl);
int verb_upgrade(struct ctl *ctl);
int verb_why(struct ctl *ctl);
int verb_http(struct ctl *ctl);
int verb_top(struct ctl *ctl);

/* These return CTL_OK, or the exit code of the error that was shown. verb_need_job: a job must be
 * given. verb_too_many: there may be at most `most` words. */
int verb_need_job(struct ctl *ctl);
int verb_need_one_job(struct ctl *ctl); /* and no other word */
int verb_too_many(struct ctl *ctl, int most);
int verb_check_job(struct ctl *ctl, const char *word); /* checks its form */

/* Whether the word is about keys: add, list, remove, rotate, for `node` and `user`. */
bool verb_key_is(const char *word);
int verb_key_node(struct ctl *ctl);

/* For these verbs: sends one request; ends an output; prepares to redraw a view, which wipes the
 * last one on a terminal. */
int verb_ask(struct ctl *ctl, struct msg *msg, enum msg_type answer,
             int (*on_answer)(struct ctl *, const struct msg *, void *), void *context);
int verb_done(struct ctl *ctl, struct buf *out);
void verb_begin_picture(struct ctl *ctl, struct buf *out);
void verb_pause_ms(long ms);
/* Shows all jobs, or (array_job not 0) those of this array, including ended ones. `any_left`: one
 * of them has not ended. */
int verb_list_once(struct ctl *ctl, uint64_t array_job, bool *any_left);
#define VERB_WATCH_INTERVAL_MS 1000

#endif
