/* The lines that rank 0 prints while it trains, and the rates in them. Each goes to stdout and is
 * flushed. */
#ifndef WORKER_TRAIN_PROGRESS_H
#define WORKER_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/net/net.h"

/* What a step took of the host's time. */
struct progress_times {
    uint64_t wait_us;    /* waiting for batches */
    uint64_t comm_us;    /* inside collectives */
    uint64_t exposed_us; /* the part of comm_us that the step waited for */
};

/* Finished steps since the line before. One that is only queued counts when the device has finished
 * it: rate times time is what was computed. */
struct progress {
    uint64_t begun_us, finished_us; /* of this window: its begin, and the end of its newest step */
    uint64_t images;                /* over all ranks */
    struct progress_times times;
    uint32_t steps;
    double
        images_per_s; /* of this window so far; before its first step that of the window before */

    /* Of this rank since the beginning of the epoch or the resume: */
    struct net_result epoch; /* loss_sum: only of finite losses */
    uint32_t finite_images;  /* how many images loss_sum is over */
    bool has_line;           /* one was printed */
    uint64_t epoch_begun_us, epoch_wait_us;
    uint32_t epoch_steps;
};

/* Means per step over the window. */
struct progress_means {
    double step_ms;
    double data_ms; /* waiting for the batch */
    double comm_ms, exposed_ms;
};

struct progress_place {
    uint32_t epoch, epochs; /* counted from 1 */
    uint32_t step, steps;   /* of the epoch, from 1 */
    double lr;              /* of that step */
};

/* Begins an epoch and a new window, so that the window does not include a validation. `now_us`, here
 * and below: mono_us(). */
void progress_begin(struct progress *progress, uint64_t now_us);
/* A step is finished: this rank's sums, and its times. `now_us`: when the device ended it; an earlier
 * one than the last is taken for that. */
void progress_count(struct progress *progress, uint64_t now_us, const struct net_result *sums,
                    uint32_t world, const struct progress_times *times);
struct progress_means progress_means(const struct progress *progress);
/* A NaN without a sign, which printf would show. */
double progress_number(double value);
/* As percent of `images`; 0 if there are none. */
double progress_percent(uint32_t right, uint32_t images);
/* "Epoch [1/10], Step [100/600], Loss: 2.1626, 5210 images/s, lr 0.01, Acc@1 11.20 Acc@5 50.12,
 * time 19.19 ms/step, data 0.05 ms/step, ..." and begins the next window. Accuracies are means over
 * the epoch so far. */
void progress_print(struct progress *progress, const struct progress_place *place, double loss);
/* "Train: Acc@1 96.80 Acc@5 99.87 Loss 0.1043", the means of the epoch */
void progress_print_training(const struct progress *progress);
/* "Val: Acc@1 97.21 Acc@5 99.90 Loss 0.0912" */
void progress_print_validation(const struct net_result *sums);
/* "Validating [6400/10000], Acc@1 97.00 Acc@5 99.88 Loss 0.0934": this rank's images so far */
void progress_print_validating(const struct net_result *sums, uint32_t count);
/* "Training complete in: 0:01:12.345678", as Python prints a timedelta */
void progress_print_end(uint64_t us);
/* Why there is no validation. */
void progress_print_no_validation(void);
/* "Early stopping: val_loss has not improved for 3 epochs" */
void progress_print_early_stop(const char *metric, uint32_t epochs);

#endif
