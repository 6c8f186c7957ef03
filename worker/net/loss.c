/* Softmax cross-entropy, in double where it is summed. */
#include "worker/net/loss.h"

#include <assert.h>
#include <math.h>

/* How many classes come before the label's: 0 when it is the best. */
static uint32_t rank_of(const float *scores, uint32_t classes, uint32_t label)
{
    const float own = scores[label];
    uint32_t before = 0;

    for (uint32_t c = 0; c < classes; c++)
        if (c != label && (c < label ? !(scores[c] < own) : !(scores[c] <= own)))
            before++;
    return isnan(own) ? classes : before;
}

/* Softmax of one image's scores; returns its loss. The sum of -log p is classes * lse - sum. */
static double softmax(const float *scores, uint32_t classes, uint32_t label, double smoothing,
                      float *probs)
{
    const double own = scores[label];
    double max = scores[0], sum = 0.0, all = 0.0;

    for (uint32_t c = 1; c < classes; c++)
        max = fmax(max, scores[c]);
    for (uint32_t c = 0; c < classes; c++)
        sum += exp(scores[c] - max);
    for (uint32_t c = 0; c < classes; c++)
        probs[c] = (float)(exp(scores[c] - max) / sum);
    if (smoothing <= 0.0)
        return max + log(sum) - own;
    for (uint32_t c = 0; c < classes; c++)
        all += scores[c];
    return max + log(sum) - (1.0 - smoothing) * own - smoothing / classes * all;
}

void loss_forward(const float *scores, const int64_t *labels, uint32_t n, uint32_t classes,
                  float smoothing, float *probs, struct net_result *result)
{
    assert(classes > 0 && smoothing >= 0.0F && smoothing <= 1.0F);
    *result = (struct net_result){.images = n};
    for (uint32_t i = 0; i < n; i++) {
        const size_t at = (size_t)i * classes;
        uint32_t label = (uint32_t)labels[i];
        uint32_t rank;

        assert(label < classes); /* net_forward has refused others */
        rank = rank_of(scores + at, classes, label);
        result->top1 += rank < 1;
        result->top5 += rank < 5;
        result->loss_sum += softmax(scores + at, classes, label, (double)smoothing, probs + at);
    }
}

void loss_backward(const float *probs, const int64_t *labels, uint32_t n, uint32_t classes,
                   float smoothing, float scale, float *grads)
{
    const float other = smoothing / (float)classes, own = 1.0F - smoothing + other;

    for (uint32_t i = 0; i < n; i++) {
        const size_t at = (size_t)i * classes;

        for (uint32_t c = 0; c < classes; c++)
            grads[at + c] = scale * (probs[at + c] - (c == (uint32_t)labels[i] ? own : other));
    }
}
