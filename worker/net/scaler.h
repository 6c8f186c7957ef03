/* The dynamic loss scaler of Apex's amp: plain data with one pure step.
 *
 * The struct is in the backend's memory, with the gradients. Within a step, all of it on the
 * device:
 *   1. the loss is multiplied by `scale`
 *   2. the finite check sets `found_inf`
 *   3. the optimizer is predicated on it: with found_inf it changes nothing
 *   4. scaler_step ends the step
 * The host waits for none of these; it may read a copy afterwards. All ranks check the same reduced
 * gradients, so they agree without a message.
 * Source: apex/amp/scaler.py, LossScaler.update_scale. */
#ifndef WORKER_NET_SCALER_H
#define WORKER_NET_SCALER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/graph/amp.h"

struct scaler {
    float scale;
    uint32_t unskipped;        /* clean steps since the scale changed */
    uint32_t found_inf;        /* this step's gradients hold an infinity or a NaN */
    uint32_t was_skipped;      /* the last step had found_inf */
    uint32_t skipped_in_a_row; /* the last step included */
    uint32_t has_momentum;     /* a step has written the momentum buffers */
    float min, max;
    uint32_t window;
    uint32_t is_dynamic;
    uint32_t applied; /* all steps that were not skipped: the optimizer's step count */
};

void scaler_init(struct scaler *scaler, const struct scaler_options *options);
/* Ends a step.
 *   found_inf: the scale is halved, not below min; the step counts as skipped
 *   else:      a clean step is counted; the window-th in a row doubles the scale, not above max */
void scaler_step(struct scaler *scaler);

#endif
