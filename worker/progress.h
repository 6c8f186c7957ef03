/* What rank 0 prints while it trains, and the rates in it. Lines go to stdout, each flushed. */
#ifndef WORKER_PROGRESS_H
#define WORKER_PROGRESS_H

#include <stdint.h>

#include "worker/net.h"

struct progress {
    int64_t begun_us;    /* of the present window, monotonic; a window ends with its line */
    uint64_t images;     /* over all ranks, in the window */
    uint64_t wait_us;    /* of them, waiting for batches */
    uint64_t comm_us;    /* inside collectives */
    uint64_t exposed_us; /* of them, waited for */
    uint32_t steps;
    double images_per_s; /* of the last finished window, or of this one so far */
};

struct progress_place {
    uint32_t epoch, epochs; /* counted from 1 */
    uint32_t step, steps;   /* of the epoch, from 1 */
    double lr;              /* of that step */
};

int64_t progress_now_us(void);
/* Begins a window: at the start, and after what is no training (validation). */
void progress_begin(struct progress *progress);
/* A step is done. */
void progress_add(struct progress *progress, uint64_t images, uint64_t wait_us, uint64_t comm_us,
                  uint64_t exposed_us);
/* "Epoch [1/10], Step [100/600], Loss: 2.1626, 5210 images/s, ..." and begins the next window. */
void progress_print(struct progress *progress, const struct progress_place *place, double loss);
/* "Val: Acc@1 97.21 Acc@5 99.90 Loss 0.0912" */
void progress_print_validation(const struct net_result *sums);
/* "Early stopping: val_loss has not improved for 3 epochs" */
void progress_print_early_stop(const char *metric, uint32_t epochs);

#endif
