/* Optimizers against PyTorch, and against references in Python where that has none. Values of SGD
 * are from tests/numerics/sgd_values.py, all others from optim_values.py (PyTorch 2.15). */
#include <math.h>
#include <string.h>

#include "tests/lib/test.h"
#include "tests/unit/worker/net/optim_values.h"
#include "worker/net/optim.h"

#define SGD_N 4
#define TOLERANCE 1e-6 /* a few ulp: sums are rounded in another order */

static const float sgd_start[SGD_N] = {1.0F, -2.0F, 0.5F, 0.0F};
static const float sgd_grads[][SGD_N] = {{0.5F, 0.25F, -1.0F, 0.0F},
                                         {-0.125F, 2.0F, 0.75F, 0.0F},
                                         {3.0F, -0.5F, 0.0625F, 0.0F},
                                         {0.25F, 0.25F, -0.25F, 0.0F}};

static const struct {
    const char *name;
    float lr, rule[3]; /* momentum, dampening, weight decay */
    bool nesterov;
    float param[SGD_N], momentum[SGD_N];
} sgd_cases[] = {
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
    struct optim_tensor tensor = {.param = param, .grad = grad, .count = SGD_N};

    tensor.states[OPTIM_MOMENTUM] = momentum;
    optim_step(&tensor, optim, &scaler);
}

TEST(sgd_equals_torch)
{
    for (size_t i = 0; i < sizeof sgd_cases / sizeof sgd_cases[0]; i++) {
        const struct optim sgd = {.lr = sgd_cases[i].lr,
                                  .momentum = sgd_cases[i].rule[0],
                                  .dampening = sgd_cases[i].rule[1],
                                  .weight_decay = sgd_cases[i].rule[2],
                                  .nesterov = sgd_cases[i].nesterov};
        float param[SGD_N];
        float momentum[SGD_N] = {7.0F, 7.0F, 7.0F, 7.0F}; /* the first step must not read it */

        memcpy(param, sgd_start, sizeof param);
        for (size_t s = 0; s < sizeof sgd_grads / sizeof sgd_grads[0]; s++)
            step(param, sgd_grads[s], momentum, &sgd, s == 0);
        for (size_t k = 0; k < SGD_N; k++) {
            CHECK_NEAR(param[k], sgd_cases[i].param[k], TOLERANCE);
            if (sgd.momentum > 0.0F)
                CHECK_NEAR(momentum[k], sgd_cases[i].momentum[k], TOLERANCE);
        }
    }
}

/* One parameter with all its states, driven as a backend does. */
struct run {
    float param[N], states[OPTIM_STATES][N];
    struct scaler scaler;
};

static void run_start(struct run *run, float scale)
{
    const struct scaler_options options = {
        .is_dynamic = true, .init = scale, .min = 1.0F, .max = SCALER_MAX, .window = 3};

    *run = (struct run){.scaler = {0}};
    memcpy(run->param, start, sizeof start);
    scaler_init(&run->scaler, &options);
}

/* `grad` is multiplied by the loss scale, as a backward's is. */
static void run_step(struct run *run, size_t i, const float *grad, bool is_bad)
{
    float scaled[N];
    struct optim_tensor tensor = {.param = run->param, .grad = scaled, .count = N};

    tensor.adapts = cases[i].adapts;
    for (uint32_t s = 0; s < OPTIM_STATES; s++)
        if (optim_uses(&cases[i].optim, s))
            tensor.states[s] = run->states[s];
    for (size_t k = 0; k < N; k++)
        scaled[k] = is_bad ? INFINITY : grad[k] * run->scaler.scale;
    run->scaler.found_inf = is_bad;
    optim_step(&tensor, &cases[i].optim, &run->scaler);
    if (cases[i].optim.lookahead != OPTIM_LOOKAHEAD_NONE)
        optim_look_ahead(&tensor, &cases[i].optim, &run->scaler);
    if (!is_bad && cases[i].optim.momentum > 0.0F)
        run->scaler.has_momentum = 1;
    scaler_step(&run->scaler);
}

static void check_run(const struct run *run, size_t i, size_t s)
{
    for (size_t k = 0; k < N; k++)
        if (!(fabs((double)run->param[k] - cases[i].params[s][k]) <= TOLERANCE))
            FAIL("%s, step %zu, element %zu: expected %.9g, got %.9g", cases[i].name, s + 1, k,
                 cases[i].params[s][k], (double)run->param[k]);
    for (uint32_t state = 0; s == STEPS - 1 && state < OPTIM_STATES; state++)
        for (size_t k = 0; k < N; k++)
            if (!(fabs((double)run->states[state][k] - cases[i].states[state][k]) <= TOLERANCE))
                FAIL("%s, %s, element %zu: expected %.9g, got %.9g", cases[i].name,
                     optim_state_name(state), k, cases[i].states[state][k],
                     (double)run->states[state][k]);
}

TEST(all_others_equal_their_references)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run run;

        run_start(&run, 1.0F);
        for (size_t s = 0; s < STEPS; s++) {
            run_step(&run, i, grads[s], false);
            check_run(&run, i, s);
        }
        CHECK_EQ(run.scaler.applied, STEPS);
    }
}

/* Overflows before the first step and between any two change nothing, and nothing counts them; the
 * scale changes all the time. */
TEST(skipped_steps_leave_no_trace)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run run, before;

        run_start(&run, 1024.0F);
        for (size_t s = 0; s < STEPS; s++) {
            for (size_t skips = s % 3 == 0 ? s % 2 + 1 : 0; skips > 0; skips--) {
                before = run;
                run_step(&run, i, grads[s], true);
                CHECK_BYTES(run.param, before.param, sizeof run.param);
                CHECK_BYTES(run.states, before.states, sizeof run.states);
                CHECK_EQ(run.scaler.was_skipped, 1);
            }
            run_step(&run, i, grads[s], false);
            check_run(&run, i, s);
        }
        CHECK_EQ(run.scaler.applied, STEPS);
    }
}

/* What a layout pads with: 0 in all arrays. */
TEST(zeros_stay_zero)
{
    static const float none[N];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run run;

        run_start(&run, 1.0F);
        memset(run.param, 0, sizeof run.param);
        for (size_t s = 0; s < STEPS; s++)
            run_step(&run, i, none, false);
        for (size_t k = 0; k < N; k++) {
            CHECK(run.param[k] == 0.0F);
            for (uint32_t state = 0; state < OPTIM_STATES; state++)
                CHECK(run.states[state][k] == 0.0F);
        }
    }
}

TEST(names_of_optimizers)
{
    CHECK_EQ(optim_kind_named("adamw"), OPTIM_ADAMW);
    CHECK_EQ(optim_kind_named("Adam"), -1);
    for (int kind = 0; kind <= OPTIM_LARC; kind++)
        CHECK_EQ(optim_kind_named(optim_kind_name((enum optim_kind)kind)), kind);
}

TEST_MAIN
