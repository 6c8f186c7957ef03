/* The gradients of one step, from --accumulation-steps batches. The net keeps those of the inner
 * batches without a reduction; the last batch adds what was kept and is reduced.
 *
 * A batch's weight is its share of the step's images, so the step has the mean over all of them,
 * also where the last step of an epoch or its last batch is incomplete. Every rank has equally many
 * images in a step, so the weights agree. */
#include "worker/net/replicas.h"
#include "worker/train/internal.h"

#include <assert.h>

static enum status backward(struct train *train, float weight, bool is_last, struct err *err)
{
    const uint64_t begun_us = trace_now(train->trace);
    enum status status;

    if (train->replicas != NULL)
        status = replicas_backward(train->replicas, weight, err);
    else if (is_last)
        status = net_backward_reduce(train->net, weight, err);
    else
        status = net_backward(train->net, weight, err);

    if (status == STATUS_OK && !is_last)
        net_grads_keep(train->net);
    trace_span(train->trace, TRACE_TRAINING, "backward", begun_us, NULL, 0);
    return status;
}

enum status train_forward(struct train *train, const struct loader_batch *batch, bool training,
                          struct net_result *result, struct err *err)
{
    const struct net_images images = {.bytes = batch->images, .normal = &train->normal};
    uint64_t begun_us;
    enum status status;
    const bool is_alone = batch->n == 1 && !(train->options->sync_bn && train->place->world > 1);

    if (training && is_alone && train->lone_norm[0] != '\0')
        return err_set(err, STATUS_BAD_INPUT, 0,
                       "%.80s: a batch norm needs more than 1 value per channel when training, and "
                       "this batch is 1 image with 1 value: give another -b%s",
                       train->lone_norm,
                       train->options->batch > 1 ? ", so that no single image is left at the end "
                                                   "of the epoch"
                                                 : "");
    begun_us = trace_now(train->trace);
    status = train->replicas != NULL
                 ? train_parallel_forward(train, &images, batch, training, result, err)
                 : net_forward_images(train->net, &images, batch->labels, batch->n, training,
                                      result, err);
    trace_span(train->trace, TRACE_TRAINING, "forward", begun_us, "images", batch->n);
    return status;
}

static enum status next_batch(struct train *train, struct loader_batch *batch, uint64_t *wait_us,
                              struct err *err)
{
    const uint64_t begun_us = mono_us();
    enum status status;

    agent_doing(train->agent, "data: the next batch");
    train_nccl_loading(train, true);
    status = train_next_batch(train, train->loader, batch, err);
    train_nccl_loading(train, false);
    agent_doing(train->agent, "forward and backward");

    *wait_us += mono_us() - begun_us;
    trace_span(train->trace, TRACE_TRAINING, "data", begun_us, NULL, 0);
    assert(status != STATUS_OK || batch->n > 0);
    return status;
}

void train_add_result(struct net_result *sums, const struct net_result *result)
{
    sums->loss_sum += result->loss_sum;
    sums->images += result->images;
    sums->top1 += result->top1;
    sums->top5 += result->top5;
}

/* Running statistics are not broadcast here, unlike in PyTorch's DDP: training steps do not read
 * them, and rank 0's are broadcast before each validation. */
enum status train_group(struct train *train, struct train_pending *pending, uint64_t *wait_us,
                        struct err *err)
{
    const size_t images = train_step_images(train);
    struct net_result *sums = &pending->sums;
    enum status status = STATUS_OK;

    *sums = (struct net_result){0};
    pending->is_summed = train->options->accumulation_steps > 1 || train->replicas != NULL;
    while (status == STATUS_OK && sums->images < images) {
        struct net_result result = {0};
        struct loader_batch batch;
        bool is_last;

        status = next_batch(train, &batch, wait_us, err);
        if (status == STATUS_OK)
            status = train_metrics_batch(train, &batch, err);
        if (status != STATUS_OK)
            return status;
        if (!pending->is_summed)
            net_step_graphable(train->net);
        if (batch.n != train->options->batch)
            train_pause(
                train, AGENT_PREPARING,
                "plans of a batch of another size"); /* plans of this size may have to be built first */
        status = train_forward(train, &batch, true, pending->is_summed ? &result : NULL, err);
        if (status != STATUS_OK)
            return status;
        result.images = batch.n;
        train_add_result(sums, &result);
        is_last = sums->images >= images;
        assert(sums->images <= images); /* the loader's batches end where the step does */
        if (is_last && train->options->accumulation_steps > 1)
            net_grads_join(train->net);
        status = backward(train, (float)batch.n / (float)images, is_last, err);
    }
    return status;
}
