/* Softmax cross-entropy over one batch of scores. */
#ifndef WORKER_NET_LOSS_H
#define WORKER_NET_LOSS_H

#include <stdint.h>

#include "worker/net/net.h"

/* The loss of one image with label y, and eps = smoothing, 0 <= eps <= 1:
 *   p    = softmax(scores)
 *   loss = (1 - eps) * -log p[y]  +  eps / classes * sum over c of -log p[c]
 * Source: torch.nn.CrossEntropyLoss(label_smoothing=eps).
 *
 *   scores: [n][classes]
 *   labels: [n], each < classes
 *   probs:  [n][classes], gets p; may be scores itself
 *   result: gets the losses' sum (in double) and the counts of top-1 and top-5. Of equal scores the
 *           lower class comes first; a NaN is never right. Smoothing does not change the counts. */
void loss_forward(const float *scores, const int64_t *labels, uint32_t n, uint32_t classes,
                  float smoothing, float *probs, struct net_result *result);
/* grads = scale * (probs - (1 - eps) * onehot(labels) - eps / classes)
 *   grads: [n][classes]; may be probs itself */
void loss_backward(const float *probs, const int64_t *labels, uint32_t n, uint32_t classes,
                   float smoothing, float scale, float *grads);

#endif
