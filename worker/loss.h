/* Softmax cross-entropy over one batch of scores. */
#ifndef WORKER_LOSS_H
#define WORKER_LOSS_H

#include <stdint.h>

#include "worker/net.h"

/* scores: [n][classes]; labels: [n], each < classes; probs: [n][classes], gets the softmax (may be
 * scores itself). Sums the loss in double, counts top-1 and top-5 (ties: the lower class comes
 * first; a NaN is never right). */
void loss_forward(const float *scores, const int64_t *labels, uint32_t n, uint32_t classes,
                  float *probs, struct net_result *result);
/* grads = scale * (probs - onehot(labels)): [n][classes]; may be probs itself. */
void loss_backward(const float *probs, const int64_t *labels, uint32_t n, uint32_t classes,
                   float scale, float *grads);

#endif
