/* Attaches to a job: submits or finds it, shows its logs and restarts, and waits for its end. An
 * edge: an object with callbacks on the loop of the caller; follow.h decides what to read next.
 *
 *   [submit -> submitted ->]   only for a new job
 *   job_get -> job_info        the job and its ranks
 *   log_read -> log_data       for each rank, again and again
 *   job_get -> job_info        on a second connection, answered when the job has a new version
 *
 * Done when the job has ended and every log is read. After a lost connection client.h connects
 * again; then the same submit and the same log offsets are sent again. */
#ifndef DDPCTL_ATTACH_H
#define DDPCTL_ATTACH_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "ddpctl/bar.h"
#include "ddpctl/causes.h"
#include "ddpctl/client.h"
#include "ddpctl/ctl.h"
#include "ddpctl/done_note.h"
#include "ddpctl/duplicate.h"
#include "ddpctl/follow.h"
#include "ddpctl/interrupt.h"
#include "ddpctl/log_folder.h"
#include "ddpctl/more_signals.h"
#include "ddpctl/stdin_feed.h"
#include "ddpctl/view.h"
#include "ddpctl/wait_note.h"

struct attach;

/* A piece of a rank's log or metrics. */
struct attach_piece {
    uint32_t generation, rank;
    const uint8_t *bytes;
    uint32_t byte_count;
    bool is_final;       /* the last piece of that generation */
    const char *problem; /* not empty: why no more can be read */
};

struct attach_options {
    const struct msg_submit *submit; /* sent first; NULL: `job` exists already */
    const char *job;                 /* number, name or @last */
    struct follow_options follow;
    struct view_options view;
    bool show_logs;        /* false: passed to on_log instead */
    bool hide_progress;    /* no progress bar */
    bool waits_for_room;   /* a refusal for want of room is no failure: try again */
    bool job_decides;      /* the exit code is the job's, and signals cancel the job */
    bool can_detach;       /* the job can go on without us */
    bool first_is_patient; /* the server is just being started: wait for it */
    bool term_is_final;    /* SIGTERM never kills, however often it comes */
    uint32_t first_signal; /* what the first Ctrl-C sends; 0: SIGINT */
    uint64_t more_signals; /* --signals-to-handle: bit N is signal N */
    bool has_stdin;        /* our stdin is sent to the rank `stdin_rank` */
    uint32_t stdin_rank;
    bool has_terminal; /* ranks have terminals; our stdin, if a terminal, is connected to them */
    uint64_t patience_us;
    struct duplicate *duplicate;         /* takes what is shown, too; NULL: none */
    const struct log_folder *log_folder; /* of --log-dir; NULL: none */
    /* Called with each piece of a log, which is then not shown; NULL: logs are shown. It returns
     * false to stop reading; that is not a failure. */
    bool (*on_log)(struct attach *attach, const struct attach_piece *piece);
    void (*on_submitted)(struct attach *attach, uint64_t job_id, bool is_new); /* may be NULL */
    void (*on_done)(struct attach *attach); /* exit_code is set, all handles are closing */
    void *owner;
};

#define ATTACH_CAUSES 16 /* number of generations for which the cause of their end is kept */

struct attach_rank {
    struct view views[2];                  /* stdout, stderr */
    char node[NODE_NAME_BYTES_MAX];        /* in the generation that is shown; empty: not known */
    char newest_node[NODE_NAME_BYTES_MAX]; /* in newest_generation */
    uint32_t started_generation;           /* in which it was last seen started; 0: in none */
};

/* Logs read over one connection: the server keeps no more waiting requests of one connection. */
#define ATTACH_RANKS_PER_CONN 48u
struct attach {
    struct ctl *ctl;
    struct attach_options options;
    uv_loop_t *loop;
    struct client job_client;
    struct interrupt interrupt;
    struct more_signals more_signals;
    struct stdin_feed stdin_feed;
    struct client *log_clients; /* [log_client_count]; kept until attach_free */
    uint32_t log_client_count;
    bool done, failed;
    uv_timer_t tick;

    uint64_t job_id; /* 0: not known yet */
    char job_text[24];
    uint64_t version;
    bool ended;
    struct follow follow;
    struct attach_rank *ranks; /* [world] */
    uint32_t world;            /* the largest number of ranks that the job can have */
    uint32_t world_now;        /* number of ranks in the current generation */
    int rank_width, node_width;
    struct view *open_view;     /* behind a part of its line is the cursor; NULL: at none */
    uint32_t shown_generation;  /* the generation that the views were made for */
    uint32_t newest_generation; /* the generation of the newest_nodes */
    uint32_t named_generation;  /* the generation for which the nodes of all ranks are known */
    uint32_t next_rank;         /* 0, or the first rank whose node must be asked for */

    uint32_t generation; /* the job's generation in the last answer */
    bool causes_wanted;  /* `generation` grew: read the events for the cause before more logs */
    bool news_wanted;    /* the job has changed: read the events for news of its nodes */
    uint32_t running_generation, said_generation; /* seen running; reported as running */
    uint64_t event_id;                            /* the newest event that was read */
    uint32_t asks_left;  /* how many more requests for the job or its events this tick may send */
    bool room_told;      /* reported that the queue has no room */
    uint64_t room_at_us; /* when to submit again; 0: not refused */
    bool must_ask;       /* the next one waits for the tick */
    bool log_wait_said; /* reported that the server does not answer for logs; none has come since */
    struct causes causes;
    struct cause cause_items[ATTACH_CAUSES];
    uint64_t checkpoint_step;
    struct bar bar;
    struct wait_note wait_note;
    struct done_note done_note;
    struct buf end_json, end_text;      /* made when the job ends */
    bool has_failed;                    /* the job has failed */
    bool has_shown_log;                 /* bytes of a log were read */
    char log_problem[REASON_BYTES_MAX]; /* why a log could not be read; empty: all could */

    int exit_code;
    bool exit_is_ours;
};

/* Starts; on_done follows. `attach` must be zeroed. */
void attach_start(struct attach *attach, struct ctl *ctl, uv_loop_t *loop,
                  const struct attach_options *options);
/* Handles a SIGTERM that came in another way (interrupt_term). */
void attach_term(struct attach *attach);
/* Stops early: on_done follows, with this `exit_code`. */
void attach_stop(struct attach *attach, int exit_code);
/* Call it after the loop has ended. */
void attach_free(struct attach *attach);
/* 0: the job has not been submitted yet. */
uint64_t attach_job_id(const struct attach *attach);

/* Shows how the job ended, as a line or a JSON object; for on_done. */
void attach_show_end(struct attach *attach);
/* Does all this on a loop of its own. Returns the exit code. */
int attach_run(struct ctl *ctl, const struct attach_options *options);

#endif
