/* kernels/optimizer.h on a device: several steps in a row over many tensors, one of them skipped. */
#include "kernels/optimizer.h"

#include <string.h>

#include "tests/gpu/mirror.h"

#define TENSORS 70 /* over 64: two launches */
#define STEPS 4

static const size_t counts[] = {0, 1, 3, 4, 5, 33, 255, 256, 1025, 4097, 9001};

/* Arrays that all tensors share, tensor t from at[t] on; `states` are f32. */
struct optim_case {
    size_t at[TENSORS], count[TENSORS], end;
    enum kernel_type grad_type, half_type;
    struct mirror grad, master, states[2], half, scale, found, applied;
};

static void case_new(struct optim_case *c)
{
    const float scale = (float)(1U << draw_below(12)) * (draw_below(2) ? 1.0F : 1.37F);

    c->end = 8;
    for (uint32_t t = 0; t < TENSORS; t++) {
        c->at[t] = c->end + draw_below(9); /* aligned or not */
        c->count[t] = counts[draw_below(sizeof counts / sizeof counts[0] - (t % 8 != 0 ? 3 : 0))];
        c->end = c->at[t] + c->count[t];
    }
    c->grad_type = (enum kernel_type)draw_below(3);
    c->half_type = draw_below(2) ? KERNEL_F16 : KERNEL_BF16;
    c->grad = mirror_random(c->grad_type, c->end, 0, 100.0F);
    c->master = mirror_random(KERNEL_F32, c->end, 0, 1.0F);
    c->states[0] = mirror_zeros(c->end * 4);
    c->states[1] = mirror_zeros(c->end * 4);
    c->half = mirror_new(c->end * 2, 0);
    c->scale = mirror_of(&scale, sizeof scale);
    c->found = mirror_zeros(4);
    c->applied = mirror_zeros(4);
}

static void case_free(struct optim_case *c)
{
    mirror_free(&c->grad);
    mirror_free(&c->master);
    mirror_free(&c->states[0]);
    mirror_free(&c->states[1]);
    mirror_free(&c->half);
    mirror_free(&c->scale);
    mirror_free(&c->found);
    mirror_free(&c->applied);
}

static void case_compare(const struct optim_case *c)
{
    mirror_compare(&c->master, "master");
    mirror_compare(&c->states[0], "first state");
    mirror_compare(&c->states[1], "second state");
    mirror_compare(&c->half, "half");
    mirror_compare(&c->grad, "grad");
}

/* Step 2 of 4 is skipped, and so not counted. */
static void case_begin(struct optim_case *c, uint32_t step)
{
    *(uint32_t *)c->found.host = step == 2;
    *(uint32_t *)c->applied.host = step - (step > 2);
    mirror_upload(&c->found);
    mirror_upload(&c->applied);
}

static void *place(const struct mirror *mirror, bool on_device, size_t at, size_t bytes)
{
    return (uint8_t *)(on_device ? mirror->device : mirror->host) + at * bytes;
}

static void *half_of(const struct optim_case *c, bool on_device, uint32_t t)
{
    return t % 5 == 4 ? NULL : place(&c->half, on_device, c->at[t], 2); /* some have none */
}

static void adam_table(const struct optim_case *c, bool on_device, struct kernel_adam_tensor *table)
{
    for (uint32_t t = 0; t < TENSORS; t++)
        table[t] = (struct kernel_adam_tensor){
            .grad = place(&c->grad, on_device, c->at[t], type_bytes(c->grad_type)),
            .master = place(&c->master, on_device, c->at[t], 4),
            .exp_avg = place(&c->states[0], on_device, c->at[t], 4),
            .exp_avg_sq = place(&c->states[1], on_device, c->at[t], 4),
            .half = half_of(c, on_device, t),
            .count = c->count[t]};
}

/* With rates of its own or, every other time, on the device and others in the rule. */
static void run_adam(const struct optim_case *c, const struct kernel_adam *adam,
                     const struct kernel_adam_tensor *table)
{
    const struct kernel_rates values = {.wide_lr = adam->lr, .beta1 = adam->beta1};
    struct kernel_adam other = *adam;
    struct mirror rates = mirror_rates(&values);
    const bool takes = draw_u64() % 2 != 0;

    if (takes) {
        other.lr = 77.0;
        other.beta1 = 0.77;
    }
    RUN(adam, table, TENSORS, &other, takes ? rates.device : NULL, c->scale.device, c->found.device,
        c->applied.device);
    mirror_free(&rates);
}

TEST(adam)
{
    struct kernel_adam_tensor on_host[TENSORS], on_device[TENSORS];

    mirror_need_device();
    for (uint32_t round = 0; round < 6; round++) {
        struct optim_case c;
        struct kernel_adam adam = {.lr = 1e-3,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-8F,
                                   .weight_decay = round % 3 ? 0.01 : 0.0,
                                   .is_adamw = round % 2};

        case_new(&c);
        adam.grad_type = c.grad_type;
        adam.half_type = c.half_type;
        adam_table(&c, false, on_host);
        adam_table(&c, true, on_device);
        for (uint32_t step = 0; step < STEPS; step++) {
            case_begin(&c, step);
            kernel_adam_ref(on_host, TENSORS, &adam, c.scale.host, c.found.host, c.applied.host);
            run_adam(&c, &adam, on_device);
            case_compare(&c);
        }
        case_free(&c);
    }
}

static void lars_table(const struct optim_case *c, bool on_device, struct kernel_lars_tensor *table)
{
    for (uint32_t t = 0; t < TENSORS; t++)
        table[t] = (struct kernel_lars_tensor){
            .grad = place(&c->grad, on_device, c->at[t], type_bytes(c->grad_type)),
            .master = place(&c->master, on_device, c->at[t], 4),
            .momentum = place(&c->states[0], on_device, c->at[t], 4),
            .half = half_of(c, on_device, t),
            .count = c->count[t],
            .adapts = t % 3 != 1};
}

static void run_lars(const struct optim_case *c, const struct kernel_lars *lars,
                     const struct kernel_lars_tensor *table, void *workspace)
{
    const struct kernel_rates values = {.lr = lars->lr, .momentum = lars->momentum};
    struct kernel_lars other = *lars;
    struct mirror rates = mirror_rates(&values);
    const bool takes = draw_u64() % 2 != 0;

    if (takes) {
        other.lr = 77.0F;
        other.momentum = 0.77F;
    }
    RUN(lars, table, TENSORS, &other, takes ? rates.device : NULL, workspace, c->scale.device,
        c->found.device);
    mirror_free(&rates);
}

TEST(lars)
{
    struct kernel_lars_tensor on_host[TENSORS], on_device[TENSORS];

    mirror_need_device();
    for (uint32_t round = 0; round < 6; round++) {
        struct optim_case c;
        struct kernel_lars lars = {.lr = 0.1F,
                                   .momentum = round % 3 ? 0.9F : 0.0F,
                                   .weight_decay = 1e-4F,
                                   .trust = 0.02F,
                                   .eps = 1e-8F,
                                   .nesterov = round % 3 == 2,
                                   .is_larc = round % 2};
        struct mirror workspace;

        case_new(&c);
        lars.grad_type = c.grad_type;
        lars.half_type = c.half_type;
        lars_table(&c, false, on_host);
        lars_table(&c, true, on_device);
        workspace = mirror_new(kernel_lars_workspace(on_host, TENSORS), 0);
        mirror_upload(&workspace);
        for (uint32_t step = 0; step < STEPS; step++) {
            case_begin(&c, step);
            kernel_lars_ref(on_host, TENSORS, &lars, c.scale.host, c.found.host);
            run_lars(&c, &lars, on_device, workspace.device);
            case_compare(&c);
        }
        mirror_compare_guards(&workspace, "the workspace");
        mirror_free(&workspace);
        case_free(&c);
    }
}

static void lookahead_table(const struct optim_case *c, bool on_device,
                            struct kernel_lookahead_tensor *table)
{
    for (uint32_t t = 0; t < TENSORS; t++)
        table[t] =
            (struct kernel_lookahead_tensor){.master = place(&c->master, on_device, c->at[t], 4),
                                             .slow = place(&c->states[0], on_device, c->at[t], 4),
                                             .half = half_of(c, on_device, t),
                                             .count = c->count[t]};
}

TEST(lookahead)
{
    struct kernel_lookahead_tensor on_host[TENSORS], on_device[TENSORS];

    mirror_need_device();
    for (uint32_t round = 0; round < 6; round++) {
        struct optim_case c;
        struct kernel_lookahead rule = {
            .is_paper = round % 2, .every = 1 + round / 2, .alpha = 0.3F};

        case_new(&c);
        rule.half_type = c.half_type;
        lookahead_table(&c, false, on_host);
        lookahead_table(&c, true, on_device);
        for (uint32_t step = 0; step < STEPS; step++) {
            case_begin(&c, step);
            kernel_lookahead_before_ref(on_host, TENSORS, &rule, c.found.host, c.applied.host);
            RUN(lookahead_before, on_device, TENSORS, &rule, c.found.device, c.applied.device);
            case_compare(&c);
            kernel_lookahead_ref(on_host, TENSORS, &rule, c.found.host, c.applied.host);
            RUN(lookahead, on_device, TENSORS, &rule, c.found.device, c.applied.device);
            case_compare(&c);
        }
        case_free(&c);
    }
}
