/* Names and states of the optimizers, and their steps by the C references of the CUDA kernels. */
#include "worker/net/optim.h"

#include <assert.h>
#include <string.h>

#include "kernels/optimizer.h"

static const char *const kind_names[] = {
    [OPTIM_SGD] = "sgd",   [OPTIM_ADAM] = "adam", [OPTIM_ADAMW] = "adamw",
    [OPTIM_LARS] = "lars", [OPTIM_LARC] = "larc",
};

int optim_kind_named(const char *name)
{
    for (size_t i = 0; i < sizeof kind_names / sizeof kind_names[0]; i++)
        if (strcmp(kind_names[i], name) == 0)
            return (int)i;
    return -1;
}

const char *optim_kind_name(enum optim_kind kind)
{
    assert((size_t)kind < sizeof kind_names / sizeof kind_names[0]);
    return kind_names[kind];
}

const char *optim_state_name(enum optim_state state)
{
    static const char *const names[OPTIM_STATES] = {
        [OPTIM_MOMENTUM] = "momentum",
        [OPTIM_EXP_AVG] = "exp_avg",
        [OPTIM_EXP_AVG_SQ] = "exp_avg_sq",
        [OPTIM_SLOW] = "slow",
    };

    assert((size_t)state < OPTIM_STATES);
    return names[state];
}

bool optim_uses(const struct optim *optim, enum optim_state state)
{
    const bool is_adam = optim->kind == OPTIM_ADAM || optim->kind == OPTIM_ADAMW;

    switch (state) {
    case OPTIM_MOMENTUM:
        return !is_adam;
    case OPTIM_EXP_AVG:
    case OPTIM_EXP_AVG_SQ:
        return is_adam;
    case OPTIM_SLOW:
        return optim->lookahead != OPTIM_LOOKAHEAD_NONE;
    }
    return false;
}

bool optim_is_set(enum optim_state state, const struct scaler *scaler)
{
    return state == OPTIM_MOMENTUM ? scaler->has_momentum != 0 : scaler->applied > 0;
}

static void step_sgd(const struct optim_tensor *to, const struct optim *optim,
                     const struct scaler *scaler)
{
    const struct kernel_sgd_tensor tensor = {.grad = to->grad,
                                             .master = to->param,
                                             .momentum = to->states[OPTIM_MOMENTUM],
                                             .count = to->count};
    const struct kernel_sgd sgd = {
        .grad_type = KERNEL_F32,
        .half_type = KERNEL_F32,
        .lr = optim->lr,
        .momentum = optim->momentum,
        .dampening = optim->dampening,
        .weight_decay = optim->weight_decay,
        .nesterov = optim->nesterov,
        .is_first_step = !scaler->has_momentum,
    };

    kernel_sgd_ref(&tensor, 1, &sgd, &scaler->scale, &scaler->found_inf);
}

static void step_adam(const struct optim_tensor *to, const struct optim *optim,
                      const struct scaler *scaler)
{
    const struct kernel_adam_tensor tensor = {.grad = to->grad,
                                              .master = to->param,
                                              .exp_avg = to->states[OPTIM_EXP_AVG],
                                              .exp_avg_sq = to->states[OPTIM_EXP_AVG_SQ],
                                              .count = to->count};
    const struct kernel_adam adam = {
        .grad_type = KERNEL_F32,
        .half_type = KERNEL_F32,
        .lr = (double)optim->lr,
        .beta1 = optim->beta1,
        .beta2 = optim->beta2,
        .weight_decay = (double)optim->weight_decay,
        .eps = optim->eps,
        .is_adamw = optim->kind == OPTIM_ADAMW,
    };

    assert(optim->beta1 < 1.0 && optim->beta2 < 1.0);
    kernel_adam_ref(&tensor, 1, &adam, &scaler->scale, &scaler->found_inf, &scaler->applied);
}

static void step_lars(const struct optim_tensor *to, const struct optim *optim,
                      const struct scaler *scaler)
{
    const struct kernel_lars_tensor tensor = {.grad = to->grad,
                                              .master = to->param,
                                              .momentum = to->states[OPTIM_MOMENTUM],
                                              .count = to->count,
                                              .adapts = to->adapts};
    const struct kernel_lars lars = {
        .grad_type = KERNEL_F32,
        .half_type = KERNEL_F32,
        .lr = optim->lr,
        .momentum = optim->momentum,
        .weight_decay = optim->weight_decay,
        .trust = optim->trust,
        .eps = optim->eps,
        .nesterov = optim->nesterov,
        .is_larc = optim->kind == OPTIM_LARC,
    };

    assert(optim->dampening == 0.0F);
    kernel_lars_ref(&tensor, 1, &lars, &scaler->scale, &scaler->found_inf);
}

static struct kernel_lookahead lookahead_of(const struct optim *optim)
{
    assert(optim->every > 0 && optim->alpha > 0.0F);
    return (struct kernel_lookahead){.half_type = KERNEL_F32,
                                     .is_paper = optim->lookahead == OPTIM_LOOKAHEAD_PAPER,
                                     .every = optim->every,
                                     .alpha = optim->alpha};
}

void optim_step(const struct optim_tensor *tensor, const struct optim *optim,
                const struct scaler *scaler)
{
    for (enum optim_state s = 0; s < OPTIM_STATES; s++)
        assert((tensor->states[s] != NULL) == optim_uses(optim, s));
    if (optim->lookahead != OPTIM_LOOKAHEAD_NONE) {
        const struct kernel_lookahead lookahead = lookahead_of(optim);
        const struct kernel_lookahead_tensor slow = {
            .master = tensor->param, .slow = tensor->states[OPTIM_SLOW], .count = tensor->count};

        kernel_lookahead_before_ref(&slow, 1, &lookahead, &scaler->found_inf, &scaler->applied);
    }
    switch (optim->kind) {
    case OPTIM_SGD:
        step_sgd(tensor, optim, scaler);
        break;
    case OPTIM_ADAM:
    case OPTIM_ADAMW:
        step_adam(tensor, optim, scaler);
        break;
    case OPTIM_LARS:
    case OPTIM_LARC:
        step_lars(tensor, optim, scaler);
        break;
    }
}

void optim_look_ahead(const struct optim_tensor *tensor, const struct optim *optim,
                      const struct scaler *scaler)
{
    const struct kernel_lookahead lookahead = lookahead_of(optim);
    const struct kernel_lookahead_tensor slow = {
        .master = tensor->param, .slow = tensor->states[OPTIM_SLOW], .count = tensor->count};

    assert(optim->lookahead != OPTIM_LOOKAHEAD_NONE);
    kernel_lookahead_ref(&slow, 1, &lookahead, &scaler->found_inf, &scaler->applied);
}
