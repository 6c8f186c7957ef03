/* Gradient clipping over flat memory. */
#ifndef WORKER_NET_CLIP_H
#define WORKER_NET_CLIP_H

#include <stddef.h>

#include "worker/net/net.h"

/* Clips grads, [n], in place, as net_clip describes. They are multiplied by the loss scale `scale`
 * before and after; values and norm of `clip` are those of grads / scale. The norm is summed in
 * double. A NaN norm makes every gradient NaN, as in torch; else zeros (padding) stay 0. */
void clip_grads(float *grads, size_t n, const struct net_clip *clip, float scale);
/* The L2 norm of grads: [n]. */
double clip_norm(const float *grads, size_t n);

#endif
