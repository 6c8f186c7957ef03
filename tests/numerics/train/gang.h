/* Runs ddp-worker: one rank, or several with this process in the place of their shims. */
#ifndef TESTS_NUMERICS_TRAIN_GANG_H
#define TESTS_NUMERICS_TRAIN_GANG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define GANG_RANKS_MAX 8
#define GANG_ARGS_MAX 48

struct gang {
    uint32_t world;
    uint32_t generation;
    bool has_shim;
    pid_t pids[GANG_RANKS_MAX];
    int fds[GANG_RANKS_MAX];     /* our ends of the sockets */
    int outputs[GANG_RANKS_MAX]; /* stdout and stderr of each rank */
    uint32_t progress_count;     /* messages that came */
    uint64_t progress_step;      /* of the last */
    char error[512];             /* the last worker_error */
};

/* Further options of the last rank alone; NULL: none. */
extern const char *gang_last_args;
/* Starts `world` ranks with the options `args`, which are divided by blanks; "%R" is the rank. With world 1 and no
 * `has_shim` the worker runs without a launcher. */
void gang_start(struct gang *gang, uint32_t world, bool has_shim, uint32_t generation,
                const char *args);
/* Reads the join message of every rank, then sends each of them the world. False: a rank closed
 * its connection first. */
bool gang_meet(struct gang *gang);
/* Waits until rank 0's output has `line`; the text so far is in gang_output. False: it ended
 * without. */
bool gang_wait_line(struct gang *gang, const char *line);
/* Reads to the end of every rank and returns the first exit code that is not 0 (128 + signal), or
 * 0. */
int gang_finish(struct gang *gang);
/* Rank 0's output so far. */
const char *gang_output(void);

/* All of it: start, meet, finish. */
int gang_run(uint32_t world, const char *args);
/* A training run that is stopped at each of `cuts` and resumed. */
struct gang_resume {
    const char *name; /* of the checkpoint folders in test_dir(): NAME-whole and NAME-cut */
    uint32_t world;
    const char *args;     /* of every run; without --checkpoint-dir, --max-steps and --resume */
    const char *end_args; /* only of runs to the end: "--max-steps N", or "" if epochs end it */
    uint32_t cuts[6];     /* steps, ascending; the first 0 ends the list */
    uint32_t end_step;
};
/* Trains once without interruption and once with the interruptions of `resume`. Fails the test
 * unless both end with the same checkpoint, tensors and state to the bit, and every start after the
 * first resumes at the cut before it. */
void gang_check_resume(const struct gang_resume *resume);
/* Fails the test unless the tensors of the checkpoints of `step` in the folders a and b of
 * test_dir() are equal to the bit. */
void gang_check_same(const char *a, const char *b, uint32_t step);

#endif
