/* Gradient clipping over flat memory. */
#ifndef WORKER_CLIP_H
#define WORKER_CLIP_H

#include <stddef.h>

#include "worker/net.h"

/* grads: [n], each multiplied by the loss scale `scale` and so kept. Values and norm of `clip` are
 * those of the unscaled gradients. The norm is summed in double; a norm that is no number makes
 * every gradient one, as torch does. Zeros (padding) stay 0 unless the norm is no number. */
void clip_grads(float *grads, size_t n, const struct net_clip *clip, float scale);
/* The L2 norm of grads: [n]. */
double clip_norm(const float *grads, size_t n);

#endif
