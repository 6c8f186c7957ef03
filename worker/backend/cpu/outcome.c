/* The end of a step on the CPU. All memory is host memory, and every call is complete on return. */
#include "worker/backend/cpu/internal.h"

#include <assert.h>
#include <string.h>

#include "common/io/mono.h"
#include "kernels/kernels.h"
#include "worker/net/clip.h"
#include "worker/net/optim.h"

enum status cpu_memory_read(void *state, const void *memory, void *host, size_t bytes,
                            struct err *err)
{
    (void)state;
    (void)err;
    memcpy(host, memory, bytes);
    return STATUS_OK;
}

enum status cpu_memory_write(void *state, void *memory, const void *host, size_t bytes,
                             struct err *err)
{
    (void)state;
    (void)err;
    memcpy(memory, host, bytes);
    return STATUS_OK;
}

enum status cpu_view_open(void *state, const struct backend_span *span, uint32_t bucket,
                          float **values, struct err *err)
{
    (void)state;
    (void)bucket;
    (void)err;
    assert(span->memory != NULL || span->count == 0);
    *values = span->memory;
    return STATUS_OK;
}

/* The host changed the values in place, in fp32: round them to their type again. */
enum status cpu_view_close(void *state, const struct backend_span *span, uint32_t bucket,
                           float *values, struct err *err)
{
    (void)bucket;
    (void)err;
    cpu_round(state, span->dtype, values, span->count);
    return STATUS_OK;
}

void cpu_step_graphable(void *state)
{
    (void)state;
}

void cpu_bucket_ready(void *state, uint32_t bucket, const struct backend_span *grads)
{
    (void)state;
    (void)bucket;
    (void)grads;
}

enum status cpu_result(void *state, struct net_result *result, struct err *err)
{
    (void)err;
    *result = ((const struct cpu *)state)->result;
    return STATUS_OK;
}

void cpu_bind_scaler(void *state, struct scaler *scaler)
{
    ((struct cpu *)state)->scaler = scaler;
}

/* Sets scaler->found_inf where a value is infinite or a NaN. */
static void check_finite(const struct backend_span *grads, uint32_t count, struct scaler *scaler)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct kernel_values values = {grads[i].memory, grads[i].count};

        kernel_finite_ref(&values, 1, KERNEL_F32, &scaler->found_inf);
    }
}

void cpu_finite(void *state, const struct backend_span *grads, uint32_t count,
                struct scaler *scaler)
{
    const uint64_t start = cpu_clock(state);

    check_finite(grads, count, scaler);
    cpu_count_part(state, CPU_FINITE, start);
}

bool cpu_is_finite(void *state, const struct backend_span *span)
{
    struct scaler found = {0};

    (void)state;
    check_finite(span, 1, &found);
    return !found.found_inf;
}

/* The spans are adjacent slices of the gradient arena, so they are clipped as one array. */
void cpu_clip(void *state, const struct backend_span *grads, uint32_t count,
              const struct net_clip *clip, const struct scaler *scaler)
{
    const uint64_t start = cpu_clock(state);
    size_t n = 0;

    for (uint32_t i = 0; i < count; i++) {
        assert((float *)grads[i].memory == (float *)grads[0].memory + n);
        n += grads[i].count;
    }
    if (!scaler->found_inf && count > 0)
        clip_grads(grads[0].memory, n, clip, scaler->scale);
    cpu_count_part(state, CPU_CLIP, start);
}

static void copy_half(const struct cpu *cpu, const struct backend_param *param)
{
    if (param->half == NULL)
        return;
    assert(param->dtype != GRAPH_F32 && param->half != (void *)param->param);
    memcpy(param->half, param->param, param->count * sizeof(float));
    cpu_round(cpu, param->dtype, param->half, param->count);
}

void cpu_refresh(void *state, const struct backend_param *param)
{
    if (!param->has_master)
        cpu_round(state, param->dtype, param->param, param->count);
    copy_half(state, param);
}

/* Without master weights, parameters and optimizer state are 16-bit values: rounds them. */
static void round_written(const struct cpu *cpu, const struct backend_param *param)
{
    if (param->has_master)
        return;
    cpu_round(cpu, param->dtype, param->param, param->count);
    for (uint32_t s = 0; s < OPTIM_STATES; s++)
        if (param->states[s] != NULL)
            cpu_round(cpu, param->dtype, param->states[s], param->count);
}

void cpu_update(void *state, const struct backend_param *params, uint32_t count,
                const struct optim *optim, const struct scaler *scaler)
{
    const uint64_t start = cpu_clock(state);

    for (uint32_t i = 0; i < count; i++) {
        const struct backend_param *param = &params[i];
        struct optim_tensor tensor = {.param = param->param,
                                      .grad = param->grad.memory,
                                      .count = param->count,
                                      .adapts = param->adapts};

        assert(param->grad.count == param->count);
        memcpy(tensor.states, param->states, sizeof tensor.states);
        optim_step(&tensor, optim, scaler);
        round_written(state, param);
        if (optim->lookahead != OPTIM_LOOKAHEAD_NONE) {
            optim_look_ahead(&tensor, optim, scaler);
            round_written(state, param);
        }
        copy_half(state, param);
    }
    cpu_count_part(state, CPU_UPDATE, start);
}

void cpu_scaler_end(void *state, struct scaler *scaler, bool used_momentum)
{
    (void)state;
    if (used_momentum && !scaler->found_inf)
        scaler->has_momentum = 1;
    scaler_step(scaler);
}

void cpu_step_end(void *state, const struct scaler *scaler)
{
    struct cpu *cpu = state;

    if (cpu->outcome_count == NET_OUTCOMES) { /* the caller took none: drop the oldest */
        cpu->outcome_first = (cpu->outcome_first + 1) % NET_OUTCOMES;
        cpu->outcome_count--;
    }
    assert(cpu->outcome_first < NET_OUTCOMES && cpu->outcome_count < NET_OUTCOMES);
    cpu->outcomes[(cpu->outcome_first + cpu->outcome_count++) % NET_OUTCOMES] =
        (struct net_outcome){cpu->result, *scaler, mono_us()};
}

enum status cpu_outcome_take(void *state, bool wait, struct net_outcome *outcome, bool *taken,
                             struct err *err)
{
    struct cpu *cpu = state;

    (void)wait;
    (void)err;
    *taken = cpu->outcome_count > 0;
    if (!*taken)
        return STATUS_OK;
    *outcome = cpu->outcomes[cpu->outcome_first];
    cpu->outcome_first = (cpu->outcome_first + 1) % NET_OUTCOMES;
    cpu->outcome_count--;
    return STATUS_OK;
}

void cpu_add(void *state, const struct backend_span *to, const struct backend_span *from,
             bool clear)
{
    float *sum = to->memory, *more = from->memory;

    assert(to->count == from->count);
    (void)state;
    for (size_t i = 0; i < to->count; i++)
        sum[i] += more[i];
    if (clear)
        memset(more, 0, from->count * sizeof *more);
}
