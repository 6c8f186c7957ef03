/* Attached to a job: it is submitted or found, its logs are shown, its restarts told, its end
 * awaited. An edge: an object of callbacks on the caller's loop; what to read next is follow.h's.
 *
 * Happy path: [submit -> submitted ->] job_get -> job_info -> log_read for each rank -> log_data
 * ... while a second connection holds a job_get open for the next version; the job has ended and
 * every log is read: done. A lost server is tried again by client.h; the same submit and the same
 * cursors are asked again. */
#ifndef DDPCTL_ATTACH_H
#define DDPCTL_ATTACH_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "ddpctl/client.h"
#include "ddpctl/ctl.h"
#include "ddpctl/follow.h"
#include "ddpctl/view.h"

struct attach;

struct attach_options {
    const struct msg_submit *submit; /* sent first; NULL: `job` is there already */
    const char *job;                 /* number, name or @last */
    const char *server;
    struct follow_options follow;
    bool show_logs;
    bool job_decides;      /* the exit code is the job's; signals cancel it */
    bool can_detach;       /* the job lives on without us */
    bool first_is_patient; /* the server is about to be there */
    uint64_t patience_us;
    void (*on_submitted)(struct attach *attach, uint64_t job_id, bool is_new); /* may be NULL */
    void (*on_done)(struct attach *attach); /* exit_code is set, all handles are closing */
    void *owner;
};

/* Why a generation ended. */
#define ATTACH_CAUSES 16
struct attach_cause {
    uint32_t generation;
    char text[REASON_BYTES_MAX];
};

struct attach_rank {
    struct view view;
    char node[NODE_NAME_BYTES_MAX];
};

/* The ranks' logs are read over one connection for so many: the server holds no more questions of
 * one. */
#define ATTACH_RANKS_PER_CONN 48u
#define ATTACH_LOG_CONNS_MAX                                                                       \
    ((RANKS_PER_JOB_MAX + ATTACH_RANKS_PER_CONN - 1) / ATTACH_RANKS_PER_CONN)

struct attach {
    struct ctl *ctl;
    struct attach_options options;
    uv_loop_t *loop;
    struct client job_client, cancel_client;
    struct client *log_clients; /* [log_client_count]; kept until attach_free */
    uint32_t log_client_count;
    bool cancel_open, done, failed;
    uv_timer_t tick;
    uv_signal_t signals[3];
    uv_poll_t keyboard;
    bool keyboard_open;

    uint64_t job_id; /* 0: not known yet */
    char job_word[24];
    uint64_t version;
    bool ended;
    struct follow follow;
    struct attach_rank *ranks; /* [world] */
    uint32_t world;
    int rank_width, node_width;
    uint32_t shown_generation; /* that the views were made for */

    uint32_t generation;                      /* the job's, as last told */
    char state_mark[JOB_NAME_BYTES_MAX + 40]; /* "r50 (41) is ": events that only tell its state */
    bool causes_wanted; /* it has grown: the events tell why, before the logs go on */
    uint64_t event_id;  /* newest that was read */
    struct attach_cause causes[ATTACH_CAUSES]; /* at generation % ATTACH_CAUSES */
    uint64_t checkpoint_step;
    struct buf progress;
    struct buf end_json, end_text; /* made when the job had ended */

    int interrupts;    /* how often a person or a signal wanted an end */
    int signal_number; /* that asked to cancel; 0: none */
    bool cancel_wanted, cancel_now, cancelled_job;
    int exit_code;
    bool exit_is_ours;
};

/* Starts; on_done follows. `attach` is zeroed by the caller. */
void attach_start(struct attach *attach, struct ctl *ctl, uv_loop_t *loop,
                  const struct attach_options *options);
/* Give up: `exit_code` is what on_done will see. */
void attach_stop(struct attach *attach, int exit_code);
/* After the loop has ended. */
void attach_free(struct attach *attach);
/* The job's number is not known before it was submitted: 0. */
uint64_t attach_job_id(const struct attach *attach);

/* The verdict, as a message or an object; for on_done. */
void attach_say_end(struct attach *attach);
/* All of it on a loop of its own: returns the exit code. */
int attach_run(struct ctl *ctl, const struct attach_options *options);

/* attach_stop_io.c: signals, the question on Ctrl-C, cancelling. */
void attach_signals_open(struct attach *attach);
void attach_signals_close(struct attach *attach);
void attach_cancel_if_wanted(struct attach *attach);

#endif
