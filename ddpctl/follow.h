/* Following a job's logs: a cursor (generation, rank, byte offset) for each rank that is wanted.
 * Pure: tells what to read next, takes answers, and knows when all was shown.
 *
 * Ranks move to the next generation together, once each one's log of the old one was read to its
 * last byte, so that what is shown is in the order of generations. A lost connection only means
 * that what was asked is asked again: offsets make repeated answers harmless. */
#ifndef DDPCTL_FOLLOW_H
#define DDPCTL_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/msg.h"

struct follow_options {
    bool keep_on;        /* -f: wait for more, go through restarts, until the job has ended */
    uint32_t generation; /* that one alone; 0: the current one, and with keep_on those after it */
    uint32_t from_generation; /* with generation 0: begin here; 0: the current one */
    bool previous;            /* the one before the current one alone */
    bool ranks_all, ranks_failed;
    const uint8_t *rank_mask; /* else: bit (rank % 8) of byte (rank / 8); [RANKS_PER_JOB_MAX / 8] */
    uint32_t tail_lines;      /* begin so many lines before the end; 0: at the begin */
};

struct follow_rank {
    bool wanted, asked, final;
    bool begun;         /* an answer with bytes came: the offset counts, not tail_lines */
    uint32_t problems;  /* answers in a row that said why nothing can be read */
    uint64_t offset;    /* of the next byte */
    uint64_t ask_at_us; /* not before */
};

struct follow {
    struct follow_options options;
    uint64_t job_id;
    uint32_t world;
    uint32_t generation; /* being read; 0: none yet */
    uint32_t current;    /* the job's */
    bool ended, only_one;
    uint32_t next_rank; /* asked next, so that each has its turn */
    struct follow_rank ranks[RANKS_PER_JOB_MAX];
};

enum follow_data {
    FOLLOW_SHOW,    /* show bytes[skip..] */
    FOLLOW_NOTHING, /* nothing new */
    FOLLOW_GAP,     /* bytes are missing before these: say so, then show them */
    FOLLOW_PROBLEM, /* given up on this log: say `problem` */
};

void follow_init(struct follow *follow, const struct follow_options *options);
/* What the job is now. STATUS_NOT_FOUND (what was asked for is not there: a rank, a generation) in
 * words. */
enum status follow_job(struct follow *follow, const struct msg_job_info *info, struct err *err);
/* The next thing to ask; false: nothing now. request_id is the rank. `*ask_at_us`: when to call
 * again at the latest, lowered where a rank waits; the caller presets it. */
bool follow_next(struct follow *follow, uint64_t now_us, struct msg_log_read *read,
                 uint64_t *ask_at_us);
/* An answer. `*rank` and `*skip` tell what to show; `*is_final`: it was that log's last. */
enum follow_data follow_take(struct follow *follow, const struct msg_log_data *data,
                             uint64_t now_us, uint32_t *rank, uint32_t *skip, bool *is_final);
/* A connection is gone: what was asked for the ranks first, first + stride, ... will not be
 * answered. */
void follow_lost(struct follow *follow, uint32_t first, uint32_t stride);
/* True when all of this generation was read and there is a later one: it has moved there. */
bool follow_turn(struct follow *follow);
/* All that is wanted was read, to the last byte. */
bool follow_done(const struct follow *follow);

/* "all", "failed", "0,4-7" into the options; `mask` [RANKS_PER_JOB_MAX / 8] is kept.
 * STATUS_BAD_INPUT. */
enum status follow_ranks_parse(const char *text, struct follow_options *options, uint8_t *mask,
                               struct err *err);

#endif
