/* A run directory for TensorBoard: one new event file a run, in it what event.h makes.
 *
 * TensorBoard reads the files of a directory in the order of their names and shows one writer's
 * points well, so a directory has one writer at a time (tensorboard issue 1011). A run that goes on
 * from a step writes a new file that begins with a START record; a reader then drops what the older
 * files have of later steps. */
#ifndef WORKER_METRICS_BOARD_H
#define WORKER_METRICS_BOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "worker/metrics/event.h"

struct board;

struct board_options {
    const char *folder;  /* made where it is missing */
    uint32_t after_step; /* the run begins after this step; 0: at the start */
    bool is_apart;       /* ... or is none, as an evaluation: what is there stays */
    bool may_share;      /* another process that still writes there is no error: it is a lost
                            generation of the same job, and ends soon */
};

/* Errors: STATUS_IO, STATUS_CONFLICT (another process writes there), STATUS_TOO_BIG,
 * STATUS_MEMORY. */
enum status board_open(struct board **board, const struct board_options *options, struct err *err);
/* Each call is one write to the file, so that nothing is lost with the process. A failure costs
 * these values, and later ones are written again when there is room. Errors: STATUS_IO,
 * STATUS_MEMORY. */
enum status board_write(struct board *board, uint64_t step, const struct event_value *values,
                        size_t count, struct err *err);
/* `*board` may be NULL. */
void board_close(struct board **board);

#endif
