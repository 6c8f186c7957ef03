/* The dynamic loss scaler of Apex's amp as plain data with one pure step.
 *
 * The struct lives in memory of the net's backend, beside the gradients: the loss reads `scale`,
 * the finite check sets `found_inf`, the optimizer is a no-op where that is set, and scaler_step()
 * ends the step. The host decides nothing in between; it may read a copy afterwards, to print. All
 * ranks look at the same reduced gradients, so they agree without a message of their own.
 * Source: apex/amp/scaler.py, LossScaler.update_scale; spec "Loss scaler". */
#ifndef WORKER_SCALER_H
#define WORKER_SCALER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCALER_INIT 65536.0F       /* 2^16 */
#define SCALER_MAX 16777216.0F     /* 2^24 */
#define SCALER_MIN 6.103515625e-5F /* 2^-14: ours, Apex has none and reaches 0 */
#define SCALER_WINDOW 2000         /* clean steps before the scale grows */

struct scaler_options {
    bool is_dynamic; /* false: `init` for good, nothing is looked at and no step is skipped (Apex)
                      */
    float init, min, max; /* min <= init; a dynamic init above max begins at max */
    uint32_t window;
};

struct scaler {
    float scale;
    uint32_t unskipped;        /* clean steps since the scale changed */
    uint32_t found_inf;        /* this step's gradients hold an infinity or a NaN */
    uint32_t was_skipped;      /* the last step changed nothing */
    uint32_t skipped_in_a_row; /* up to the last step */
    uint32_t has_momentum;     /* the momentum buffers hold something */
    float min, max;
    uint32_t window;
    uint32_t is_dynamic;
    uint32_t applied; /* steps that were not skipped, in all: what an optimizer counts */
};

void scaler_init(struct scaler *scaler, const struct scaler_options *options);
/* Ends a step: found_inf halves the scale (not below min), else a clean step is counted and the
 * window's last doubles it (not above max). A skip never also grows. */
void scaler_step(struct scaler *scaler);

/* As Python prints a float: "32768.0", "0.5", "6.103515625e-05". `text` is returned. */
#define SCALER_TEXT_BYTES 32
const char *scaler_text(float scale, char text[SCALER_TEXT_BYTES]);

#endif
