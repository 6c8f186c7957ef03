/* The lines that rank 0 prints while it trains, and the rates in them. Each goes to stdout and is
 * flushed. */
#ifndef WORKER_TRAIN_PROGRESS_H
#define WORKER_TRAIN_PROGRESS_H

#include <stdint.h>

#include "worker/net/net.h"

struct progress {
    uint64_t begun_us;   /* of this window, mono_us(); printing a line ends a window */
    uint64_t images;     /* over all ranks, in the window */
    uint64_t wait_us;    /* spent waiting for batches */
    uint64_t comm_us;    /* spent inside collectives */
    uint64_t exposed_us; /* of comm_us, what a step waited for */
    uint32_t steps;
    double images_per_s; /* of the last finished window, or of this one so far */
};

struct progress_place {
    uint32_t epoch, epochs; /* counted from 1 */
    uint32_t step, steps;   /* of the epoch, from 1 */
    double lr;              /* of that step */
};

/* Begins a window: at the start of an epoch, so that it contains no validation. */
void progress_begin(struct progress *progress);
/* A step is done. */
void progress_add(struct progress *progress, uint64_t images, uint64_t wait_us, uint64_t comm_us,
                  uint64_t exposed_us);
/* "Epoch [1/10], Step [100/600], Loss: 2.1626, 5210 images/s, ..." and begins the next window. */
void progress_print(struct progress *progress, const struct progress_place *place, double loss);
/* "Val: Acc@1 97.21 Acc@5 99.90 Loss 0.0912" */
void progress_print_validation(const struct net_result *sums);
/* "Validating [6400/10000]" */
void progress_print_validating(uint32_t images, uint32_t count);
/* Why there is no validation. */
void progress_print_no_validation(void);
/* "Early stopping: val_loss has not improved for 3 epochs" */
void progress_print_early_stop(const char *metric, uint32_t epochs);

#endif
