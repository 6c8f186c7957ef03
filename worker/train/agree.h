/* Where the ranks go on: a pure decision from what each node has in its checkpoint folder. Every
 * rank makes it from the same data, so all decide alike. Private to this folder. */
#ifndef WORKER_TRAIN_AGREE_H
#define WORKER_TRAIN_AGREE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

#define AGREE_NODE_BYTES 64
#define AGREE_NO_FOLDER UINT32_MAX
#define AGREE_ALL UINT32_MAX /* copies: one on every node */

/* What one rank says. Of the ranks that see the same folder only the first speaks for it: its
 * `folder` is its own rank, and it alone reads and writes there. */
struct agree_report {
    char node[AGREE_NODE_BYTES]; /* for texts */
    uint32_t folder; /* the first rank that sees the same folder; AGREE_NO_FOLDER: it has none */
    /* The newest whole checkpoint that fits this training, of the rank that speaks for a folder: */
    bool has_checkpoint;
    bool is_damaged; /* it has none, but files of some that are not whole */
    bool is_of_job;  /* this job made it; one of another job comes after all of these */
    uint32_t step;
};

struct agree_question {
    const struct agree_report *reports; /* [world]; that of rank 0 has folder 0 */
    uint32_t world;
    const char *path; /* of the folder, for texts */
    /* On how many nodes besides rank 0's there is to be a copy; 0: nothing is ever sent. */
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
    /* Ranks that get the checkpoint of `source`: [receiver_count], rising. The caller's array of
     * `world` entries. */
    uint32_t *receivers;
    uint32_t receiver_count;
};

/* The newest checkpoint that any rank has. Errors: STATUS_NOT_FOUND (nobody has one although the
 * job has committed one), STATUS_BAD_INPUT (all that there are are damaged), STATUS_CONFLICT (rank 0 lacks it and copies is 0). */
enum status agree(const struct agree_question *question, struct agree_answer *answer,
                  struct err *err);

/* The ranks that get a copy of each checkpoint that rank 0 writes: the first `copies` others that
 * speak for a folder. ranks: [world]; returns how many. */
uint32_t agree_copies(const struct agree_question *question, uint32_t *ranks);

#endif
