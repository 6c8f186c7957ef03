#include "worker/net/clip.h"

#include <assert.h>
#include <math.h>

enum { LANES = 8 }; /* sums side by side, so that the loop can use vectors */

static const double norm_eps = 1e-6; /* of clip_grad_norm_ */

double clip_norm(const float *grads, size_t n)
{
    double sums[LANES] = {0}, sum = 0.0;
    const size_t whole = n - n % LANES;

    for (size_t i = 0; i < whole; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            sums[lane] += (double)grads[i + lane] * (double)grads[i + lane];
    for (size_t i = whole; i < n; i++)
        sum += (double)grads[i] * (double)grads[i];
    for (size_t lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    return sqrt(sum);
}

/* A NaN stays one. */
static void clip_values(float *grads, size_t n, float bound)
{
    for (size_t i = 0; i < n; i++) {
        float grad = grads[i] > bound ? bound : grads[i];

        grads[i] = grad < -bound ? -bound : grad;
    }
}

void clip_grads(float *grads, size_t n, const struct net_clip *clip, float scale)
{
    double factor;

    assert(clip->value >= 0.0F && clip->norm >= 0.0F); /* 0: off */
    if (clip->value > 0.0F)
        clip_values(grads, n, clip->value * scale);
    if (!(clip->norm > 0.0F))
        return;
    factor = (double)clip->norm / (clip_norm(grads, n) / (double)scale + norm_eps);
    if (factor >= 1.0)
        return;
    for (size_t i = 0; i < n; i++)
        grads[i] *= (float)factor;
}
