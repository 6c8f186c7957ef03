/* Follows the logs or the metrics of a job, with a position (generation, rank, byte offset) for each selected
 * rank. Pure: decides what to request next, takes the answers, and knows when everything was shown.
 *
 * Ranks advance to the next generation together, when all logs of the current one have been read to
 * their end. So generations are shown in order. After a lost connection requests are repeated;
 * offsets make repeated answers harmless. */
#ifndef DDPCTL_FOLLOW_H
#define DDPCTL_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"

struct follow_options {
    enum log_kind what;
    bool keep_on; /* -f: wait for more output, also after restarts, until the job has ended */
    uint32_t generation; /* only this one; 0: the current one, and with keep_on also later ones */
    uint32_t from_generation; /* if generation is 0: begin here; 0: the current one */
    bool to_current;          /* without keep_on: read from from_generation to the current one */
    bool previous;            /* only the generation before the current one */
    bool ranks_all;           /* all ranks, but at most the first FOLLOW_RANKS_MAX */
    bool ranks_failed;        /* the rank that failed last; generation 0: as of where it failed */
    const uint8_t *rank_mask; /* else: bit (rank % 8) of byte (rank / 8); [RANKS_PER_JOB_MAX / 8] */
    uint32_t tail_lines;      /* start so many lines before the end; 0: at the start */
    bool is_held;             /* request nothing until follow_go, or until the job has ended */
};

#define FOLLOW_RANKS_MAX 1024u /* most logs that are read at a time */

struct follow_rank {
    bool wanted, asked, final;
    uint32_t ordinal;   /* its position among the selected ranks */
    bool begun;         /* bytes have come: use offset, not tail_lines */
    uint32_t problems;  /* errors in a row */
    uint64_t offset;    /* offset of the next byte */
    uint64_t end;       /* without keep_on: the size at the first read; 0: not known */
    uint64_t ask_at_us; /* earliest time of the next request; while asked: the time of this one */
};

/* The most ranks that any generation of the job can have. */
uint32_t follow_world(const struct part_job *job);

struct follow {
    struct follow_options options;
    uint64_t job_id;
    uint32_t world;      /* the largest number of ranks that the job can have */
    bool changes_size;   /* some generations have fewer ranks */
    uint32_t generation; /* being read; 0: none yet */
    uint32_t current;    /* the job's current generation */
    bool ended, only_one;
    uint32_t next_rank;                          /* the next rank to request: ranks take turns */
    struct follow_rank ranks[RANKS_PER_JOB_MAX]; /* [world] are in use: the last member */
};

enum follow_data {
    FOLLOW_SHOW,    /* show bytes[skip..] */
    FOLLOW_NOTHING, /* nothing new */
    FOLLOW_UNASKED, /* the answer to no request */
    FOLLOW_GAP,     /* bytes before these are missing: show a message, then the bytes */
    FOLLOW_PROBLEM, /* we stopped reading this log: show `problem` */
};

void follow_init(struct follow *follow, const struct follow_options *options);
/* Takes the state of the job. STATUS_NOT_FOUND: a selected rank or generation does not exist; `err`
 * names it. */
enum status follow_job(struct follow *follow, const struct msg_job_info *info, struct err *err);
/* Ends is_held. */
void follow_go(struct follow *follow);
/* The next request; request_id is the rank. False: none now. The caller presets `*ask_at_us`; it is
 * lowered to the time when a rank that must wait can be requested. */
bool follow_next(struct follow *follow, uint64_t now_us, struct msg_log_read *read,
                 uint64_t *ask_at_us);
/* Takes an answer. `*rank` and `*skip`: what to show; `*is_final`: these are the last bytes of that
 * log. */
enum follow_data follow_take(struct follow *follow, const struct msg_log_data *data,
                             uint64_t now_us, uint32_t *rank, uint32_t *skip, bool *is_final);
/* A connection was lost: requests for the ranks with the ordinals first, first + stride, ... will
 * not be answered. */
void follow_lost(struct follow *follow, uint32_t first, uint32_t stride);
/* Advances to the next generation if this one was read to its end and a later one exists. True: it
 * did. */
bool follow_turn(struct follow *follow);
/* True: all selected logs were read to their end. */
bool follow_done(const struct follow *follow);

/* Sets the ranks of the options from "all", "failed" or "0,4-7". `mask` [RANKS_PER_JOB_MAX / 8]
 * must outlive the options. STATUS_BAD_INPUT. */
enum status follow_ranks_parse(const char *text, struct follow_options *options, uint8_t *mask,
                               struct err *err);

#endif
