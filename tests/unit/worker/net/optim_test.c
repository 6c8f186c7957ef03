/* SGD against torch.optim.SGD. The expected values come from tests/numerics/sgd_values.py
 * (PyTorch 2.15). */
#include <string.h>

#include "tests/lib/test.h"
#include "worker/optim.h"

#define N 4
#define TOLERANCE 1e-6 /* a few ulp: sums are rounded in another order */

static const float start[N] = {1.0F, -2.0F, 0.5F, 0.0F};
static const float grads[][N] = {{0.5F, 0.25F, -1.0F, 0.0F},
                                 {-0.125F, 2.0F, 0.75F, 0.0F},
                                 {3.0F, -0.5F, 0.0625F, 0.0F},
                                 {0.25F, 0.25F, -0.25F, 0.0F}};

static const struct {
    const char *name;
    float lr, rule[3]; /* momentum, dampening, weight decay */
    bool nesterov;
    float param[N], momentum[N];
} cases[] = {
    {"plain",
     0.1F,
     {0.0F, 0.0F, 0.0F},
     false,
     {0.637499988F, -2.20000029F, 0.543749988F, 0.0F},
     {0.0F, 0.0F, 0.0F, 0.0F}},
    {"decay",
     0.1F,
     {0.0F, 0.0F, 0.01F},
     false,
     {0.633930862F, -2.19158721F, 0.541609466F, 0.0F},
     {0.0F, 0.0F, 0.0F, 0.0F}},
    {"momentum",
     0.1F,
     {0.9F, 0.0F, 0.0F},
     false,
     {0.266924977F, -2.55797505F, 0.653775036F, 0.0F},
     {3.21324992F, 1.60224974F, -0.315249979F, 0.0F}},
    {"dampening",
     0.1F,
     {0.9F, 0.5F, 0.01F},
     false,
     {0.54153806F, -2.30920815F, 0.745339811F, 0.0F},
     {1.80770993F, 0.848712981F, -0.509649515F, 0.0F}},
    {"nesterov",
     0.1F,
     {0.9F, 0.0F, 0.01F},
     true,
     {-0.0324037783F, -2.67557073F, 0.674848735F, 0.0F},
     {3.23865318F, 1.52401078F, -0.294151187F, 0.0F}},
};

static void step(float *param, const float *grad, float *momentum, const struct optim *optim,
                 bool is_first)
{
    const struct scaler scaler = {.scale = 1.0F, .has_momentum = !is_first};
    struct optim_tensor tensor = {.param = param, .grad = grad, .count = N};

    tensor.states[OPTIM_MOMENTUM] = momentum;
    optim_step(&tensor, optim, &scaler);
}

TEST(steps_equal_torch)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct optim sgd = {.lr = cases[i].lr,
                                  .momentum = cases[i].rule[0],
                                  .dampening = cases[i].rule[1],
                                  .weight_decay = cases[i].rule[2],
                                  .nesterov = cases[i].nesterov};
        float param[N],
            momentum[N] = {7.0F, 7.0F, 7.0F, 7.0F}; /* the first step must not read it */

        memcpy(param, start, sizeof param);
        for (size_t s = 0; s < sizeof grads / sizeof grads[0]; s++)
            step(param, grads[s], momentum, &sgd, s == 0);
        for (size_t k = 0; k < N; k++) {
            CHECK_NEAR(param[k], cases[i].param[k], TOLERANCE);
            if (sgd.momentum > 0.0F)
                CHECK_NEAR(momentum[k], cases[i].momentum[k], TOLERANCE);
        }
    }
}

TEST(zeros_stay_zero)
{
    const struct optim sgd = {
        .lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, .nesterov = true};
    float param[N] = {0}, momentum[N] = {0};
    const float grad[N] = {0};

    for (int s = 0; s < 3; s++)
        step(param, grad, momentum, &sgd, s == 0);
    for (int k = 0; k < N; k++)
        CHECK(param[k] == 0.0F && momentum[k] == 0.0F);
}

TEST_MAIN
