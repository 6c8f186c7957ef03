/* The output of ddpctl: turns messages of the server into text or JSON. Pure: struct to buf. Text
 * from the command of a job or from a worker is escaped. `ddpctl help json` lists the JSON
 * fields. */
#ifndef DDPCTL_OUTPUT_H
#define DDPCTL_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/msg.h"
#include "ddpctl/units.h"

struct output_style {
    bool color;
    bool folds_arrays; /* in a list of jobs, one line for each array */
    int64_t now_ms;    /* wall clock, for ages */
    const char *why;   /* for `status`: how the job failed, in one line; NULL: not known */
};

/* The next generation of a job that is being followed. */
struct output_turn {
    uint64_t job_id;
    uint32_t generation, world;
    uint64_t checkpoint_step; /* from which it resumes; 0: from the start */
    const char *cause;        /* why the generation before it ended; may be empty */
};

/* A line of a log, without its line feed. */
struct output_log {
    uint64_t job_id;
    uint32_t generation, rank;
    const char *node;
    bool is_error;  /* stderr */
    int64_t at_ms;  /* when it was written; 0: not known */
    bool continues; /* a part of a long line that continues in the next one */
    const char *text;
    size_t byte_count;
};

/* The functions that write text: */
void output_jobs(const struct msg_jobs *jobs, const struct output_style *style, struct buf *out);
void output_status(const struct msg_job_info *info, const struct output_style *style,
                   struct buf *out);
/* up, suspect, lost, or refused. */
const char *output_node_state(const struct part_node *node);
void output_nodes(const struct msg_nodes *nodes, const struct output_style *style, struct buf *out);
/* For exactly one node, with all its slots. */
void output_node(const struct msg_nodes *nodes, const struct output_style *style, struct buf *out);
void output_server(const struct msg_server_info *info, struct buf *out);
void output_events(const struct msg_events *events, struct buf *out);
void output_keys(const struct part_principal *items, uint32_t count, struct buf *out);
/* "2026-11-22 08:00 UTC"; "-" for 0. */
void output_time(int64_t wall_ms, char *text, size_t text_bytes);
/* One line, without a line feed: "epoch 3/10  step 1.2k/6k  20%  loss 0.1234  5.1k/s"; empty before
 * the first progress. */
void output_progress(const struct part_job *job, struct buf *out);
/* Whether the progress is of an earlier generation, since the newest has reported none yet. */
bool output_progress_is_old(const struct part_job *job);
/* Whether there is a rate, reported by the newest generation. */
bool output_has_rate(const struct part_job *job);
/* "2 of 1:4 nodes"; empty for a job whose number of nodes is fixed. */
void output_nodes_of(const struct part_job *job, char text[TEXT_BYTES]);
/* The state or the end of a job, in a sentence without a line feed: "r50 (41) failed: rank 3 on
 * gpu03 exited 1". */
void output_verdict(const struct msg_job_info *info, struct buf *out);
/* "rank 9 was killed by signal 9 (SIGKILL); generation 2: 16 ranks resume at step 12000" */
void output_turn(const struct output_turn *turn, struct buf *out);
/* "queued r50: 16 ranks on 2 nodes, up to 3 restarts" and the next commands. */
void output_submitted(const struct msg_submit *submit, uint64_t job_id, bool is_new,
                      const char *server, struct buf *out);

/* JSON: each writes one object and a line feed. */
void output_jobs_json(const struct msg_jobs *jobs, struct buf *out);
void output_status_json(const struct msg_job_info *info, struct buf *out);
void output_nodes_json(const struct msg_nodes *nodes, struct buf *out);
void output_node_json(const struct msg_nodes *nodes, struct buf *out); /* for exactly one node */
void output_server_json(const struct msg_server_info *info, struct buf *out);
void output_events_json(const struct msg_events *events, struct buf *out);
void output_keys_json(const struct part_principal *items, uint32_t count, struct buf *out);
void output_key_json(const char *name, const struct msg_principal_key *key, struct buf *out);
void output_key_removed_json(const struct part_principal *gone, struct buf *out);
/* Who is logged in, and where; NULL: nobody. */
void output_login_json(const char *server, const char *name, struct buf *out);
void output_event_line_json(const struct part_event *event, struct buf *out);
/* Writes the request as a job specification that `submit` accepts. */
void output_submit_json(const struct msg_submit *submit, struct buf *out);
void output_submitted_json(const struct msg_submit *submit, uint64_t job_id, bool is_new,
                           struct buf *out);
void output_log_json(const struct output_log *log, struct buf *out);
/* {"type":"generation"}: the next generation of a job that is followed. */
void output_turn_json(const struct output_turn *turn, struct buf *out);
/* The end of an attached verb; `code`: ddpctl's exit code. `info` may be NULL. */
void output_exit_json(const struct msg_job_info *info, int code, bool is_ours, struct buf *out);
void output_error_json(const char *code, const char *message, const char *hint, struct buf *out);

#endif
