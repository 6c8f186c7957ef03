/* Which checkpoint the ranks resume from: a pure decision from what each node has in its checkpoint
 * folder. Every rank decides from the same data, so all decide alike. Private to this folder. */
#ifndef WORKER_TRAIN_AGREE_H
#define WORKER_TRAIN_AGREE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

#define AGREE_NODE_BYTES 64
#define AGREE_NO_FOLDER UINT32_MAX
#define AGREE_ALL UINT32_MAX /* copies: one on every node */

/* The report of one rank. If several ranks see the same folder, the first of them is responsible
 * for it: its `folder` is its own rank, and it alone reads and writes there. */
struct agree_report {
    char node[AGREE_NODE_BYTES]; /* for texts */
    uint32_t folder; /* the first rank that sees the same folder; AGREE_NO_FOLDER: it has none */
    /* The newest complete checkpoint that fits this training; only from the rank responsible for a
     * folder. */
    bool has_checkpoint;
    bool is_damaged; /* it has no complete checkpoint, only files of damaged ones */
    bool is_of_job;  /* this job made it; checkpoints of other jobs are considered last */
    uint32_t step;
};

struct agree_question {
    const struct agree_report *reports; /* [world]; that of rank 0 has folder 0 */
    uint32_t world;
    const char *path; /* of the folder, for texts */
    /* How many nodes besides rank 0's get a copy; 0: nothing is ever sent. */
    uint32_t copies;
    bool starts_if_damaged; /* --from-start-if-damaged */
    uint64_t known_step;    /* the newest step that the server knows to be committed; 0: none */
};

struct agree_answer {
    bool resumes; /* false: from the start */
    uint32_t step;
    bool is_of_job;
    bool is_older;   /* than known_step: progress is lost */
    uint32_t source; /* the rank that sends */
    /* Ranks that get the checkpoint of `source`: [receiver_count], ascending. The caller's array of
     * `world` entries. */
    uint32_t *receivers;
    uint32_t receiver_count;
};

/* Chooses the newest checkpoint that any rank has. Errors: STATUS_NOT_FOUND (the job has committed
 * one, but no rank has any), STATUS_BAD_INPUT (all existing ones are damaged), STATUS_CONFLICT
 * (rank 0 does not have it, and copies is 0). */
enum status agree(const struct agree_question *question, struct agree_answer *answer,
                  struct err *err);

/* The ranks that get a copy of each checkpoint of rank 0: the first `copies` other ranks that are
 * responsible for a folder. ranks: [world]; returns how many. */
uint32_t agree_copies(const struct agree_question *question, uint32_t *ranks);

#endif
