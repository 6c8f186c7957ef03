/* The parts of attach.h: attach.c has the job, attach_logs.c its logs, attach_view.c the output,
 * attach_end.c the end. Each file calls only those after it in this list. */
#ifndef DDPCTL_ATTACH_PARTS_H
#define DDPCTL_ATTACH_PARTS_H

#include "ddpctl/attach.h"

/* attach_view.c: */
/* Writes to stdout or stderr and empties `out`. */
void attach_show(struct attach *attach, bool is_error, struct buf *out);
/* Shows bytes of a rank's log; is_final: they are its last. */
void attach_show_log(struct attach *attach, uint32_t rank, const struct msg_log_data *data,
                     uint32_t skip, bool is_final);
bool attach_make_ranks(struct attach *attach, const struct part_job *job); /* false: no memory */
/* Takes the nodes of the ranks, and makes the prefixes for the generation that is being read. */
void attach_make_views(struct attach *attach, const struct msg_job_info *info);
/* Reports that the next generation is being read. */
void attach_show_turn(struct attach *attach);
/* `job`: its new state; NULL: only time has passed. */
void attach_show_progress(struct attach *attach, const struct part_job *job);
/* Reports that a node of the job is silent, or answers again. */
void attach_show_news(struct attach *attach, const struct part_event *event);
/* Reports that the job runs again after a restart. */
void attach_show_running(struct attach *attach);
/* Reports why the job waits. */
void attach_show_wait(struct attach *attach);
/* Reports which ranks still run when others are done. */
void attach_show_done(struct attach *attach);
void attach_store_end(struct attach *attach, const struct msg_job_info *info);
/* Updates what changes with time alone. */
void attach_tick(struct attach *attach);

/* attach_logs.c: */
void attach_open_logs(struct attach *attach);
/* Sends all requests for logs that can be sent now, once the nodes of all ranks are known. Advances
 * to the next generation when the current one has been read. */
void attach_pump_logs(struct attach *attach);

/* attach_end.c, with attach_stop and attach_free: */
void attach_finish_if_done(struct attach *attach);

#endif
