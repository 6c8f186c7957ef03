/* Mixed precision: what an optimization level of Apex's amp means for a graph, and its words.
 *
 *            weights   computed in  batch norm  gradients  masters  loss scale
 *   O0       fp32      fp32         fp32        fp32       -        1.0
 *   O1       fp32      low          fp32        fp32       -        dynamic
 *   O2       low       low          fp32        low        fp32     dynamic
 *   O3       low       low          low         low        -        1.0
 *
 * "low" is fp16, or bf16 with --low-type bf16 (ours; its range is that of fp32, so its loss scale
 * is 1.0 unless asked for). "Batch norm" is its parameters and statistics; what it reads and writes
 * is low. Logits are cast to fp32 before the loss at every level. Under O2 the masters keep the
 * unrounded initial weights, where Apex makes them from the rounded ones.
 * Source: apex/amp/frontend.py, spec "Opt-level table". */
#ifndef WORKER_AMP_H
#define WORKER_AMP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/status.h"
#include "worker/graph.h"
#include "worker/scaler.h"

#define AMP_SKIPS_MAX 50 /* skipped steps in a row before training stops */

/* As typed; NULL and 0: the level's default. Texts are borrowed. */
struct amp_request {
    const char *level;               /* "O0" ... "O3" */
    const char *low_type;            /* "fp16", "bf16" */
    const char *keep_batchnorm_fp32; /* "True", "False", "None" */
    const char *loss_scale;          /* "dynamic" or a number */
    float init_scale, min_scale, max_scale;
};

struct amp {
    uint32_t level; /* 0 to 3 */
    enum graph_dtype low;
    bool norm_is_fp32;
    bool has_masters; /* fp32 parameters behind low copies: O1 (cast each step), O2 */
    struct scaler_options scaler;
};

/* STATUS_BAD_INPUT with Apex's words where it has some. */
enum status amp_resolve(struct amp *amp, const struct amp_request *request, struct err *err);
/* O0: everything fp32, the loss as it is. */
struct amp amp_none(void);
/* What Apex prints in amp.initialize. */
void amp_print_banner(const struct amp_request *request, const struct amp *amp, FILE *out);

#endif
