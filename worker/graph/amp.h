/* Mixed precision: what an optimization level of Apex's amp means for a graph, and the text that
 * Apex prints about it.
 *
 *            weights   computed in  batch norm  gradients  masters  loss scale
 *   O0       fp32      fp32         fp32        fp32       -        1.0
 *   O1       fp32      half         fp32        fp32       -        dynamic
 *   O2       half      half         fp32        half       fp32     dynamic
 *   O3       half      half         half        half       -        1.0
 *
 * - "half" is fp16, or bf16 with --low-type bf16. That option is ours; bf16 has the range of fp32,
 *   so its loss scale is 1.0 by default.
 * - "batch norm" is its parameters and statistics; its input and output are half.
 * - Logits are cast to fp32 before the loss at every level.
 * - Under O2 the masters keep the unrounded initial weights. Apex makes them from the rounded ones.
 * Source: apex/amp/frontend.py. */
#ifndef WORKER_GRAPH_AMP_H
#define WORKER_GRAPH_AMP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/status.h"
#include "worker/graph/graph.h"

/* Defaults of the loss scaler (net/scaler.h). */
#define SCALER_INIT 65536.0F       /* 2^16 */
#define SCALER_MAX 16777216.0F     /* 2^24 */
#define SCALER_MIN 6.103515625e-5F /* 2^-14; Apex has no minimum and can reach 0 */
#define SCALER_WINDOW 2000         /* steps without an overflow before the scale grows */

struct scaler_options {
    bool is_dynamic;      /* false: always `init`; gradients are not checked, no step is skipped */
    float init, min, max; /* min <= init; a dynamic scale starts at most at max */
    uint32_t window;      /* steps without an overflow before the scale grows */
};

#define AMP_SKIPS_MAX 50 /* skipped steps in a row before training stops */

/* The options as typed. NULL and 0 mean the level's default. Texts are borrowed. */
struct amp_request {
    const char *level;               /* "O0" ... "O3" */
    const char *half_type;           /* "fp16", "bf16" */
    const char *keep_batchnorm_fp32; /* "True", "False", "None" */
    const char *loss_scale;          /* "dynamic" or a number */
    float init_scale, min_scale, max_scale;
};

struct amp {
    uint32_t level; /* 0 to 3 */
    enum graph_dtype half;
    bool norm_is_fp32;
    bool has_masters; /* fp32 parameters from which half copies are made: O1 (in every step), O2 */
    struct scaler_options scaler;
};

/* The level with the overrides of `request`. Errors: STATUS_BAD_INPUT, with Apex's message where it
 * has one. */
enum status amp_resolve(struct amp *amp, const struct amp_request *request, struct err *err);
/* O0: everything in fp32, the loss not scaled. */
struct amp amp_none(void);
/* Prints what amp.initialize of Apex prints. */
void amp_print_banner(const struct amp_request *request, const struct amp *amp, FILE *out);

/* `scale` as Python prints a float: "32768.0", "0.5", "6.103515625e-05". `text` is returned. */
#define AMP_SCALE_TEXT_BYTES 32
const char *amp_scale_text(float scale, char text[AMP_SCALE_TEXT_BYTES]);

#endif
