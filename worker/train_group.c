/* The batches of one step. Inner ones are kept in the net without a reduction; the last one joins
 * what was kept and is reduced. A batch weighs as its part of the step's images, so the step has
 * the mean over all of them, also where the last group or its last batch is incomplete. Every rank
 * has equally many images in a step, so all agree. */
#include "worker/train_parts.h"

#include <assert.h>

size_t train_group_images(const struct train *train)
{
    return (size_t)train->options->batch * train->options->accumulation_steps;
}

/* Of the step to come. */
static size_t images_now(const struct train *train)
{
    size_t whole = train_group_images(train);
    size_t left = train->sampler.count - train->state.step_in_epoch * whole;

    return left < whole ? left : whole;
}

static enum status backward(struct train *train, float weight, bool is_last, struct err *err)
{
    float scale = train->ddp != NULL ? ddp_grad_scale(train->ddp) : 1.0F;
    enum status status;

    if (is_last && train->ddp != NULL)
        return ddp_backward(train->ddp, weight, err);
    status = net_backward(train->net, weight * scale, NULL, NULL, err);
    if (status == STATUS_OK && !is_last)
        net_grads_keep(train->net);
    return status;
}

enum status train_forward(struct train *train, const struct loader_batch *batch, bool training,
                          struct net_result *result, struct err *err)
{
    const struct net_images images = {batch->floats, batch->bytes};

    return net_forward_images(train->net, &images, batch->labels, batch->n, training, result, err);
}

static void next_batch(struct train *train, struct loader_batch *batch, uint64_t *wait_us)
{
    int64_t begun_us = progress_now_us();

    *batch = loader_next(train->loader);
    *wait_us += (uint64_t)(progress_now_us() - begun_us);
    assert(batch->n > 0);
}

static void add_result(struct net_result *sums, const struct net_result *result)
{
    sums->loss_sum += result->loss_sum;
    sums->images += result->images;
    sums->top1 += result->top1;
    sums->top5 += result->top5;
}

/* Running statistics are not shared here: nothing in a training step reads them, and those that
 * count, rank 0's, are shared before a validation. PyTorch's DDP sends them at every forward. */
enum status train_group(struct train *train, struct train_queued *queued, uint64_t *wait_us,
                        struct err *err)
{
    const size_t images = images_now(train);
    struct net_result *sums = &queued->sums;
    enum status status = STATUS_OK;

    *sums = (struct net_result){0};
    queued->is_summed = train->options->accumulation_steps > 1;
    while (status == STATUS_OK && sums->images < images) {
        struct net_result result = {0};
        struct loader_batch batch;
        bool is_first = sums->images == 0, is_last;

        next_batch(train, &batch, wait_us);
        if (!queued->is_summed && (train->ddp == NULL || net_reduces(train->net)))
            net_step_whole(train->net);
        if (batch.n != train->options->batch)
            train_nccl_rest(train); /* another size: plans may have to be built first */
        status = train_forward(train, &batch, true, queued->is_summed ? &result : NULL, err);
        if (status != STATUS_OK)
            return status;
        result.images = batch.n;
        add_result(sums, &result);
        is_last = sums->images >= images;
        if (is_last && !is_first)
            net_grads_join(train->net);
        status = backward(train, (float)batch.n / (float)images, is_last, err);
    }
    return status;
}
