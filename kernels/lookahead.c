/* Reference of lookahead.cu. */
#include <assert.h>
#include <string.h>

#include "kernels/optimizer.h"
#include "kernels/values.h"

enum turn { TURN_NONE, TURN_COPY, TURN_JOIN };

static enum turn turn_of(const struct kernel_lookahead *lookahead, uint32_t t)
{
    if (lookahead->is_paper)
        return t % lookahead->every == 0 ? TURN_JOIN : TURN_NONE;
    if (t == 1)
        return TURN_COPY;
    return (t - 1) % lookahead->every == 0 ? TURN_JOIN : TURN_NONE;
}

/* slow = p */
static void copy(const struct kernel_lookahead_tensor *tensor)
{
    assert(tensor->slow != tensor->master || tensor->count == 0);
    if (tensor->count > 0)
        memcpy(tensor->slow, tensor->master, tensor->count * sizeof *tensor->slow);
}

/* slow += alpha * (p - slow); p = slow */
static void join(const struct kernel_lookahead_tensor *tensor, enum kernel_type half_type,
                 float alpha)
{
    float *restrict fast = tensor->master, *restrict slow = tensor->slow;
    uint16_t *half = tensor->half;

    for (size_t i = 0; i < tensor->count; i++) {
        slow[i] = slow[i] + alpha * (fast[i] - slow[i]);
        fast[i] = slow[i];
    }
    assert(half == NULL || half_type != KERNEL_F32);
    for (size_t i = 0; half != NULL && i < tensor->count; i++)
        half[i] = values_round(fast[i], half_type);
}

void kernel_lookahead_before_ref(const struct kernel_lookahead_tensor *tensors,
                                 uint32_t tensor_count, const struct kernel_lookahead *lookahead,
                                 const uint32_t *found, const uint32_t *applied)
{
    assert(lookahead->every > 0);
    if ((found != NULL && *found != 0) || !lookahead->is_paper || *applied != 0)
        return;
    for (uint32_t t = 0; t < tensor_count; t++)
        copy(&tensors[t]);
}

void kernel_lookahead_ref(const struct kernel_lookahead_tensor *tensors, uint32_t tensor_count,
                          const struct kernel_lookahead *lookahead, const uint32_t *found,
                          const uint32_t *applied)
{
    enum turn turn;

    assert(lookahead->every > 0 && *applied < UINT32_MAX);
    if (found != NULL && *found != 0)
        return;
    turn = turn_of(lookahead, *applied + 1);
    for (uint32_t t = 0; turn != TURN_NONE && t < tensor_count; t++) {
        if (turn == TURN_COPY)
            copy(&tensors[t]);
        else
            join(&tensors[t], lookahead->half_type, lookahead->alpha);
    }
}
