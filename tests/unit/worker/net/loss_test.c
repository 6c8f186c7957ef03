/* Cross-entropy, counts and its gradient. */
#include <math.h>

#include "tests/lib/test.h"
#include "worker/net/loss.h"

#define CLASSES 7

TEST(counts_rank_the_label)
{
    /* image 0: best; 1: second; 2: sixth; 3: equal to all, the lowest class wins; 4: a NaN is never
     * right */
    const float scores[5][CLASSES] = {{9, 1, 2, 3, 4, 5, 6},
                                      {9, 8, 2, 3, 4, 5, 6},
                                      {9, 1, 2, 3, 4, 5, 6},
                                      {1, 1, 1, 1, 1, 1, 1},
                                      {NAN, 1, 2, 3, 4, 5, 6}};
    const int64_t labels[5] = {0, 1, 2, 0, 0};
    float probs[5 * CLASSES];
    struct net_result result;

    loss_forward(&scores[0][0], labels, 4, CLASSES, 0.0F, probs, &result);
    CHECK_EQ(result.images, 4);
    CHECK_EQ(result.top1, 2);
    CHECK_EQ(result.top5, 3);
    loss_forward(scores[4], labels + 4, 1, CLASSES, 0.0F, probs, &result);
    CHECK_EQ(result.top1, 0);
    CHECK_EQ(result.top5, 0);
}

TEST(loss_survives_large_scores)
{
    const float scores[3] = {1000.0F, 998.0F, -1000.0F};
    const int64_t label = 1;
    float probs[3], grads[3];
    struct net_result result;

    loss_forward(scores, &label, 1, 3, 0.0F, probs, &result);
    CHECK_NEAR(result.loss_sum, log(1.0 + exp(2.0)), 1e-9);
    loss_backward(probs, &label, 1, 3, 0.0F, 0.5F, grads);
    CHECK_NEAR(grads[0], 0.5 / (1.0 + exp(-2.0)), 1e-6);
    CHECK_NEAR(grads[1], -0.5 / (1.0 + exp(-2.0)), 1e-6);
    CHECK_NEAR(grads[2], 0.0, 1e-6);
}

TEST_MAIN
