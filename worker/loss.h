/* Softmax cross-entropy over one batch of scores. */
#ifndef WORKER_LOSS_H
#define WORKER_LOSS_H

#include <stdint.h>

#include "worker/net.h"

/* Label smoothing by eps: loss = (1 - eps) * nll + eps / classes * sum over classes of -log p, as
 * torch.nn.CrossEntropyLoss(label_smoothing=eps). 0 <= eps <= 1; the counts do not change.
 *
 * scores: [n][classes]; labels: [n], each < classes; probs: [n][classes], gets the softmax (may be
 * scores itself). Sums the loss in double, counts top-1 and top-5 (ties: the lower class comes
 * first; a NaN is never right). */
void loss_forward(const float *scores, const int64_t *labels, uint32_t n, uint32_t classes,
                  float smoothing, float *probs, struct net_result *result);
/* grads = scale * (probs - (1 - eps) * onehot(labels) - eps / classes): [n][classes]; may be probs
 * itself. */
void loss_backward(const float *probs, const int64_t *labels, uint32_t n, uint32_t classes,
                   float smoothing, float scale, float *grads);

#endif
